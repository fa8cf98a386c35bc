"""Holds the architecture: reads the sources, never imports them, and names file, line and rule of what breaks it.

Rooms import downwards only; ARCHITECTURE.md draws them. A rule is a generator over one source file; `check` runs
all rules over a tree, and the tests at the end show each rule catching what it is there for.
"""

import ast
import configparser
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: Bottom to top; a room imports itself and what stands before it. Rooms in one row do not import each other.
LEVELS: tuple[tuple[str, ...], ...] = (
    ("runtime",), ("rates",), ("ops",), ("core",), ("ops.scalars",), ("schedules", "byoc"), ("passes",), ("frontend",),
    ("precision",), ("driver",), ("verification",), ("quantization",), ("benchmarking",), ("tuning",), ("inspection",),
    ("api",), ("byoc.testing",), ("cli",),
)  # fmt: skip
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

#: "api" is tvm_ext/__init__.py itself; "byoc.testing", which authors of back ends use, compiles models by it. Everyone
#: may import the errors.
OPEN_TO_ALL = ("tvm_ext.core.errors",)
RUNTIME_MAY_IMPORT = ("numpy", "tvm_ffi", "tvm.runtime", "tvm_ext.core.errors", "tvm_ext.runtime")
TOP_LEVEL_FOLDERS = ("byoc", "schedules", "tuning_logs")
DISTRIBUTION_OF = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi", "google": "protobuf", "xgboost": "xgboost-cpu"}
#: Folders that are written in the library of an extra, and import it at once; importing them is importing that.
FOLDERS_OF_EXTRAS = {"tvm_ext.byoc.systolic.hardware": "amaranth"}

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
#: A number that recipes compute with is no clock in hertz and no rate a second below this; nor do names say so.
LEAST_RATE = 1e8
NAMES_OF_RATES = re.compile(r"CLOCK|GHZ|HERTZ|BYTES_A_CYCLE|PER_SECOND|PER_CYCLE", re.IGNORECASE)
#: "path::function" that may be longer, each with its reason.
LONG_FUNCTIONS: dict[str, str] = {}


@dataclass(frozen=True)
class Source:
    """One Python file: its path in the tree, its text, and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_library(self) -> bool:
        return self.path.startswith("tvm_ext/")

    @property
    def is_init(self) -> bool:
        return self.path.endswith("/__init__.py")

    def say(self, line: int, rule: str) -> str:
        return f"{self.path}:{line}: {rule}"


@functools.cache
def read_tree(root: Path) -> list[Source]:
    """All sources: the library, through its links (tvm_ext/schedules is one), the tests, the benchmarks and the scripts
    that made the tuning logs, which are no modules of the library though they are linked into it."""
    sources = []
    for top in ("tvm_ext", "tests", "benchmarks", "tuning_logs"):
        for folder, folders, files in os.walk(root / top, followlinks=True):
            logs = root / "tvm_ext" / "tuning_logs"
            folders[:] = [name for name in folders if Path(folder, name) != logs and not name.startswith(".")]
            for path in (Path(folder, name) for name in files if name.endswith(".py")):
                text = path.read_text(encoding="utf-8")
                sources.append(Source(path.relative_to(root).as_posix(), text, ast.parse(text, str(path))))
    return sorted(sources, key=lambda source: source.path)


@functools.cache
def imports(source: Source) -> tuple[tuple[int, str, bool], ...]:
    """(line, absolute name, done later or never) of each import; `from a import b` gives "a.b"."""
    return tuple(_imports(source))


def _imports(source: Source) -> Iterator[tuple[int, str, bool]]:
    lazy = {id(inner) for outer in ast.walk(source.tree) if _is_lazy(outer) for inner in ast.walk(outer)}
    package = source.module.split(".") if source.is_init else source.module.split(".")[:-1]
    for node in ast.walk(source.tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif (text := _first_text(node)) and "import" in ast.unparse(node.func):
            names = [text]  # importlib.import_module("...") and __import__("...")
        for name in names:
            yield node.lineno, name, id(node) in lazy


def _first_text(node: ast.AST) -> str:
    """The text that a call has for its first argument; "" if it has none."""
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _is_lazy(node: ast.AST) -> bool:
    """Whether importing the module leaves the inside alone: a function's body, or what only type checkers read."""
    return isinstance(node, _FUNCTIONS) or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


