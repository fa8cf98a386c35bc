"""Sets and tables of operator names stand in `tvm_ext.ops`: reads the sources, and names file and line of others."""

import ast
import functools
from collections.abc import Iterator

import pytest

from .test_architecture import ROOT, Source, read_tree, room_of

#: A collection of so many names is a set of operators.
LEAST_OPERATORS = 3
#: "path::name" of sets of operators outside of the table, each with its reason.
OPERATOR_NAMES = {
    "tvm_ext/byoc/testing/models.py::_others": "models to test back ends with, and what each is about",
    "tvm_ext/byoc/systolic/lowering/pooling.py::POOLINGS": "the back end's poolings, and how each reduces",
    "tvm_ext/core/numbers/storage.py::chain_of": "the forms of a decode, which core knows itself",
    "tvm_ext/frontend/checks/operators.py::_ALL_VERSIONS": "which own converters read more than the stock ones",
    "tvm_ext/frontend/converters/microsoft/nchwc.py::_pool": "a domain's operators",
    "tvm_ext/frontend/converters/microsoft/standard.py::_ACTIVATIONS": "how a domain passes parameters of activations",
    "tvm_ext/frontend/converters/selection/counting.py::COUNTING": "the operators of the converters there",
    "tvm_ext/frontend/converters/selection/along.py::_SOFTMAX": "whose axes are all from one on, before opset 13",
    "tvm_ext/frontend/counts.py::_HANDED_ON": "by which index elements of a counted tensor come, of each by itself",
    "tvm_ext/frontend/empty.py::_SCATTERS": "what writes into its first operand: the rule of nothing written",
    "tvm_ext/passes/simplification/recognize_attention.py::_leads_to_matmul": "a pattern: scale and mask of attention",
    "tvm_ext/passes/simplification/reduce_strength.py::_is_not_negative": "sums and products of what is not negative",
    "tvm_ext/passes/simplification/recognize_activations.py::_polynomial": "the arithmetic of polynomials",
    "tvm_ext/quantization/folding.py::_takes": "layers that take a batch norm, by the code that follows",
    "tvm_ext/tuning/loop_analysis.py::_ARITHMETIC": "expressions of TIR, no operators",
    "tvm_ext/schedules/recipes/reduction.py::_KINDS": "the recipe's anchors, and how each reduces",
}


def sets_of_operators(source: Source) -> Iterator[tuple[str, str]]:
    """("path::name", what is wrong) of each set or table of operator names; rules of a pass and converters, which are
    functions by operator, stand where the functions are."""
    if not source.is_library or room_of(source.module) in ("ops", "ops.scalars"):
        return
    for top in source.tree.body:
        for node in ast.walk(top):
            names = _texts(node)
            known = [name for name in names if name in operator_names()]
            if len(known) >= LEAST_OPERATORS and 2 * len(known) > len(names):
                listed = ", ".join(known[:LEAST_OPERATORS])
                said = source.say(node.lineno, f"{listed}, ...: a set of operators; make it a field of tvm_ext.ops")
                yield f"{source.path}::{_defined(top)}", said


def _texts(node: ast.AST) -> list[str]:
    """Texts of a collection or of keys of a table whose values are no functions, or words of a text."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        return _comprehended(node)
    if isinstance(node, ast.Dict):
        if any(isinstance(inner, ast.Name | ast.Lambda) for value in node.values for inner in ast.walk(value)):
            return []
        items: list[ast.expr | None] = list(node.keys)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        items = list(node.elts)
    else:
        one = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return node.value.split() if one else []
    return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def _comprehended(node: ast.expr) -> list[str]:
    """Texts of a comprehension over literals, such as f"relax.{name}" for name in ("add", "exp"); none of another."""
    try:
        code = compile(ast.Expression(ast.fix_missing_locations(node)), "<comprehension>", "eval")
        return [text for text in eval(code, {"__builtins__": {}}) if isinstance(text, str)]
    except (NameError, TypeError, AttributeError):
        return []


def _defined(node: ast.AST) -> str:
    """What a statement of a module defines."""
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else getattr(node, "name", "")


@functools.cache
def operator_names() -> frozenset[str]:
    """All names of rows."""
    rows = (
        call.args[0].value
        for path in sorted((ROOT / "tvm_ext" / "ops" / "families").glob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
    )
    return frozenset(name for row in rows if isinstance(row, str) for name in row.split())


def test_sets_of_operators_are_fields_of_the_table() -> None:
    places = dict(place for source in read_tree(ROOT) for place in sets_of_operators(source))
    broken = [said for key, said in places.items() if key not in OPERATOR_NAMES]
    assert not broken, f"{len(broken)} places break it:\n" + "\n".join(broken)
    assert set(places) == set(OPERATOR_NAMES), "an exception has outlived what it is about"


@pytest.mark.parametrize("text", [
        '_MOVES = frozenset(["Reshape", "Transpose", "Slice"])',
        'M = frozenset(f"relax.{n}" for n in ("reshape", "permute_dims", "concat"))',
        'def f(name):\n    return name in ("relax.add", "relax.multiply", "relax.divide")',
        '_WORK = {"relax.exp": 7, "relax.log": 10, "relax.tanh": 7}',
        'M = {f"relax.{name}" for name in "add subtract multiply".split()}',
        'CONVOLUTIONS = {f"relax.nn.conv{n}d{t}" for n in (1, 2, 3) for t in ("", "_transpose")}',
    ],
)  # fmt: skip
def test_a_set_of_operators_is_caught(text: str) -> None:
    ((_, said),) = sets_of_operators(Source("tvm_ext/passes/a.py", text, ast.parse(text)))
    assert said.startswith("tvm_ext/passes/a.py:")


@pytest.mark.parametrize("text", [
        'PAIR = ("relax.reshape", "relax.permute_dims")',
        '_RULES = {f"relax.nn.avg_pool{n}d": (_whole,) for n in (1, 2, 3)}',
        '_RULES = {"relax.add": (_sum,), "relax.multiply": (_product,), "relax.divide": (_quotient,)}',
        'LABELS = ("axis", "shape", "add")',
    ],
)  # fmt: skip
def test_rules_by_operator_and_pairs_are_no_sets(text: str) -> None:
    assert not list(sets_of_operators(Source("tvm_ext/passes/a.py", text, ast.parse(text))))
