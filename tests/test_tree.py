"""How large the tree is: modules in a folder, lines of a room; and in what order its tests run."""

import ast
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_collection_modifyitems
from tests.test_architecture import ROOT, Source, read_tree, room_of

MAX_MODULES_IN_A_FOLDER = 20
#: Lines that a room of the library, and what stands beside it, may have. A change that needs more says why where it
#: raises a number; one that needs less lowers it.
BUDGET = {
    "api": 275, "benchmarking": 1125, "byoc": 10900, "byoc.testing": 1075, "cli": 2275, "core": 6100, "driver": 5425,
    "frontend": 15725, "inspection": 4550, "ops": 1550, "ops.scalars": 950, "passes": 12800, "precision": 500,
    "quantization": 1325, "rates": 1000, "runtime": 6750, "schedules": 11775, "tuning": 7100, "verification": 2825,
    "benchmarks": 8625, "tests": 72650,
}  # fmt: skip
#: A budget is no more than so much above the lines that there are, and this share of them.
SPARE, SPARE_SHARE = 100, 0.02
EMPTY_NAMES = {"found", "given", "made"}


def crowded(sources: Iterable[Source]) -> list[str]:
    """Folders of library, tests and benchmarks with too many modules, each with their number."""
    tops = ("tvm_ext/", "tests/", "benchmarks/")
    modules = [source for source in sources if not source.is_init and source.path.startswith(tops)]
    count = Counter(os.path.dirname(source.path) for source in modules)
    return [f"{folder}: {n} modules" for folder, n in count.items() if n > MAX_MODULES_IN_A_FOLDER]


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of what a source binds: functions, classes, parameters, variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr


def empty_names(sources: Iterable[Source]) -> list[str]:
    """Names that do not say what they are of; "one" may be the number."""
    ours = list(sources)
    bound = [(source, line, name) for source in ours for line, name in bound_names(source.tree)]
    empty = [source.say(line, name) for source, line, name in bound if name in EMPTY_NAMES]
    for source in ours:
        lists = [node for node in ast.walk(source.tree) if isinstance(node, ast.comprehension | ast.For)]
        targets = [name for node in lists for name in ast.walk(node.target) if isinstance(name, ast.Name)]
        places = [target.lineno for target in targets if target.id == "one"]
        places += [node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.arg) and node.arg == "one"]
        empty += [source.say(line, "one") for line in places]
    return empty


def lines_by_room(sources: Iterable[Source]) -> Counter[str]:
    """Lines of each room; of tests and benchmarks, each as one."""
    lines: Counter[str] = Counter()
    for source in sources:
        room = room_of(source.module) if source.is_library else source.path.split("/")[0]
        lines[str(room)] += source.text.count("\n")
    return lines


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_keeps_its_budget(room: str, lines: Counter[str]) -> None:
    spare = max(SPARE, int(SPARE_SHARE * lines[room]))
    assert lines[room] <= BUDGET[room] <= lines[room] + spare, f"{room} has {lines[room]} lines"


def test_every_room_has_a_budget(lines: Counter[str]) -> None:
    assert lines.keys() - {"tuning_logs"} == BUDGET.keys()


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_tree(ROOT)


@pytest.fixture(scope="module")
def lines(sources: list[Source]) -> Counter[str]:
    return lines_by_room(sources)


def test_a_folder_has_few_modules(sources: list[Source]) -> None:
    assert not crowded(sources)
    folders = ("tvm_ext/a", "benchmarks")
    names = [f"{folder}/m{k}.py" for folder in folders for k in range(MAX_MODULES_IN_A_FOLDER + 1)]
    assert crowded(Source(name, "", ast.parse("")) for name in names) == [f"{f}: 21 modules" for f in folders]


def test_names_say_what_they_are_of(sources: list[Source]) -> None:
    assert not empty_names(sources)
    text = "def made(one, x: int):\n    found = [one for one in x]\n    x.given, one = found, 1\n    return one"
    lines = [say.split(":")[1:] for say in empty_names([Source("benchmarks/x.py", text, ast.parse(text))])]
    assert sorted(lines) == [["1", " made"], ["1", " one"], ["2", " found"], ["2", " one"], ["3", " given"]]


def test_files_with_long_tests_run_first() -> None:
    order = [("a", ""), ("b", ""), ("b", "long"), ("b", ""), ("c", "other"), ("d", "long"), ("d", "")]
    items: list[Any] = [
        SimpleNamespace(path=path, number=number, get_closest_marker=lambda name, mark=mark: name == mark)
        for number, (path, mark) in enumerate(order)
    ]
    pytest_collection_modifyitems(items)
    assert [item.number for item in items] == [1, 2, 3, 5, 6, 0, 4]
