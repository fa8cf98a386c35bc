"""Runs the documents: every bash and python block whose first line is `# tested`, in order, as a reader would.

The blocks of a document share one empty folder. A python block runs in the namespace of those before it; its line
numbers in a traceback are those of the document.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
MARK = "# tested"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the line of its first line of code, its code."""

    language: str
    line: int
    code: str

    @property
    def tested(self) -> bool:
        return self.code.splitlines()[0].strip() == MARK


def blocks(text: str) -> list[Block]:
    """All fenced blocks that name a language."""
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(m[1], text.count("\n", 0, m.start(2)) + 1, m[2]) for m in found]


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def marked(language: str) -> list[tuple[str, Block]]:
    """(document, block) of all blocks to run."""
    found = [(name, block) for name in DOCUMENTS for block in blocks(read(name))]
    return [(name, block) for name, block in found if block.tested and block.language == language]


BASH, PYTHON = marked("bash"), marked("python")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `tvm-ext` command that is this source tree."""
    folder = tmp_path_factory.mktemp("documents")
    command = folder / "bin" / "tvm-ext"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tvm_ext.cli "$@"\n')
    command.chmod(0o755)
    for document in DOCUMENTS:
        (folder / document).mkdir()
    return folder


def run(command: list[str], document: str, home: Path) -> None:
    """Run in the document's own folder, with a cache of its own."""
    path = os.pathsep.join([str(home / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TVM_EXT_CACHE": str(home / "cache")}
    done = subprocess.run(command, cwd=home / document, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_readme_has_tested_blocks_of_both_languages() -> None:
    assert "README.md" in {name for name, _ in BASH}
    assert {"README.md", "CONTRIBUTING.md"} <= {name for name, _ in PYTHON}


@pytest.mark.parametrize(("document", "block"), BASH, ids=[f"{name}:{block.line}" for name, block in BASH])
def test_bash(document: str, block: Block, home: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", block.code], document, home)


@pytest.mark.parametrize("document", sorted({name for name, _ in PYTHON}))
def test_python(document: str, home: Path) -> None:
    """One process for all blocks: the reader's session."""
    lines: list[str] = []
    for block in (block for name, block in PYTHON if name == document):
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    program = home / f"{document}.py"
    program.write_text("\n".join(lines) + "\n", encoding="utf-8")
    run([sys.executable, str(program)], document, home)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_and_paths_exist(document: str) -> None:
    """Relative links, and paths of this tree in backticks, name files that are there."""
    text = read(document)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    tops = "tvm_ext|schedules|tests|benchmarks|byoc|tuning_logs|notebooks"
    paths = re.findall(rf"`((?:{tops})/[\w./-]*)`", text)
    missing = sorted({name for name in [*links, *paths] if not (ROOT / name).exists()})
    assert not missing, f"{document} names what is not there: {missing}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_anchors_exist(document: str) -> None:
    text = read(document)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    wanted = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert not wanted - anchors


def test_environment_variables_are_documented_by_their_names() -> None:
    """Each TVM_EXT_... name that the library mentions, in code or in a message, is in the README, and no other."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tvm_ext").rglob("*.py")]
    mentioned = {name for text in sources for name in re.findall(r"\bTVM_EXT_[A-Z_]+", text)}
    assert set(re.findall(r"\bTVM_EXT_[A-Z_]+", read("README.md"))) == mentioned


def names_in_table(document: str, heading: str) -> list[str]:
    """First cells of the first table whose first heading is `heading`."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)+)", read(document), re.MULTILINE)
    assert table, f"{document} has no table of {heading}"
    return re.findall(r"^\| `([\w-]+)` \|", table[1], re.MULTILINE)


def test_architecture_lists_the_pipeline_in_order() -> None:
    from tvm_ext.passes.pipeline import LOWER, SIMPLIFY

    assert names_in_table("ARCHITECTURE.md", "pass") == [one.name for one in (*SIMPLIFY, *LOWER)]


def test_architecture_lists_the_recipes() -> None:
    from tvm_ext.schedules import recipes

    own = [recipe.name for recipe in recipes() if type(recipe).__module__.startswith("tvm_ext.")]
    assert names_in_table("ARCHITECTURE.md", "recipe") == own


def test_architecture_draws_the_rooms() -> None:
    """Every folder of the library is a line of the drawing."""
    drawn = re.findall(
        r"^(\w+) +", re.search(r"```text\ncli.*?```", read("ARCHITECTURE.md"), re.DOTALL)[0], re.MULTILINE
    )
    rooms = {path.name for path in (ROOT / "tvm_ext").iterdir() if (path / "__init__.py").is_file()}
    assert set(drawn) == rooms | {"tvm_ext"}


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```python\n# tested\nx = 1\n```\n\n```bash\nls\n```\n"
    assert blocks(text) == [Block("python", 3, "# tested\nx = 1\n"), Block("bash", 8, "ls\n")]
    assert [block.tested for block in blocks(text)] == [True, False]
