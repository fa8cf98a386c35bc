"""Runs the documents: every bash and python block, in order, as a reader would.

A comment on the line above a block says what else is to be done with it:

    <!-- not run: REASON -->      it is only read
    <!-- long -->                 of bash: it is run with the long tests
    <!-- file: NAME -->           it is (the next part of) the text of a file, which is there before anything runs

The blocks of a document share one empty folder. Python blocks run in one process, each in the namespace of those before
it; line numbers in a traceback are those of the document. What a block installs by pip goes into that folder.
"""

import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_architecture import LEVELS

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", *GUIDES)
#: The most lines of a document that is read first.
MOST_LINES = {"README.md": 150, "ARCHITECTURE.md": 150, "CONTRIBUTING.md": 150}
#: Backticked names that look like modules: groups of entry points, and a function that TVM knows by its name.
NO_MODULES = {"tvm_ext.recipes", "tvm_ext.backends", "tvm_ext.drivers", "tvm_ext.offload"}


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line of its first line of code, its code, and the comment above it."""

    language: str
    line: int
    code: str
    note: str = ""

    @property
    def runs(self) -> bool:
        return self.language in ("bash", "python") and (self.note == "" or self.long)

    @property
    def long(self) -> bool:
        return self.language == "bash" and self.note == "long"

    @property
    def file(self) -> str:
        """The file that the block is the text of, or ""."""
        return self.note.removeprefix("file: ") if self.note.startswith("file: ") else ""


def blocks(text: str) -> list[Block]:
    """All fenced blocks that name a language."""
    matches = re.finditer(r"^(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[2], text.count("\n", 0, m.start(3)) + 1, m[3], m[1] or "") for m in matches]


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose(document: str) -> str:
    """A document without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", read(document), flags=re.MULTILINE | re.DOTALL)


