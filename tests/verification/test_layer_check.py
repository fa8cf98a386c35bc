"""Layer by layer: right programs agree, a wrong kernel is the first bad one, what has no counterpart is listed."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tests.property.cases import plain
from tests.verification.bisect import models
from tests.verification.bisect.planted import BUGS
from tvm_ext.core.errors import ArtifactError, InputError, OptionError
from tvm_ext.frontend import zoo
from tvm_ext.runtime.model import CompiledModel
from tvm_ext.verification.kernel_calls import KernelCalls
from tvm_ext.verification.layers import LayerReport


def compiled(proto: onnx.ModelProto, **options: Any) -> CompiledModel:
    return tvm_ext.compile(proto, **{"cache": False, "threads": 1, "records": None, **options})


def check(proto: onnx.ModelProto, **options: Any) -> LayerReport:
    return tvm_ext.verify(compiled(proto, **options), proto, layers=True)


def test_a_right_program_agrees_everywhere() -> None:
    report = check(models.convolutions())
    assert report.ok and not report.not_compared and report.first_bad is None, str(report)
    kernels = [row for row in report.rows if row.recipe != "layout_transform"]
    assert [row.value for row in kernels] == ["r"] and kernels[0].layout.startswith("NCHW")
    assert all(row.alone is not None and row.alone.ratio < 0.5 and row.tolerance > 0 for row in kernels)
    moved = [row for row in report.rows if row.recipe == "layout_transform"]
    assert {row.value for row in moved} <= {"x", "r"} and all(row.tolerance == 0.0 for row in moved)
    assert f"every kernel agrees; {len(report.rows)} of {len(report.rows)} values" in str(report)
    plain = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert plain["ok"] and plain["first_bad"] is None and len(plain["rows"]) == len(report.rows)


def four_layers() -> onnx.ModelProto:
    """Dense layers of different widths, so that each has weights and a kernel of its own."""
    names = ["x", "a", "b", "c", "y"]
    nodes = [node("MatMul", f"{names[i]} w{i}", names[i + 1], f"fc{i}") for i in range(4)]
    weights = {f"w{i}": random(11 + i, 12 + i, scale=0.5) for i in range(4)}
    return model(nodes, [value("x", (3, 11))], [value("y", (3, 15))], weights)


def test_the_first_bad_layer_is_the_wrong_one_and_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_ext.core.layout import PackedWeight

    right = PackedWeight.pack
    monkeypatch.setattr(PackedWeight, "pack", lambda self, a: right(self, a * 2 if a.shape == (12, 13) else a))
    report = check(four_layers())
    assert report.first_bad is not None and report.first_bad.nodes == ("fc1",) and len(report.bad) == 1, str(report)
    later = report.rows[2]
    assert (
        later.alone is not None and later.alone.ok and later.total is not None and later.total > 1e3 * later.tolerance
    )
    text = str(report)
    assert "first bad: call 1" in text and "\n   1  first bad  " in text
    assert "beyond the tolerance" in text and "NOT OK" in text


@pytest.mark.parametrize("name", ["mean", "softmax", "packing"])
def test_planted_bugs_are_found_where_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[name].plant(monkeypatch)
    first = check(BUGS[name].model()).first_bad
    assert first is not None and first.recipe == BUGS[name].culprit


def test_a_nan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from tvm_ext.core.layout import PackedWeight

    right = PackedWeight.pack

    def pack(self: PackedWeight, array: np.ndarray) -> np.ndarray:
        packed = right(self, array)
        packed.reshape(-1)[0] = np.nan
        return packed

    monkeypatch.setattr(PackedWeight, "pack", pack)
    report = check(four_layers())
    assert report.first_bad is not None and report.first_bad.order == 0 and "NaN on one side" in report.verdict


def test_what_no_value_shows_is_listed_and_is_part_of_the_next_row() -> None:
    report = check(models.conv_bn(), fusion="none")
    hidden = [row for row in report.not_compared if "moved a factor" in row.reason]
    assert hidden and report.ok, str(report)
    behind = [row.behind for row in report.rows if row.behind]
    assert behind and hidden[0].order in behind[0]


def test_an_outer_part_of_a_wrong_hidden_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS["shift"].plant(monkeypatch)
    report = check(models.conv_bn())
    assert report.first_bad is not None and {"bn", "conv"} <= set(report.first_bad.nodes)


def test_a_batch_of_any_size_is_looked_at_in_one_of_its_programs() -> None:
    proto = model([node("MatMul", "x w", "y")], [value("x", ("n", 7))], [value("y", ("n", 5))], {"w": random(7, 5)})
    program = compiled(proto, shapes={"x": ("n", 7)}, specialize={"n": (2, 4)})
    report = tvm_ext.verify(program, proto, layers=True)
    assert report.ok and report.batch == 2 and len(report.rows) == 1
    assert tvm_ext.verify(program, proto, {"x": random(4, 7)}, layers=True).batch == 4
    with pytest.raises(InputError, match=r"3 rows.*\n.*2, 4"):
        tvm_ext.verify(program, proto, {"x": random(3, 7)}, layers=True)


def test_a_loaded_artifact_is_compared_too(tmp_path: Any) -> None:
    proto = models.softmax()
    compiled(proto).export(tmp_path / "m.so")
    assert tvm_ext.verify(tvm_ext.load(tmp_path / "m.so"), proto, layers=True).ok


def test_a_model_alone_is_compiled() -> None:
    report = tvm_ext.verify(models.softmax(), layers=True)
    assert report.ok and report.seed == 0 and tvm_ext.verify(models.softmax()).ok


def test_refusals() -> None:
    proto = models.softmax()
    program = compiled(proto)
    row = program.report["kernels"][0]
    wrong: dict[str, Any]
    for wrong in ({"call_sites": None}, {"name": 5}, {"sites": [{}]}):
        damaged: Any = SimpleNamespace(report={"kernels": [{**row, **wrong}]})
        with pytest.raises(ArtifactError, match="'kernels'"):
            KernelCalls(damaged)
    with pytest.raises(OptionError, match="layers=True"):
        tvm_ext.verify(program, layers=True)
    with pytest.raises(OptionError, match="reference"):
        tvm_ext.verify(program, proto, layers=True, reference={})  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="leave sizes out"):
        tvm_ext.verify(program, proto, layers=True, sizes=[])
    with pytest.raises(OptionError, match="layers=1"):
        tvm_ext.verify(program, proto, layers=1)  # type: ignore[arg-type]
    for kernel in program.report["kernels"]:
        del kernel["sites"]
    with pytest.raises(OptionError, match="compile the model again"):
        tvm_ext.verify(program, proto, layers=True)


@pytest.mark.long
def test_random_models_are_never_judged_wrongly() -> None:
    for case in plain(0, 6, most=14):
        report = check(onnx.ModelProto.FromString(case.model))
        assert report.ok, f"{case.name}\n{report}"


@pytest.mark.long
def test_an_encoder_layer_is_compared_in_every_kernel() -> None:
    report = check(zoo.bert(sequence=16, hidden=48, heads=4, intermediate=96, mask=True))
    assert report.ok and len(report.not_compared) <= 1, str(report)