def inside(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def room_of(name: str) -> str | None:
    """The room of a dotted name: None outside tvm_ext, "api" for tvm_ext/__init__ and the names it exports."""
    parts = name.split(".")
    if parts[0] != "tvm_ext":
        return None
    if ".".join(parts[1:3]) in LEVEL_OF:
        return ".".join(parts[1:3])
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL_OF else "api"


# ------------------------------------------------------------------------------------------------ rules
def rooms_are_known(source: Source) -> Iterator[str]:
    parts = source.path.split("/")
    if source.is_library and source.path != "tvm_ext/__init__.py" and parts[1] not in LEVEL_OF:
        yield source.say(1, f"{parts[1]!r} is no room: put the file in one, or add the room to LEVELS here")


def arrows_go_down(source: Source) -> Iterator[str]:
    room = room_of(source.module) if source.is_library else None
    for line, name, _ in imports(source) if room else ():
        target = room_of(name)
        if target in (None, room) or inside(name, *OPEN_TO_ALL):
            continue
        if LEVEL_OF[target] >= LEVEL_OF[room]:
            yield source.say(line, f"{room} imports {name} of {target}, which is not below it")


def runtime_stands_alone(source: Source) -> Iterator[str]:
    """A deployment loads `tvm_ext.runtime` with numpy and TVM's runtime and nothing else."""
    for line, name, _ in imports(source) if inside(source.module, "tvm_ext.runtime") else ():
        if name.split(".")[0] not in sys.stdlib_module_names and not inside(name, *RUNTIME_MAY_IMPORT):
            yield source.say(line, f"runtime imports {name}; it may import {', '.join(RUNTIME_MAY_IMPORT)} and stdlib")


def core_knows_no_model(source: Source) -> Iterator[str]:
    """Core may use plain modules of runtime by name, but not the loaded model, nor the package that re-exports it."""
    for line, name, _ in imports(source) if inside(source.module, "tvm_ext.core") else ():
        reexported = inside(name, "tvm_ext.runtime") and name.count(".") < 3
        if inside(name, "tvm_ext.runtime.model") or reexported:
            yield source.say(line, f"core imports {name}: only named modules of runtime, and never its model")


def one_import_root(source: Source) -> Iterator[str]:
    for line, name, _ in imports(source):
        if inside(name, *TOP_LEVEL_FOLDERS):
            yield source.say(line, f"imports {name}: write tvm_ext.{name}, else registrations run twice")


def only_cli_prints(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree) if source.is_library and room_of(source.module) != "cli" else ():
        called = ast.unparse(node.func) if isinstance(node, ast.Call) and _ends(node.func) in ("print", "write") else ""
        if called in ("print", "builtins.print", "sys.stdout.write"):
            yield source.say(node.lineno, f"{called}() outside cli: return the value, or raise")


def _ends(function: ast.expr) -> str:
    """The last name of a dotted one; "" of what is none."""
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def no_tensor_intrin(source: Source) -> Iterator[str]:
    """Importing that module registers every GPU intrinsic and takes 22 seconds and more."""
    for line, name, _ in imports(source):
        if inside(name, "tvm.s_tir.tensor_intrin"):
            yield source.say(line, f"imports {name}, which takes more than 20 seconds")


def files_are_short(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > MAX_FILE_LINES:
        yield source.say(lines, f"the file has {lines} lines, more than {MAX_FILE_LINES}: split it")


def functions_are_short(source: Source) -> Iterator[str]:
    """Lines of a function's statements and signature; its docstring is not counted."""
    for node in ast.walk(source.tree) if source.is_library else ():
        if not isinstance(node, _FUNCTIONS) or f"{source.path}::{node.name}" in LONG_FUNCTIONS:
            continue
        lines = node.end_lineno - node.lineno + 1
        if ast.get_docstring(node):
            lines -= node.body[0].end_lineno - node.body[0].lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield source.say(node.lineno, f"{node.name} has {lines} lines, more than {MAX_FUNCTION_LINES}: split it")


def modules_say_what_they_are(source: Source) -> Iterator[str]:
    empty_init = source.is_init and not source.is_library and not source.text.strip()
    if not empty_init and not (ast.get_docstring(source.tree) or "").strip():
        yield source.say(1, "no module docstring: its first line says what the module is")


def inits_only_reexport(source: Source) -> Iterator[str]:
    lazy = ("tvm_ext", "tvm_ext.cli", "tvm_ext.frontend.zoo")  # what users import names from, and most need few of
    if not source.is_init or not source.is_library or source.module in lazy:
        return
    for node in source.tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        exports = isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]
        if not (docstring or exports or isinstance(node, ast.Import | ast.ImportFrom)):
            yield source.say(node.lineno, "an __init__ only imports and sets __all__; move this to a module")


def third_party_is_declared(source: Source) -> Iterator[str]:
    """At import time only base dependencies; what an extra brings is imported where it is used."""
    base, extras = declared_dependencies()
    for line, name, lazy in imports(source) if source.is_library else ():
        top = next((e for folder, e in FOLDERS_OF_EXTRAS.items() if inside(name, folder)), name.split(".")[0])
        distribution = DISTRIBUTION_OF.get(top, top)
        if top in sys.stdlib_module_names or top in ("tvm_ext", *TOP_LEVEL_FOLDERS) or distribution in base:
            continue
        if distribution not in extras:
            yield source.say(line, f"imports {top}, which setup.cfg does not declare")
        elif not lazy and not inside(source.module, *FOLDERS_OF_EXTRAS):
            yield source.say(line, f"imports {top}, of an extra, at import time: do it in the function that needs it")


@functools.cache
def declared_dependencies() -> tuple[frozenset[str], frozenset[str]]:
    """Names of the base dependencies of setup.cfg with what each of them requires, and of those that extras add."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")

    def names(lines: Iterable[str]) -> set[str]:
        return {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if line and "extra ==" not in line}

    base = names(config["options"]["install_requires"].split("\n"))
    brought = names(line for name in base for line in metadata.requires(name) or ())
    extras = config["options.extras_require"]
    return frozenset(base | brought), frozenset(names("\n".join(extras.values()).split("\n")))


def recipes_know_no_machine(source: Source) -> Iterator[str]:
    """Clocks and rates stand in `tvm_ext.rates` and the described machines; recipes and estimates ask a `Machine`."""
    if room_of(source.module) != "schedules" and source.module != "tvm_ext.core.cost.estimate":
        return
    for line, name, _ in imports(source) if room_of(source.module) == "schedules" else ():
        if inside(name, "tvm_ext.rates") and not inside(name, "tvm_ext.rates.instructions"):
            yield source.say(line, f"imports {name}: a recipe reads the rates of its machine")
    for node in ast.walk(source.tree):
        for value in _operands(node):
            if abs(value) >= LEAST_RATE:
                yield source.say(node.lineno, f"computes with {value:g}, a clock or a rate: it belongs to the machine")
        if NAMES_OF_RATES.search(name := _named(node)):
            yield source.say(node.lineno, f"{name} names a clock or a rate: it belongs to the machine")


def _operands(node: ast.AST) -> list[float]:
    """Numbers that an operation or a keyword of a call has for operands."""
    values = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    values += [node.value] if isinstance(node, ast.AugAssign | ast.keyword) else []
    plain = [v.operand if isinstance(v, ast.UnaryOp) else v for v in values]
    return [v.value for v in plain if isinstance(v, ast.Constant) and isinstance(v.value, int | float)]


def _named(node: ast.AST) -> str:
    """The name of a variable that is set, or of an argument; "" of another node."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return (node.arg or "") if isinstance(node, ast.arg | ast.keyword) else ""


RULES = (
    rooms_are_known, arrows_go_down, runtime_stands_alone, core_knows_no_model, one_import_root, only_cli_prints,
    no_tensor_intrin, files_are_short, functions_are_short, modules_say_what_they_are, inits_only_reexport,
    third_party_is_declared, recipes_know_no_machine,
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ tests
@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_tree(ROOT)


def test_all_rooms_are_read(sources: list[Source]) -> None:
    rooms = {source.path.split("/")[1] for source in sources if source.is_library}
    assert {"core", "passes", "runtime", "schedules", "driver", "frontend", "cli"} <= rooms
    assert any(source.path == "tests/test_architecture.py" for source in sources)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule, sources: list[Source]) -> None:
    broken = [message for source in sources for message in rule(source)]
    assert not broken, f"{len(broken)} places break it:\n" + "\n".join(broken)


def test_logs_are_data(sources: list[Source]) -> None:
    """Scripts beside the tuning logs are held to what scripts are; nothing takes them for modules of the library."""
    scripts = [source for source in sources if source.path.startswith("tuning_logs/")]
    assert scripts and not any(source.is_library or source.is_init for source in scripts)
    assert not [source.path for source in sources if source.path.startswith("tvm_ext/tuning_logs")]


def test_long_functions_exist(sources: list[Source]) -> None:
    """The list of exceptions does not outlive its functions."""
    present = {f"{s.path}::{n.name}" for s in sources for n in ast.walk(s.tree) if isinstance(n, _FUNCTIONS)}
    assert not LONG_FUNCTIONS.keys() - present


RECIPE = "tvm_ext/schedules/a.py"
CAUGHT = [
    (rooms_are_known, "tvm_ext/helpers/a.py", "", "'helpers' is no room"),
    (rooms_are_known, "tvm_ext/helpers.py", "", "'helpers.py' is no room"),
    (arrows_go_down, "tvm_ext/passes/a.py", "from tvm_ext.driver import b", "tvm_ext/passes/a.py:1: passes imports"),
    (arrows_go_down, "tvm_ext/passes/a.py", "def f():\n    from ..driver import b", "a.py:2: passes imports"),
    (arrows_go_down, "tvm_ext/passes/a.py", "from .. import driver", "imports tvm_ext.driver of driver"),
    (arrows_go_down, "tvm_ext/core/a.py", "import tvm_ext", "core imports tvm_ext of api"),
    (arrows_go_down, "tvm_ext/byoc/a.py", "import tvm_ext.schedules.b", "not below it"),
    (arrows_go_down, "tvm_ext/byoc/a.py", "from .testing import cases", "byoc imports tvm_ext.byoc.testing.cases"),
    (arrows_go_down, "tvm_ext/core/a.py", "importlib.import_module('tvm_ext.cli')", "core imports tvm_ext.cli"),
    (runtime_stands_alone, "tvm_ext/runtime/a.py", "import tvm", "runtime imports tvm;"),
    (runtime_stands_alone, "tvm_ext/runtime/a.py", "from tvm import relax", "runtime imports tvm.relax"),
    (runtime_stands_alone, "tvm_ext/runtime/a.py", "from ..core.machine import Machine", "tvm_ext.core.machine"),
    (core_knows_no_model, "tvm_ext/core/a.py", "from ..runtime.model import Model", "never its model"),
    (core_knows_no_model, "tvm_ext/core/a.py", "from tvm_ext.runtime import Model", "only named modules"),
    (one_import_root, "tests/a.py", "from schedules import conv2d", "write tvm_ext.schedules.conv2d"),
    (only_cli_prints, "tvm_ext/core/a.py", "\nprint(1)", "tvm_ext/core/a.py:2: print() outside cli"),
    (only_cli_prints, "tvm_ext/core/a.py", "import sys\nsys.stdout.write('')", "outside cli"),
    (no_tensor_intrin, "tests/a.py", "from tvm.s_tir import tensor_intrin", "more than 20 seconds"),
    (files_are_short, "tests/a.py", "\n" * 401, "401 lines"),
    (functions_are_short, "tvm_ext/core/a.py", "def f():\n" + "    x = 1\n" * 40, "f has 41 lines"),
    (modules_say_what_they_are, "tvm_ext/core/a.py", "x = 1", "no module docstring"),
    (modules_say_what_they_are, "tvm_ext/core/__init__.py", "", "no module docstring"),
    (inits_only_reexport, "tvm_ext/core/__init__.py", "'''Core.'''\nx = 1", "__init__.py:2: an __init__ only"),
    (third_party_is_declared, "tvm_ext/core/a.py", "import torch", "imports torch, which setup.cfg does not declare"),
    (third_party_is_declared, "tvm_ext/core/a.py", "import xgboost", "of an extra, at import time"),
    (third_party_is_declared, "tvm_ext/byoc/systolic/a.py", "from .hardware import b", "imports amaranth, of an extra"),
    (recipes_know_no_machine, RECIPE, "def f(x):\n    return x / 3.7e9", "a.py:2: computes with 3.7e+09"),
    (recipes_know_no_machine, "tvm_ext/core/cost/estimate.py", "y = x / (2 * 100_000_000)", "computes with 1e+08"),
    (recipes_know_no_machine, RECIPE, "x *= 10**9 - 1e9", "computes with 1e+09"),
    (recipes_know_no_machine, RECIPE, "x = f(bandwidth=-2e10)", "computes with 2e+10"),
    (recipes_know_no_machine, RECIPE, "_L2_BYTES_A_CYCLE = 31", "_L2_BYTES_A_CYCLE names a clock"),
    (recipes_know_no_machine, RECIPE, "def f(x, clock_ghz=3):\n    return x", "clock_ghz names"),
    (recipes_know_no_machine, RECIPE, "class A:\n    loads_per_second: float = 1.0", "a.py:2: loads_per"),
    (recipes_know_no_machine, RECIPE, "from tvm_ext.rates import Rates", "a recipe reads the rates"),
    (recipes_know_no_machine, RECIPE, "def f():\n    from tvm_ext.rates.loops import CHAINS", "imports"),
]

ALLOWED = [
    (arrows_go_down, "tvm_ext/runtime/a.py", "from ..core.errors import ArtifactError"),
    (arrows_go_down, "tvm_ext/frontend/a.py", "from tvm_ext.runtime.spec import TensorSpec\nfrom . import b"),
    (arrows_go_down, "tvm_ext/byoc/testing/a.py", "import tvm_ext\nfrom ..region import Region\nfrom .b import c"),
    (arrows_go_down, "tvm_ext/cli/a.py", "import tvm_ext\nfrom tvm_ext import compile"),
    (arrows_go_down, "tests/a.py", "from tvm_ext.cli import main"),
    (runtime_stands_alone, "tvm_ext/runtime/a.py", "import json, numpy\nfrom tvm.runtime import vm\nimport tvm_ffi"),
    (core_knows_no_model, "tvm_ext/core/a.py", "from tvm_ext.runtime.spec import TensorSpec"),
    (only_cli_prints, "tvm_ext/cli/a.py", "print(1)"),
    (modules_say_what_they_are, "tests/core/__init__.py", ""),
    (functions_are_short, "tvm_ext/core/a.py", "def f():\n    '''" + "a\n" * 60 + "'''\n" + "    x = 1\n" * 39),
    (inits_only_reexport, "tvm_ext/core/__init__.py", "'''Core.'''\nfrom .a import b\n__all__ = ['b']"),
    (third_party_is_declared, "tvm_ext/byoc/systolic/hardware/a.py", "import amaranth\nfrom .b import c"),
    (third_party_is_declared, "tvm_ext/core/a.py", "import onnx\ndef f():\n    import xgboost"),
    (
        recipes_know_no_machine,
        RECIPE,
        "x = {'f': -3.4e38}\ny = x * machine.rates.hertz / 1e6 + (16 << 20)\nfrom tvm_ext.rates.instructions import b",
    ),
    (recipes_know_no_machine, "tvm_ext/core/cost/estimate.py", "from ..rates import Rates\ny = x / rates.clock"),
    (recipes_know_no_machine, "tvm_ext/rates/a.py", "hertz = clock * 1e9"),
    (recipes_know_no_machine, "benchmarks/a.py", "CLOCK = 3.7\ny = x / 1e9"),
]


@pytest.mark.parametrize(("rule", "path", "text", "message"), CAUGHT)
def test_rule_catches(rule, path: str, text: str, message: str) -> None:
    problems = list(rule(Source(path, text, ast.parse(text))))
    assert len(problems) == 1
    assert message in problems[0]


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_rule_allows(rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text, ast.parse(text)))) == []
