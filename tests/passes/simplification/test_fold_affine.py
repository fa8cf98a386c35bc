"""fold-affine: structure, numbers against the module before, and refusals with their reasons."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm.ir import IRModule
from tvm.relax import op as R

from tests.passes.helpers import apply, build, const, execute, new_context, ops, random, same_output, untouched
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.graph.relax_graph import main_bindings, numpy_of, shape_of
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext
from tvm_ext.passes.simplification.fold_affine import FoldAffine

Emit = Callable[[Any], Any]
SIX, FOUR = random(1, 6, 1, 1, seed=5), random(1, 4, 1, 1, seed=6)


def conv(emit: Emit, x: Any, weight: np.ndarray, **attrs: Any) -> Any:
    """A convolution, transposed if asked for."""
    make = R.nn.conv2d_transpose if attrs.pop("transposed", False) else R.nn.conv2d
    return emit(make(x, const(weight), **attrs))


#: attributes, weight shape, channels of the data; 6 channels out of each
KINDS: dict[str, tuple[dict[str, Any], tuple[int, ...], int]] = {
    "plain": ({}, (6, 4, 3, 3), 4),
    "1x1": ({}, (6, 4, 1, 1), 4),
    "padded": ({"padding": 1}, (6, 4, 3, 3), 4),
    "strided": ({"strides": 2, "padding": (1, 0, 0, 1)}, (6, 4, 3, 2), 4),
    "dilated": ({"dilation": 2}, (6, 4, 2, 2), 4),
    "depthwise": ({"groups": 6, "padding": 2}, (6, 1, 5, 5), 6),
    "depthwise, unpadded": ({"groups": 6}, (6, 1, 3, 3), 6),
    "grouped": ({"groups": 2}, (6, 2, 3, 1), 4),
    "transposed": ({"transposed": True, "strides": 2}, (4, 6, 2, 2), 4),
    "transposed and grouped": ({"transposed": True, "groups": 2}, (4, 3, 2, 2), 4),
}


def of(kind: str, before: Callable[..., Any] | None = None, after: Callable[..., Any] | None = None) -> IRModule:
    """`before(emit, x)`, the convolution of a kind, `after(emit, y)`."""
    attrs, weight, channels = KINDS[kind]

    def body(emit: Emit, x: Any) -> Any:
        data = before(emit, x) if before else x
        y = conv(emit, data, random(*weight), **dict(attrs))
        return after(emit, y) if after else y

    return build(body, (2, channels, 7, 6))


def folded(mod: IRModule, accuracy: str = "default") -> Any:
    """The pass alone, its result checked against the module before."""
    ctx = CompileContext(new_context().machine, CompileOptions(accuracy=accuracy))
    result = FoldAffine()(mod, ctx)
    same_output(mod, result.mod, random(*shape_of(mod["main"].params[0]), seed=1), tolerance=3e-6)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_after(kind: str) -> None:
    result = folded(of(kind, after=lambda emit, y: emit(R.multiply(y, const(SIX)))))
    assert len(ops(result.mod)) == 1 and len(result.fired) == 1
    assert "a factor taken into the weight" in result.fired[0].detail
    assert apply(FoldAffine(), result.mod).fired == ()


@pytest.mark.parametrize("kind", KINDS)
def test_bias_factor_and_shift_after(kind: str) -> None:
    def after(emit: Emit, y: Any) -> Any:
        biased = emit(R.add(y, const(SIX)))
        return emit(R.add(emit(R.multiply(biased, const(np.float32(0.7)))), const(-2 * SIX)))

    result = folded(of(kind, after=after))
    assert len(ops(result.mod)) == 2 and ops(result.mod)[1] == "add"
    shift = numpy_of(main_bindings(result.mod)[1].value.args[1])
    np.testing.assert_allclose(shift, SIX * 0.7 - 2 * SIX, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_before(kind: str) -> None:
    channels = KINDS[kind][2]
    factor = random(1, channels, 1, 1, seed=8)
    result = folded(of(kind, before=lambda emit, x: emit(R.multiply(x, const(factor)))))
    assert len(ops(result.mod)) == 1 and "before the conv" in result.fired[0].detail


@pytest.mark.parametrize("kind", ["plain", "1x1", "dilated", "depthwise, unpadded", "grouped"])
def test_a_shift_before_what_is_not_padded(kind: str) -> None:
    channels = KINDS[kind][2]

    def before(emit: Emit, x: Any) -> Any:
        scaled = emit(R.multiply(x, const(np.float32(1.7))))
        return emit(R.add(scaled, const(random(1, channels, 1, 1, seed=8))))

    result = folded(of(kind, before=before, after=lambda emit, y: emit(R.add(y, const(SIX)))))
    assert ops(result.mod) == ["conv2d", "add"]


@pytest.mark.parametrize("kind", ["padded", "depthwise", "strided"])
def test_before_what_is_padded_only_the_factor_goes(kind: str) -> None:
    channels = KINDS[kind][2]

    def before(emit: Emit, x: Any) -> Any:
        scaled = emit(R.multiply(emit(R.exp(x)), const(np.float32(0.25))))
        return emit(R.add(scaled, const(random(1, channels, 1, 1, seed=8))))

    result = folded(of(kind, before=before))
    assert ops(result.mod) == ["exp", "add", "conv2d"]


def test_around_a_matmul() -> None:
    def body(emit: Emit, x: Any) -> Any:
        data = emit(R.add(emit(R.multiply(x, const(random(5)))), const(random(5, seed=2))))
        y = emit(R.matmul(data, const(random(5, 7))))
        biased = emit(R.add(y, const(random(7, seed=3))))
        return emit(R.add(emit(R.multiply(biased, const(random(7, seed=4)))), const(0.5)))

    result = folded(build(body, (2, 3, 5)))
    assert ops(result.mod) == ["matmul", "add"]


def test_products_are_float64_rounded_once() -> None:
    weight, factor = random(6, 4, 1, 1), random(1, 6, 1, 1, seed=2)
    mod = build(lambda emit, x: emit(R.multiply(conv(emit, x, weight), const(factor))), (1, 4, 2, 2))
    (call,) = (b.value for b in main_bindings(folded(mod).mod))
    want = (weight.astype("f8") * factor.astype("f8").reshape(6, 1, 1, 1)).astype("f4")
    np.testing.assert_array_equal(numpy_of(call.args[1]), want)


def test_provenance_names_all_that_was_folded(context: CompileContext) -> None:
    def body(emit: Emit, x: Any) -> Any:
        biased = emit(R.add(conv(emit, x, random(6, 4, 1, 1)), const(SIX)))
        return emit(R.multiply(biased, const(2.0)))

    mod = build(body, (1, 4, 2, 2))
    names = [b.var.name for b in main_bindings(mod)]
    context.provenance = Provenance(dict(zip(names, (["Conv_0"], ["Add_1"], ["Mul_2"]), strict=True)))
    result = FoldAffine()(mod, context)
    for binding in main_bindings(result.mod):
        assert set(context.provenance.of(binding.var.name)) >= {"Conv_0", "Add_1", "Mul_2"}


def _times(factor: Any) -> Callable[..., Any]:
    return lambda emit, y: emit(R.multiply(y, const(factor)))


def _read_twice(emit: Emit, y: Any) -> Any:
    return emit(R.add(emit(R.multiply(y, const(2.0))), y))


def _shift(emit: Emit, x: Any) -> Any:
    return emit(R.add(emit(R.exp(x)), const(1.0)))


def _shift_after_zero(emit: Emit, x: Any) -> Any:
    return emit(R.add(emit(R.multiply(x, const(0.0))), const(1.0)))


def _two_readers_before(emit: Emit, x: Any) -> Any:
    data = emit(R.multiply(x, const(2.0)))
    return emit(R.add(conv(emit, data, random(4, 4, 1, 1)), data))


#: name -> (module, why it stays; "" for what is no candidate).
REFUSED = {
    "read twice": (of("plain", after=_read_twice), "(nn.conv2d) is also read elsewhere"),
    "overflow": (of("plain", after=_times(3e38)), "the scaled weight is not finite"),
    "shift before padding": (of("padded", before=_shift), "does not reach the padding"),
    "shift before transposed": (of("transposed", before=_shift), "differently at each place"),
    "factor of zero": (of("padded", before=_shift_after_zero), "it is not finite"),
    "data read twice": (build(_two_readers_before, (1, 4, 3, 3)), "(multiply) is also read elsewhere"),
    "a factor for each pixel": (of("plain", after=_times(random(1, 1, 5, 4))), ""),
    "a factor that broadcasts": (of("plain", after=_times(random(3, 1, 1, 1, 1))), ""),
    "a factor that is computed": (of("plain", after=lambda emit, y: emit(R.multiply(y, emit(R.exp(y))))), ""),
    "relu between": (of("plain", after=lambda emit, y: emit(R.multiply(emit(R.nn.relu(y)), const(2.0)))), ""),
    "one bias": (of("plain", after=lambda emit, y: emit(R.add(y, const(SIX)))), ""),
}


def test_a_shift_before_is_kept_for_exact_sums() -> None:
    result = folded(of("1x1", before=_shift), accuracy="exact")
    assert ops(result.mod) == ["exp", "add", "conv2d"] and 'accuracy="exact"' in result.skipped[0].detail
    assert ops(folded(of("1x1", before=_shift)).mod) == ["exp", "conv2d", "add"]


@pytest.mark.parametrize(("mod", "reason"), REFUSED.values(), ids=REFUSED)
def test_refuses(mod: IRModule, reason: str) -> None:
    reasons = untouched(FoldAffine(), mod)
    assert any(reason in detail for detail in reasons) if reason else not reasons


def test_an_infinite_activation_stays_infinite() -> None:
    mod = of("1x1", before=lambda emit, x: emit(R.multiply(x, const(np.float32(0.5)))))
    x = random(2, 4, 7, 6)
    x[0, 0, 0, 0] = np.inf
    (got,) = execute(apply(FoldAffine(), mod).mod, x)
    assert not np.isfinite(got[0, :, 0, 0]).any() and np.isfinite(got[1]).all()
