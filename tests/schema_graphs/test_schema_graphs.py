"""Graphs drawn from ONNX's schemas: what is drawn, what the judge sees, those that once failed, and a few more."""

import pathlib
import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest

from tests.onnx_backend import contenders
from tvm_ext.core.errors import BuildError, UnsupportedError

from . import graphs
from .graphs import PROBE, schemas, seeded
from .judge import outcome
from .run import FINE, judged
from .values import ONNX_TYPES

#: "seed operator", or "seed" of a graph whose operator it draws: what failed once and was mended.
LEDGER = pathlib.Path(__file__).with_name("ledger.txt")
#: Text, and values that this library has no form for.
_NOT_DRAWN = {"sparse_value", "value_string", "value_strings", "multi_class", "mode", "num_outputs"}


def probe_of(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == PROBE)


@pytest.fixture(scope="module")
def draws() -> list[tuple[str, onnx.ModelProto, list[np.ndarray]]]:
    """Thirty draws of each operator."""
    return [(name, *graphs._draw(random.Random(f"{seed} {name}"), name)) for name in schemas() for seed in range(30)]


def test_every_attribute_is_drawn(draws: Any) -> None:
    drawn: dict[str, set[str]] = {name: set() for name in schemas()}
    for name, model, _ in draws:
        drawn[name] |= {a.name for a in probe_of(model).attribute}
    missing = {
        (name, a) for name, versions in schemas().items() for v in versions for a in v.attributes
        if a not in drawn[name] and a not in _NOT_DRAWN and "string" not in a and not name.startswith("microsoft.")
    }  # fmt: skip
    assert not missing


def test_every_dtype_shape_and_place_is_drawn(draws: Any) -> None:
    feeds = [x for _, _, arrays in draws for x in arrays]
    takers = Counter(
        t for versions in schemas().values() for v in versions for formal in v.inputs for t in formal.types
    )
    dtypes = {number for name, number in ONNX_TYPES.items() if takers[name] >= 10}
    assert {onnx.helper.np_dtype_to_tensor_dtype(x.dtype) for x in feeds} >= dtypes and len(dtypes) > 18
    assert {x.ndim for x in feeds} >= set(range(6)) and {0, 1, 7, 13, 17} <= {d for x in feeds for d in x.shape}
    floats = np.concatenate([x.ravel() for x in feeds if x.dtype == np.float32])
    assert np.isnan(floats).any() and np.isinf(floats).any() and (np.signbit(floats) & (floats == 0)).any()
    assert ((floats != 0) & (np.abs(floats) < 1e-38)).any()
    assert {np.iinfo(np.int64).min, np.iinfo(np.int64).max} <= set(
        np.concatenate([x.ravel() for x in feeds if x.dtype == np.int64])
    )
    names = Counter(node.name.rstrip("0123456789") for _, model, _ in draws for node in model.graph.node)
    assert {"add_before", "not_before", "transpose_after", "reducesum_after", "mul_after"} <= set(names)
    assert any(model.graph.initializer for _, model, _ in draws)
    assert {o.version for _, model, _ in draws for o in model.opset_import if not o.domain} >= set(range(7, 25))


def test_a_seed_always_gives_the_same_case() -> None:
    one, other = seeded(11), seeded(11)
    assert one.model == other.model
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one.inputs, other.inputs, strict=True))


def test_what_the_judge_says(monkeypatch: pytest.MonkeyPatch) -> None:
    case = seeded(0, "Relu")
    right = contenders.onnxruntime(case, optimized=False)
    answers: list[tuple[Any, str]] = [
        (right, "right"), ([right[0] + 1, *right[1:]], "wrong"), (UnsupportedError("no"), "nameless"),
        (UnsupportedError(f"node {PROBE!r}"), "refused"), (BuildError("kernel"), "foreign"), (KeyError("x"), "foreign"),
    ]  # fmt: skip
    for answer, kind in answers:

        def ours(case: Any, answer: Any = answer) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(contenders, "ours", ours)
        assert outcome(case).kind == kind


def bad(draws: Iterable[tuple[int, str]]) -> list[str]:
    """What is not fine, in words."""
    return [f"{seed} {name} {outcome}" for seed, name, outcome in judged(draws) if outcome.kind not in FINE]


def test_what_failed_once_does_not_fail_again() -> None:
    rows = [line.split() for line in LEDGER.read_text().splitlines()]
    assert bad((int(seed), "".join(operator)) for seed, *operator in rows) == []


def test_some_graphs() -> None:
    assert bad((seed, "") for seed in range(25)) == []
