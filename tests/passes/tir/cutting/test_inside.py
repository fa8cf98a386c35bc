"""What is computed of pixels beyond an image is left out: zeros are stored there."""

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from tvm_ext.core.graph.nodes import nodes_of
from tvm_ext.core.sizes import INSIDE
from tvm_ext.passes.tir.cutting.affine import Arithmetic
from tvm_ext.passes.tir.cutting.inside import inside

IMAGE = tirx.decl_buffer((1, 3, 8, 12), "float32", "p0")
BETWEEN, TILE = tirx.decl_buffer((8, 12), "float32", "mid"), tirx.decl_buffer((4,), "float32", "tile")


def _loop(name: str, extent: int, body: Any, **annotations: Any) -> tirx.For:
    """A loop over what `body` makes of its variable."""
    var = tirx.Var(name, "int32")
    zero, count = (tirx.const(n, "int32") for n in (0, extent))
    return tirx.For(var, zero, count, tirx.ForKind.SERIAL, body(var), None, annotations)


def _tiles(annotations: Any) -> tirx.For:
    """mid[y, x] = the sum of three channels of p0[:, :, y, x], four columns at a time."""

    def body(y: Any, tile: Any) -> Any:
        def add(i: Any) -> Any:
            return _loop("c", 3, lambda c: tirx.BufferStore(TILE, TILE[i] + IMAGE[0, c, y, tile * 4 + i], [i]))

        def store(i: Any) -> Any:
            inner = tirx.BufferStore(BETWEEN, TILE[i], [y, tile * 4 + i])
            return tirx.IfThenElse(tile * 4 + i < 11, inner, None)

        return tirx.SeqStmt([_loop("i", 4, add), _loop("i", 4, store)])

    return _loop("y", 8, lambda y: _loop("tile", 3, lambda tile: body(y, tile), **annotations))


def test_a_tile_beyond_rows_and_columns_stores_zeros_and_reads_nothing() -> None:
    h, w = (tirx.Var(name, "int32") for name in "HW")
    extents = {IMAGE: [None, None, h, w]}
    loop = inside(_tiles({INSIDE: "p0"}), extents)
    tile = loop.body
    assert INSIDE not in tile.annotations
    branch = tile.body
    told, wanted = map(Arithmetic().simplify, (branch.condition, tirx.all(loop.loop_var < h, tile.loop_var * 4 < w)))
    assert tvm_ffi.structural_equal(told, wanted, map_free_vars=False)
    assert not nodes_of(branch.else_case, TensorLoad)
    (zero,) = nodes_of(branch.else_case, tirx.BufferStore)
    assert zero.buffer.same_as(BETWEEN) and float(zero.value) == 0
    variables = [inner.loop_var for inner in nodes_of(branch, tirx.For)]
    assert len({hash(var) for var in variables}) == len(variables), "each loop has a variable of its own"


def test_only_what_is_annotated_and_may_end_is_left_out() -> None:
    for annotations, extents in (({INSIDE: "p0"}, [None] * 4), ({}, [None, None, tirx.Var("H", "int32"), None])):
        conditions = nodes_of(inside(_tiles(annotations), {IMAGE: extents}), tirx.IfThenElse)
        assert len(conditions) == 1, "that of the last tile"
