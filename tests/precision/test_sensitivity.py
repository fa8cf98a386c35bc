"""Sensitivity: what is measured, which layers are kept for a bound, and how a compile uses and reports it."""

from typing import Any

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.onnx_graphs import model, node, random, value
from tvm_ext.core.errors import InputError, OptionError, UnsupportedError
from tvm_ext.precision import sensitivity as deciding


def layers(count: int = 4, spoiled: int = 2) -> onnx.ModelProto:
    """Products in a row; what one of them reads is near 30, and cancels in its sum: rounding spoils that."""
    nodes, constants = [], {"large": np.float32([30.0])}
    for i in range(count):
        weight = random(8, 8, seed=i, scale=0.35)
        constants[f"w{i}"] = weight - weight.mean(axis=0) if i == spoiled else weight
        shifted = f"s{i}" if i == spoiled else f"v{i}"
        nodes += (
            [node("Mul", f"v{i} v{i}", f"q{i}", f"square{i}"), node("Add", f"q{i} large", shifted, f"add{i}")]
            if i == spoiled
            else []
        )
        nodes += [node("MatMul", f"{shifted} w{i}", f"a{i}", f"fc{i}"), node("Tanh", f"a{i}", f"v{i + 1}", f"tanh{i}")]
    return model(nodes, [value("v0", (5, 8))], [value(f"v{count}", (5, 8))], constants)


def test_the_most_sensitive_layer_is_found() -> None:
    result = tvm_ext.sensitivity(layers())
    assert next(iter(result.alone)) == "fc2" and list(result.alone.values()) == sorted(
        result.alone.values(), reverse=True
    )
    assert set(result.alone) == {"fc0", "fc1", "fc2", "fc3"} and result.kept == () and result.seeds == (0, 1)
    assert result.together == result.all_lowered > 0 and result.alone["fc2"] > 3 * result.alone["fc0"] > 0
    text = str(result)
    assert "fc2" in text and "all in bf16" in text and "random inputs of seeds 0, 1" in text


def test_it_is_the_same_each_time() -> None:
    assert tvm_ext.sensitivity(layers()) == tvm_ext.sensitivity(layers())


def test_the_fewest_layers_are_kept() -> None:
    everything = tvm_ext.sensitivity(layers())
    bound = everything.all_lowered / 2
    result = tvm_ext.sensitivity(layers(), max_error=bound)
    assert result.kept == ("fc2",) and result.together <= bound < result.all_lowered == everything.all_lowered
    assert "alone it costs" in result.reasons["fc2"]
    assert tvm_ext.sensitivity(layers(), max_error=1.0).kept == ()
    assert result.as_dict()["kept"] == result.reasons


def test_a_bound_that_leaves_nothing_says_the_figures() -> None:
    with pytest.raises(OptionError, match=r"leaves nothing to bf16: all 4 layers in bf16 cost .* the least sensitive"):
        tvm_ext.sensitivity(layers(), max_error=1e-9)


def test_given_inputs() -> None:
    sample = {"v0": random(5, 8, seed=9)}
    one, several = (
        tvm_ext.sensitivity(layers(), sample),
        tvm_ext.sensitivity(layers(), [sample, {"v0": sample["v0"] * 3}]),
    )
    assert one.seeds == () and all(several.alone[name] >= one.alone[name] for name in one.alone)
    with pytest.raises(InputError, match="onnxruntime cannot run"):
        tvm_ext.sensitivity(layers(), {"v0": random(5, 9)})


def test_layers_kept_by_hand_are_not_measured() -> None:
    assert "fc2" not in tvm_ext.sensitivity(layers(), keep_float32=["fc2"]).alone


def test_progress_is_told() -> None:
    events: list[Any] = []
    tvm_ext.sensitivity(layers(), on_event=events.append)
    assert [event["done"] for event in events] == list(range(1, 13)) and events[0]["of"] == 20


def test_float16_costs_an_eighth_of_bfloat16() -> None:
    """It has three more bits."""
    bf16, fp16 = (tvm_ext.sensitivity(layers(), precision=precision) for precision in ("bf16", "fp16"))
    assert set(fp16.alone) == set(bf16.alone) and fp16.precision == "fp16" and "all in fp16" in str(fp16)
    assert 4 < bf16.all_lowered / fp16.all_lowered < 16
    with pytest.raises(OptionError, match="rounds nothing"):
        tvm_ext.sensitivity(layers(), precision="float32")


def test_inputs_and_seeds_that_do_not_fit_are_refused() -> None:
    for inputs in (3, "x", [3], ["x"]):
        with pytest.raises(InputError, match="pass a dict"):
            tvm_ext.sensitivity(layers(), inputs)  # type: ignore[arg-type]
    for seeds in (0, None, (), "01", (-1,)):
        with pytest.raises(OptionError, match="seed"):
            tvm_ext.sensitivity(layers(), seeds=seeds)  # type: ignore[arg-type]


def test_a_model_without_products() -> None:
    proto = model([node("Relu", "x", "y", "relu")], [value("x", (3, 7))], [value("y", (3, 7))])
    result = tvm_ext.sensitivity(proto, max_error=0.1)
    assert result.alone == {} and result.kept == () and result.together == 0.0


def test_a_model_that_onnxruntime_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fails)
    with pytest.raises(UnsupportedError, match="no kernel") as error:
        tvm_ext.sensitivity(layers())
    assert "keep_float32" in error.value.fix


# ------------------------------------------------------------ in a compile
def test_a_compile_keeps_what_was_found_and_measures_once(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("TVM_EXT_CACHE", str(tmp_path))
    monkeypatch.setattr(deciding, "_known", {})
    bound = tvm_ext.sensitivity(layers()).all_lowered / 2
    compiled = tvm_ext.compile(layers(), precision="bf16", max_error=bound, threads=1)
    plan = compiled.report["precision"]
    assert list(plan["kept"]) == ["fc2"] and "named by the sensitivity run" in plan["kept"]["fc2"]
    assert plan["measured"] <= bound == plan["max_error"] == plan["tolerance"]
    assert all(row["error"] is not None and "%" in row["why"] for row in plan["layers"])

    monkeypatch.setattr(deciding, "sensitivity_of", None)  # whoever measures again fails
    monkeypatch.setattr(deciding, "_known", {})
    again = tvm_ext.compile(layers(), precision="bf16", max_error=bound, threads=1)
    assert again.report["precision"] == plan, "the cache has the decision"


def test_a_symbolic_batch_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = layers()
    for each in (*proto.graph.input, *proto.graph.output):
        each.type.tensor_type.shape.dim[0].dim_param = "N"
    runs = []
    real = deciding.sensitivity_of
    monkeypatch.setattr(deciding, "_known", {})
    monkeypatch.setattr(deciding, "sensitivity_of", lambda *values: runs.append(values) or real(*values))
    compiled = tvm_ext.compile(
        proto,
        precision="bf16",
        max_error=0.05,
        shapes={"v0": ("N", 8)},
        specialize={"N": (1, 4)},
        cache=False,
        threads=1,
    )
    assert len(runs) == 1 and dict(runs[0][1].shapes) == {"v0": (1, 8)}
    assert tvm_ext.verify(compiled, proto).ok