BLOCKS = {name: blocks(read(name)) for name in DOCUMENTS}
BASH = [
    pytest.param(name, block, id=f"{name}:{block.line}", marks=[pytest.mark.long] if block.long else [])
    for name, all_of_it in BLOCKS.items()
    for block in all_of_it
    if block.runs and block.language == "bash"
]
PYTHON = {name: [b for b in all_of_it if b.runs and b.language == "python"] for name, all_of_it in BLOCKS.items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `tvm-ext` command that is this source tree, and a folder for each document with its files."""
    folder = tmp_path_factory.mktemp("documents")
    command = folder / "bin" / "tvm-ext"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tvm_ext.cli "$@"\n')
    command.chmod(0o755)
    for document, all_of_it in BLOCKS.items():
        (folder / document).mkdir(parents=True)
        for block in all_of_it:
            if block.file:
                with open(folder / document / block.file, "a", encoding="utf-8") as file:
                    file.write(block.code)
    return folder


def run(command: list[str], document: str, home: Path) -> None:
    """Run in the document's own folder, with a cache of its own."""
    site = home / document / "site"
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)]),
        "TVM_EXT_CACHE": str(home / "cache"),
        **{"PIP_TARGET": str(site), "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"},  # 0 means: no isolation
    }
    done = subprocess.run(command, cwd=home / document, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_comments_above_blocks_are_those_of_this_module() -> None:
    noted = [(name, block) for name, all_of_it in BLOCKS.items() for block in all_of_it if block.note]
    assert not [(name, b) for name, b in noted if not (b.long or re.fullmatch("(not run|file): .+", b.note))]
    assert sum(block.note.startswith("not run") for _, block in noted) <= 3, "run it, or mark it long"


@pytest.mark.parametrize(("document", "block"), BASH)
def test_bash(document: str, block: Block, home: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", block.code], document, home)


@pytest.mark.parametrize("document", [name for name, code in PYTHON.items() if code])
def test_python(document: str, home: Path) -> None:
    """One process for all blocks: the reader's session."""
    lines: list[str] = []
    for block in PYTHON[document]:
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    program = home / document / "session.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run([sys.executable, str(program)], document, home)


@pytest.mark.parametrize("document", MOST_LINES)
def test_what_is_read_first_is_short(document: str) -> None:
    assert len(read(document).splitlines()) <= MOST_LINES[document]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_exist(document: str) -> None:
    """Relative links, and paths of this tree in backticks, name files that are there."""
    text, folder = prose(document), (ROOT / document).parent
    links = [folder / name for name in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)]
    tops = "tvm_ext|schedules|tests|benchmarks|byoc|tuning_logs|notebooks|docs"
    paths = [ROOT / name for name in re.findall(rf"`((?:{tops})/[\w./-]*)`", text)]
    missing = sorted({str(path) for path in [*links, *paths] if not path.exists()})
    assert not missing, f"{document} names what is not there: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_anchors_exist(document: str) -> None:
    """Headings that a document links to, its own and those of others."""

    def anchors(path: Path) -> set[str]:
        headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    here = ROOT / document
    for name, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", prose(document)):
        assert anchor in anchors(here.parent / name if name else here), f"{name}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_and_names_exist(document: str) -> None:
    """Names in backticks: `a/b.py` is a file of the library, `tvm_ext.a.b` can be imported."""
    text = prose(document)
    tree = [f"/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("*/**/*.py")]
    files = re.findall(r"`([\w/]+\.py)`", text)
    assert not {name for name in files if not any(path.endswith(f"/{name}") for path in tree)}
    for name in {*re.findall(r"`(tvm_ext(?:\.\w+)+)[`(]", text)} - NO_MODULES:
        pkgutil.resolve_name(name)


def test_environment_variables_are_documented_by_their_names() -> None:
    """Each TVM_EXT_... name that the library mentions, in code or in a message, is in the list, and no other."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tvm_ext").rglob("*.py")]
    mentioned = {name for text in sources for name in re.findall(r"\bTVM_EXT_[A-Z_]+", text)}
    assert set(re.findall(r"^\* (TVM_EXT_[A-Z_]+):", read("docs/options.md"), re.MULTILINE)) == mentioned


def table(document: str, heading: str) -> list[list[str]]:
    """Cells of the first table whose first heading is `heading`, without backticks."""
    matched = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", read(document), re.MULTILINE)
    assert matched, f"{document} has no table of {heading}"
    return [[cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in matched[1].splitlines()]


def test_readme_states_the_figures_of_the_suite() -> None:
    """Rows and machines as in the table of all machines; `~` stands for what was too noisy to tell."""
    suite = {row[0]: row[2:] for row in table("benchmarks/results/README.md", "what")}
    rows = table("README.md", "model")
    assert len(rows) >= 8
    for name, *figures in rows:
        assert figures == [re.sub(r"([\d.]+) \(too noisy to tell\)", r"~\1", cell) for cell in suite[name]], name


def test_architecture_lists_the_pipeline_in_order() -> None:
    from tvm_ext.passes.pipeline import LOWER, SIMPLIFY, pipeline

    rows = [name for row in table("ARCHITECTURE.md", "pass") for name in row[0].split("`, `")]
    assert rows == [step.name for step in (*SIMPLIFY, *LOWER)]
    assert [row[0] for row in table("docs/design/pipeline.md", "phase")] == [phase.name for phase in pipeline().phases]


def test_design_lists_the_recipes() -> None:
    from tvm_ext.schedules import recipes

    own = [recipe.name for recipe in recipes() if type(recipe).__module__.startswith("tvm_ext.")]
    assert [row[0] for row in table("docs/design/kernels.md", "recipe")] == own


def test_architecture_draws_the_rooms() -> None:
    """Top to bottom they are those that tests/test_architecture.py holds; `tvm_ext` itself is "api" there."""
    drawing = re.search(r"^## Rooms$.*?^```text\n(.*?)^```$", read("ARCHITECTURE.md"), re.MULTILINE | re.DOTALL)
    drawn = [line.split()[0].replace("/", ".") for line in drawing[1].splitlines()]
    for rooms in reversed(LEVELS):
        level, drawn = drawn[: len(rooms)], drawn[len(rooms) :]
        assert sorted(level) == sorted("tvm_ext" if room == "api" else room for room in rooms)
    assert not drawn


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```python\nx = 1\n```\n\n<!-- not run: why -->\n```bash\nls\n```\n"
    text += "<!-- file: a.toml -->\n```toml\na = 1\n```\n"
    python, bash, toml = blocks(text)
    assert python == Block("python", 3, "x = 1\n") and python.runs
    assert bash == Block("bash", 8, "ls\n", "not run: why") and not bash.runs
    assert (toml.file, toml.runs) == ("a.toml", False)
