"""fold-batch-norm: structure, numbers against the module before and float64, and refusals with their reasons."""

from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.ir import IRModule
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, ops, random, rewritten, untouched
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import main_bindings, numpy_of, shape_of
from tvm_ext.core.passes import CompileContext
from tvm_ext.passes.conditions import no_inference_batch_norm
from tvm_ext.passes.simplification.fold_batch_norm import FoldBatchNorm


def parameters(channels: int, **changed: Any) -> list[Any]:
    """gamma, beta, mean, variance as constants."""
    values = {
        "gamma": 1 + 0.3 * random(channels, seed=1),
        "beta": random(channels, seed=2),
        "mean": random(channels, seed=3),
        "variance": 0.1 + random(channels, seed=4) ** 2,
    }
    return [v if isinstance(v, relax.Var) else const(v) for v in {**values, **changed}.values()]


def norm(emit: Any, x: Any, channels: int, axis: int = 1, **changed: Any) -> Any:
    """The result of a batch norm in inference mode."""
    return emit(emit(R.nn.batch_norm(x, *parameters(channels, **changed), axis=axis, training=False))[0])


def conv_norm(weight: np.ndarray, bias: np.ndarray | None = None, **attrs: Any) -> IRModule:
    """conv2d, an optional bias add, batch norm, on an input of 7 x 5."""
    groups, transposed = attrs.get("groups", 1), attrs.pop("transposed", False)
    inputs = weight.shape[0] if transposed else weight.shape[1] * groups
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]

    def body(emit: Any, x: Any) -> Any:
        y = emit((R.nn.conv2d_transpose if transposed else R.nn.conv2d)(x, const(weight), **attrs))
        return norm(emit, y if bias is None else emit(R.add(y, const(bias))), outputs)

    return build(body, (1, inputs, 7, 5))


