"""Resize and Upsample along any axes, in every mode of ONNX: one axis after the other, each by a table of taps.

    y[.., o, ..] = sum over k of weight[o, k] * x[.., index[o, k], ..]

The common cases (nearest and linear, images, whole ratios) go to TVM's own kernel. Of a model that is imported at
several sizes, tables are computed by kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ....core.graph.relax_graph import dtype_of
from ...checks.refusal import Refusal
from ...control_flow.subgraph import Graph
from ..base import Attributes, constant, converts, emit, graph_of, kernel, known, static_shape, stock, text
from .taps import Axis, Mode, Tables

#: Modes of coordinates that TVM's kernel has right; and those with roundings of nearest elements at whole ratios:
#: others round a coordinate that may be an integer, or the middle of two, but for an error of float32.
_PLAIN = ("half_pixel", "asymmetric", "align_corners")
_PLAIN_NEAREST = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
#: Taps up to which a sum is written out.
_WRITTEN_OUT = 4


@converts("Resize")
def resize(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Resize(x, roi, scales, sizes); before opset 11 Resize(x, scales)."""
    x, mode = inputs[0], Mode.of(attributes, opset)
    shape = static_shape(x, "the input of Resize")
    operands = {"roi": inputs[1], "scales": inputs[2], "sizes": inputs[3]} if opset > 10 else {"scales": inputs[1]}
    values = {name: known(value, name) for name, value in operands.items() if value is not None}
    stated = {name: value for name, value in values.items() if value.size}
    if not {"scales", "sizes"} & set(stated):
        raise Refusal("neither scales nor sizes")
    graph, axes = graph_of(attributes), _axes(shape, stated, attributes)
    changed = _changed(axes, graph)
    common = bool(changed) and _is_common(axes, shape, mode) and opset > 10 and dtype_of(x) != "float64"
    if changed and not graph.most("tables of a resize", int(not common)):
        there = [value if name in stated else None for name, value in operands.items()]  # what is empty is not stated
        return stock("Resize", [x, *there], attributes, opset)
    return _resized(x, changed, mode, graph)


@converts("Upsample")
def upsample(inputs: Any, attributes: Attributes, opset: int) -> Any:
    """Upsample(x, scales), the Resize of old, in its coordinates."""
    x, graph = inputs[0], graph_of(attributes)
    scales = attributes["scales"] if "scales" in attributes else known(inputs[1], "scales")
    shape = static_shape(x, "the input of Upsample")
    mode = Mode.of({"mode": text(attributes, "mode", "nearest")}, 10)
    return _resized(x, _changed(_axes(shape, {"scales": np.asarray(scales)}, {}), graph), mode, graph)


def _axes(shape: Sequence[int], stated: Mapping[str, np.ndarray], attributes: Attributes) -> list[Axis]:
    rank = len(shape)
    numbers = [int(a) % rank for a in attributes.get("axes", range(rank))]
    sizes = [shape[a] for a in numbers]
    ratios: list[tuple[int, ...]] = [()] * len(sizes)
    if "sizes" in stated:
        wanted, ratios = _from_sizes(sizes, [int(s) for s in stated["sizes"]], attributes)
        scales = [above / below for above, below in ratios]
    else:
        scales = [float(s) for s in stated["scales"]]
        wanted = [math.floor(n * s) for n, s in zip(sizes, scales, strict=True)]
    roi = [float(r) for r in stated.get("roi", ())] or [0.0] * len(numbers) + [1.0] * len(numbers)
    if len(roi) != 2 * len(numbers):
        raise Refusal(f"{len(roi)} numbers in roi for {len(numbers)} axes; 2 for each are needed")
    crops = zip(roi[: len(numbers)], roi[len(numbers) :], strict=True)
    return [Axis(*fields) for fields in zip(numbers, sizes, wanted, scales, crops, ratios, strict=True)]


def _changed(axes: Sequence[Axis], graph: Graph) -> list[Axis]:
    """Without those along which every element stays, at all sizes: there a neighbour that is infinite, times 0, would
    be NaN."""
    changes = [a.wanted != a.size or a.scale != 1 or a.roi != (0.0, 1.0) for a in axes]
    return [a for a, own in zip(axes, changes, strict=True) if graph.most(f"axis {a.number} is resized", int(own))]


