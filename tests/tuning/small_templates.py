"""Templates for the tests: matmul, conv2d and batch_matmul, with what numpy computes for them."""

import numpy as np
from tvm import te, tirx

import tvm_ext


def matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def batch_matmul(batch: int, n: int, m: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((batch, n, k), name="A"), te.placeholder((batch, k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((batch, n, m), lambda z, i, j: te.sum(a[z, i, r] * b[z, r, j], axis=r), name="C")]


def conv2d(channels: int, size: int, outputs: int, taps: int) -> list[te.Tensor]:
    """Stride 1, padded to the same size; NCHW with a batch of 1."""
    pad = taps // 2
    x = te.placeholder((channels, size, size), name="X")
    w = te.placeholder((outputs, channels, taps, taps), name="W")

    def padded(c, i, j):
        inside = tirx.all(i >= pad, i < size + pad, j >= pad, j < size + pad)
        return tirx.if_then_else(inside, x[c, i - pad, j - pad], tirx.const(0, "float32"))

    p = te.compute((channels, size + 2 * pad, size + 2 * pad), padded, name="P")
    rc, ry, rx = (te.reduce_axis((0, n), name=s) for n, s in ((channels, "rc"), (taps, "ry"), (taps, "rx")))
    y = te.compute(
        (outputs, size, size),
        lambda o, i, j: te.sum(p[rc, i + ry, j + rx] * w[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="Y",
    )
    return [x, w, y]


@tvm_ext.template(matmul)
def tiled(sch, cfg):
    y, x, r = sch.get_loops(sch.get_sblock("C"))
    yo, yi = cfg.define_split("tile_y", y, policy="verbose")
    xo, xi = cfg.define_split("tile_x", x, policy="power2", max_factor=16)
    cfg.define_reorder("order", [yo, xo, r, yi, xi], "candidate", candidate=[[yo, xo, r, yi, xi], [xo, yo, yi, r, xi]])
    cfg.define_annotate("ann", [yi, xi], "try_unroll_vec")
    yo, yi = cfg["tile_y"].apply(sch, y)
    xo, xi = cfg["tile_x"].apply(sch, x)
    cfg["order"].apply(sch, [yo, xo, r, yi, xi])
    cfg["ann"].apply(sch, [yi, xi], max_unroll=8, vec_size=[2, 4, 8, 16])


@tvm_ext.template(batch_matmul)
def batched(sch, cfg):
    block = sch.get_sblock("C")
    b, y, x, r = sch.get_loops(block)
    cfg.define_split("tile_y", y, num_outputs=2, filter=lambda entity: entity.size[-1] <= 4)
    cfg.define_split("tile_x", x, num_outputs=3, filter=lambda entity: entity.size[-1] in (4, 8))
    cfg.define_knob("parallel", ["batch", "rows"])
    cfg.multi_filter(lambda entity: entity["tile_y"].size[-1] * entity["tile_x"].size[-1] <= 16)
    yo, yi = cfg["tile_y"].apply(sch, y)
    xo, xm, xi = cfg["tile_x"].apply(sch, x)
    sch.reorder(b, yo, xo, xm, r, yi, xi)
    sch.parallel(b if cfg["parallel"].val == "batch" else sch.fuse(b, yo))
    sch.vectorize(xi)
    sch.decompose_reduction(block, r)


@tvm_ext.template(conv2d, name="conv2d_direct", version=3)
def direct(sch, cfg):
    block, pad = sch.get_sblock("Y"), sch.get_sblock("P")
    o, i, j, rc, ry, rx = sch.get_loops(block)
    cfg.define_split("tile_o", o, num_outputs=2)
    cfg.define_split("tile_j", j, policy="power2", num_outputs=2, filter=lambda entity: entity.size[-1] >= 4)
    cfg.define_knob("pad", ["inline", "apart", "rows"])
    cfg.define_annotate("taps", [ry, rx], "try_unroll")
    oo, oi = cfg["tile_o"].apply(sch, o)
    jo, ji = cfg["tile_j"].apply(sch, j)
    sch.reorder(oo, i, jo, rc, ry, rx, oi, ji)
    cfg["taps"].apply(sch, [ry, rx])
    sch.vectorize(ji)
    if cfg["pad"].val == "inline":
        sch.compute_inline(pad)
    elif cfg["pad"].val == "rows":
        sch.compute_at(pad, i, preserve_unit_loops=True)


def convolve(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Float64 convolution of stride 1, padded to the same size."""
    pad, (size, taps) = w.shape[-1] // 2, (x.shape[-1], w.shape[-1])
    padded = np.pad(x.astype("float64"), ((0, 0), (pad, pad), (pad, pad)))
    windows = np.stack([padded[:, i : i + size, j : j + size] for i in range(taps) for j in range(taps)], axis=1)
    return np.einsum("ctij,oct->oij", windows, w.reshape(*w.shape[:2], -1).astype("float64"))


#: template, arguments, shapes of the inputs, what it computes
CASES = {
    "matmul": (tiled, (12, 20, 7), ((12, 7), (7, 20)), np.matmul),
    "batch_matmul": (batched, (3, 8, 16, 5), ((3, 8, 5), (3, 5, 16)), np.matmul),
    "conv2d": (direct, (3, 9, 4, 3), ((3, 9, 9), (4, 3, 3, 3)), convolve),
}