FOLDED = {
    "convolution": conv_norm(random(6, 3, 3, 3), padding=1),
    "strided": conv_norm(random(6, 3, 3, 3), strides=2, padding=1, dilation=1),
    "depthwise": conv_norm(random(6, 1, 3, 3), groups=6, padding=1),
    "grouped": conv_norm(random(6, 2, 1, 3), groups=2),
    "transposed": conv_norm(random(3, 5, 2, 2), transposed=True, strides=2),
    "transposed and grouped": conv_norm(random(4, 3, 2, 2), transposed=True, groups=2),
    "biased by channel": conv_norm(random(5, 3, 3, 3), random(1, 5, 1, 1, seed=9)),
    "biased by a scalar": conv_norm(random(5, 3, 3, 3), np.float32(0.7)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_scale_goes_into_the_weight(name: str) -> None:
    result = rewritten(FoldBatchNorm(), FOLDED[name])
    assert ops(result.mod) == [ops(FOLDED[name])[0], "add"] and no_inference_batch_norm(result.mod) is None
    shift = main_bindings(result.mod)[1].value.args[1]
    assert shape_of(shift) == (1, shape_of(shift)[1], 1, 1)
    assert len(result.fired) == 1 and "scaled into the weight" in result.fired[0].detail
    assert apply(FoldBatchNorm(), result.mod).fired == ()


def test_constants_are_float64_rounded_once() -> None:
    weight, changed = random(5, 3, 1, 1), {"mean": random(5) * 3, "variance": np.full(5, 1e-3)}

    def body(emit: Any, x: Any) -> Any:
        return norm(emit, emit(R.nn.conv2d(x, const(weight))), 5, **changed)

    conv, add = (b.value for b in main_bindings(apply(FoldBatchNorm(), build(body, (1, 3, 2, 2))).mod))
    gamma, beta, mean, variance = (numpy_of(p).astype("f8") for p in parameters(5, **changed))
    scale = gamma / np.sqrt(variance + 1e-5)
    np.testing.assert_array_equal(numpy_of(conv.args[1]), (weight * scale.reshape(5, 1, 1, 1)).astype("f4"))
    np.testing.assert_array_equal(numpy_of(add.args[1]).reshape(-1), (beta - mean * scale).astype("f4"))


def test_matmul_with_a_constant_weight() -> None:
    def body(emit: Any, x: Any) -> Any:
        return norm(emit, emit(R.add(emit(R.matmul(x, const(random(5, 7)))), const(random(7)))), 7)

    assert ops(rewritten(FoldBatchNorm(), build(body, (3, 5))).mod) == ["matmul", "add"]


def test_zero_variance_uses_epsilon() -> None:
    def body(emit: Any, x: Any) -> Any:
        return norm(emit, emit(R.nn.conv2d(x, const(random(4, 3, 1, 1)))), 4, variance=np.zeros(4))

    mod = build(body, (1, 3, 2, 3))
    (got,) = execute(apply(FoldBatchNorm(), mod).mod, random(1, 3, 2, 3))
    gamma, beta, mean, _ = (numpy_of(p).astype("f8").reshape(1, 4, 1, 1) for p in parameters(4))
    conv = np.einsum("oi,nihw->nohw", random(4, 3, 1, 1)[:, :, 0, 0].astype("f8"), random(1, 3, 2, 3))
    want = (conv - mean) / np.sqrt(1e-5) * gamma + beta
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_dead_reader_of_the_convolution_does_not_count() -> None:
    def body(emit: Any, x: Any) -> Any:
        conv = emit(R.nn.conv2d(x, const(random(4, 3, 1, 1))))
        emit(R.exp(conv))
        return norm(emit, conv, 4)

    assert ops(apply(FoldBatchNorm(), build(body, (1, 3, 2, 2))).mod) == ["conv2d", "exp", "add"]


def test_provenance_of_the_convolution_names_the_batch_norm(context: CompileContext) -> None:
    mod = FOLDED["convolution"]
    conv, call, out = (b.var.name for b in main_bindings(mod))
    context.provenance = Provenance({conv: ["Conv_0"], call: ["Norm_1"], out: ["Norm_1"]})
    result = FoldBatchNorm()(mod, context)
    assert result.fired[0].value == "Norm_1"
    assert context.provenance.of(main_bindings(result.mod)[0].var.name) == ("Conv_0", "Norm_1")


def _read_twice(emit: Any, x: Any) -> Any:
    conv = emit(R.nn.conv2d(x, const(random(4, 3, 1, 1))))
    return emit(R.add(norm(emit, conv, 4), conv))


def _bias_read_twice(emit: Any, x: Any) -> Any:
    biased = emit(R.add(emit(R.nn.conv2d(x, const(random(4, 3, 1, 1)))), const(random(1, 4, 1, 1))))
    return emit(R.add(norm(emit, biased, 4), biased))


def _mean_read(emit: Any, x: Any) -> Any:
    conv = emit(R.nn.conv2d(x, const(random(4, 3, 1, 1))))
    call = emit(R.nn.batch_norm(conv, *parameters(4), axis=1, training=False))
    return emit(call[0]), emit(call[1])


def _training(emit: Any, x: Any) -> Any:
    conv = emit(R.nn.conv2d(x, const(random(4, 3, 1, 1))))
    return emit(emit(R.nn.batch_norm(conv, *parameters(4), axis=1, training=True))[0])


def _computed_weight(emit: Any, x: Any) -> Any:
    weight = emit(R.reshape(emit(R.mean(x, [0, 2, 3])), (1, 3, 1, 1)))
    return norm(emit, emit(R.nn.conv2d(x, weight)), 1)


def _computed_mean(emit: Any, x: Any) -> Any:
    conv = emit(R.nn.conv2d(x, const(random(3, 3, 1, 1))))
    return norm(emit, conv, 3, mean=emit(R.mean(x, [0, 2, 3])))


def _of(**changed: Any) -> Any:
    return lambda emit, x: norm(emit, emit(R.nn.conv2d(x, const(random(4, 3, 1, 1)))), 4, **changed)


REFUSED = {
    "the convolution is read twice": (_read_twice, "(nn.conv2d) is also read elsewhere"),
    "the biased value is read twice": (_bias_read_twice, "(add) is also read elsewhere"),
    "the mean is an output": (_mean_read, "mean or variance is read"),
    "training mode": (_training, "training mode"),
    "computed weight": (_computed_weight, "the weight is not a constant"),
    "computed mean": (_computed_mean, "mean is not a constant"),
    "infinite gamma": (_of(gamma=np.full(4, np.inf)), "not finite"),
    "negative variance": (_of(variance=np.full(4, -1.0)), "not finite"),
    "overflow": (_of(gamma=np.full(4, 3e38), variance=np.full(4, 1e-9)), "scaled weight is not finite"),
    "after something else": (lambda emit, x: norm(emit, emit(R.nn.relu(x)), 3), ""),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses(body: Any, reason: str) -> None:
    """What is no candidate, without a reason."""
    details = untouched(FoldBatchNorm(), build(body, (1, 3, 5, 3)))
    assert [reason in detail for detail in details] == [True] * bool(reason)