def _from_sizes(sizes: list[int], wanted: list[int], attributes: Attributes) -> tuple[list[int], list[tuple[int, ...]]]:
    """Sizes of the result, and the ratio of each that is its scale."""
    ratios: list[tuple[int, ...]] = list(zip(wanted, sizes, strict=True))
    policy = text(attributes, "keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return wanted, ratios
    ratio = (min if policy == "not_larger" else max)(ratios, key=lambda pair: pair[0] / pair[1])
    return [math.floor(ratio[0] / ratio[1] * n + 0.5) for n in sizes], [ratio] * len(sizes)


def _is_common(axes: Sequence[Axis], shape: Sequence[int], mode: Mode) -> bool:
    """Whether TVM's kernel for images is right: not of float64, which it computes in float32, nor of aligned corners of
    one element: it divides by the wanted size less one."""
    if mode.coordinates == "align_corners" and any(a.wanted == 1 for a in axes[2:]):
        return False
    if len(shape) != 4 or [a.number for a in axes] != [0, 1, 2, 3] or any(a.wanted != a.size for a in axes[:2]):
        return False
    if mode.kind == "nearest" and (
        any(a.wanted % a.size for a in axes) or (mode.coordinates, mode.rounding) not in _PLAIN_NEAREST
    ):
        return False  # coordinates may lie in the middle of two elements, where rounding decides
    whole = all(math.isclose(a.scale * a.size, a.wanted, rel_tol=1e-7) for a in axes)
    return whole and mode.kind in ("nearest", "linear") and mode.coordinates in _PLAIN and not mode.antialias


def _resized(x: Any, axes: Sequence[Axis], mode: Mode, graph: Graph) -> Any:
    dtype = dtype_of(x)
    if mode.kind != "nearest" and "float" not in dtype:
        raise Refusal(f"{mode.kind} interpolation of {dtype}")
    wide = x if mode.kind == "nearest" or dtype in ("float32", "float64") else relax.op.astype(x, "float32")
    result = emit(wide) if wide is not x else x
    for axis in axes:
        result = emit(_along(result, axis, mode, graph))
    if mode.coordinates == "tf_crop_and_resize":
        result = _extrapolated(result, axes, mode, graph)
    return result if dtype_of(result) == dtype else relax.op.astype(result, dtype)


def _along(x: Any, axis: Axis, mode: Mode, graph: Graph) -> Any:
    """The input, resized along one axis."""
    if mode.kind == "nearest":
        return relax.op.take(x, _table(Tables(axis, mode), "row", "int64", graph), axis.number, mode="wrap")
    taps = graph.most(f"taps of axis {axis.number}", mode.taps(axis.scale))
    tables, sized, dtype = Tables(axis, mode, taps), graph.sized, dtype_of(x)
    index = _table(tables, "index", "int32", graph)
    if sized:
        weight = kernel(lambda n: tables.weights_of(n, dtype), constant(axis.numbers), name="resize_weights")
    else:
        weight = constant(tables.weights().astype(dtype))

    def compute(data: te.Tensor, rows: te.Tensor, weights: te.Tensor) -> te.Tensor:
        shape = [tirx.IntImm("int64", axis.wanted) if i == axis.number else d for i, d in enumerate(data.shape)]

        def term(at: Sequence[Any], k: Any) -> Any:
            o = at[axis.number]
            source = [rows[o, k] if i == axis.number else p for i, p in enumerate(at)]
            product = data(*source) * weights[o, k]
            return tirx.Select(weights[o, k] != 0, product, tirx.const(0, dtype)) if sized else product

        if taps <= _WRITTEN_OUT:
            return te.compute(shape, lambda *i: sum((term(i, k) for k in range(1, taps)), term(i, 0)), "out")
        k = te.reduce_axis((0, taps), name="k")
        return te.compute(shape, lambda *i: te.sum(term(i, k), axis=k), name="out")

    return kernel(compute, x, index, weight, name="resize")


def _table(tables: Tables, table: str, dtype: str, graph: Graph) -> Any:
    """A table as a constant; of a model that is imported at several sizes, as the result of a kernel."""
    rule = getattr(tables, table)
    if not graph.sized:
        return constant(tables.array(rule).astype(dtype))
    return emit(kernel(lambda n: tables.tensor(n, rule, dtype), constant(tables.axis.numbers), name=f"resize_{table}"))


def _extrapolated(x: Any, axes: Sequence[Axis], mode: Mode, graph: Graph) -> Any:
    """The value where any coordinate lies outside."""
    dtype = dtype_of(x)
    tables = [Tables(axis, mode) for axis in axes]
    if not graph.sized and not any(table.array(table.beyond).any() for table in tables):
        return x
    masks = [_table(table, "beyond", "bool", graph) for table in tables]

    def compute(data: te.Tensor, *outside: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            beyond = tirx.any(*(mask[i[axis.number]] for axis, mask in zip(axes, outside, strict=True)))
            return tirx.Select(beyond, tirx.const(mode.extrapolation, dtype), data(*i))

        return te.compute(data.shape, element, name="out")

    return kernel(compute, x, *masks, name="extrapolate") if masks else x
