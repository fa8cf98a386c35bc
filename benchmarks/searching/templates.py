"""Three templates for `tuning.py`: what is computed stands above its schedule."""

from typing import Any

import tvm_ext
from tvm import te, tirx


def dense(n: int, m: int, k: int) -> list[te.Tensor]:
    """(n, k) @ (k, m)."""
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return [a, b, c]


def batch_matmul(batch: int, n: int, m: int, k: int) -> list[te.Tensor]:
    """(batch, n, k) @ (batch, k, m)."""
    a, b = te.placeholder((batch, n, k), name="a"), te.placeholder((batch, k, m), name="b")
    r, shape = te.reduce_axis((0, k), name="r"), (batch, n, m)
    c = te.compute(shape, lambda z, i, j: te.sum(a[z, i, r] * b[z, r, j], axis=r), name="c")
    return [a, b, c]


def conv2d(channels: int, size: int, outputs: int) -> list[te.Tensor]:
    """3x3, stride 1, padded to the same size; image (C, H, W), weights (C, 3, 3, O)."""
    x = te.placeholder((channels, size, size), name="x")
    w = te.placeholder((channels, 3, 3, outputs), name="w")

    def inside(c: Any, i: Any, j: Any) -> Any:
        within = tirx.all(i >= 1, i < size + 1, j >= 1, j < size + 1)
        return tirx.if_then_else(within, x[c, i - 1, j - 1], tirx.const(0, "float32"))

    padded = te.compute((channels, size + 2, size + 2), inside, name="pad")
    sizes = {"rc": channels, "ry": 3, "rx": 3}
    rc, ry, rx = axes = [te.reduce_axis((0, n), name=name) for name, n in sizes.items()]

    def point(o: Any, i: Any, j: Any) -> Any:
        return te.sum(padded[rc, i + ry, j + rx] * w[rc, ry, rx, o], axis=axes)

    return [x, w, te.compute((outputs, size, size), point, name="c")]


def _tile(
    sch: Any, cfg: Any, batch: list[Any], row: Any, column: Any, reduction: list[Any], lanes: int
) -> None:
    """Tiles of rows by columns in registers over the whole reduction; columns are the vectors."""
    vectors = (lanes, 2 * lanes)
    cfg.define_split("rows", row, num_outputs=3, filter=lambda split: split.size[-1] <= 14)
    cfg.define_split("columns", column, num_outputs=3, filter=lambda s: s.size[-1] in vectors)
    cfg.define_knob("unroll", [0, 1])
    ro, rm, ri = cfg["rows"].apply(sch, row)
    co, cm, ci = cfg["columns"].apply(sch, column)
    sch.reorder(*batch, co, ro, cm, rm, *reduction, ri, ci)
    outer = sch.fuse(*batch, co, ro)
    sch.parallel(outer)
    block = sch.get_sblock("c")
    kept = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(kept, rm, preserve_unit_loops=True)
    sch.unroll(ri)
    sch.vectorize(ci)
    if cfg["unroll"].val:
        sch.unroll(reduction[-1])
    sch.vectorize(sch.get_loops(kept)[-1])
    sch.decompose_reduction(block, reduction[0])


@tvm_ext.template(dense)
def tiled_dense(sch: Any, cfg: Any) -> None:
    row, column, r = sch.get_loops(sch.get_sblock("c"))
    _tile(sch, cfg, [], row, column, [r], 8)


@tvm_ext.template(batch_matmul)
def tiled_batch_matmul(sch: Any, cfg: Any) -> None:
    z, row, column, r = sch.get_loops(sch.get_sblock("c"))
    _tile(sch, cfg, [z], row, column, [r], 16)


@tvm_ext.template(conv2d)
def tiled_conv2d(sch: Any, cfg: Any) -> None:
    o, i, j, rc, ry, rx = sch.get_loops(sch.get_sblock("c"))
    _tile(sch, cfg, [i], j, o, [rc, ry, rx], 16)


TASKS = {
    "conv2d 64x56x56": lambda: tiled_conv2d.task(64, 56, 64),
    "dense 512x1000": lambda: tiled_dense.task(512, 1000, 512),
    "batch_matmul 12x64x64": lambda: tiled_batch_matmul.task(12, 64, 64, 64),
}
