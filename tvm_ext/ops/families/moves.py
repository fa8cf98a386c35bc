"""Operators that only move elements: other shapes of the same memory, other places, elements picked by indices."""

import functools

import numpy as np

from .. import evaluators, row_rules
from ..evaluators import along, plainly
from ..operator import Kind, Operator
from ..row_rules import all_of, not_over

_view = functools.partial(Operator, kind=Kind.VIEW, rounding="exact")
_move = functools.partial(Operator, kind=Kind.MOVE, rounding="exact")
_pick = functools.partial(Operator, kind=Kind.PICK, rounding="exact")
_with_neighbours = all_of(row_rules.same_place, not_over("axis"))

VIEWS = (
    _view("relax.reshape Reshape", numpy=plainly(np.reshape), rows=row_rules.reshaped, sized=True,
          shape_operands={1: "shape"}, shape_arithmetic="not larger", int8="moved", idle=True),
    _view("relax.flatten", numpy=plainly(np.ravel), rows=row_rules.reshaped),
    _view("relax.nn.batch_flatten Flatten", numpy=plainly(lambda x: x.reshape(x.shape[0], -1)),
          rows=row_rules.reshaped, shape_arithmetic="not larger", int8="moved", idle=True),
    _view("relax.squeeze Squeeze", numpy=along(np.squeeze, "axis"), rows=row_rules.reshaped,
          shape_operands={1: "axes"}, shape_arithmetic="not larger", int8="moved", idle=True),
    _view("relax.expand_dims Unsqueeze", numpy=along(np.expand_dims, "axis"), rows=row_rules.reshaped,
          shape_operands={1: "axes"}, shape_arithmetic="not larger", int8="moved", idle=True),
)  # fmt: skip

MOVES = (
    _move("Identity", own_type=True, shape_arithmetic="elementwise"),
    _move("relax.permute_dims Transpose", numpy=along(np.transpose, "axes"), rows=row_rules.free,
          shape_arithmetic="not larger", int8="moved"),
    _move("relax.concat Concat", numpy=evaluators.concat, rows=_with_neighbours, shape_arithmetic="not larger",
          int8="moved", idle=True),
    _move("relax.stack", rows=row_rules.same_place),
    _move("relax.split Split", numpy=evaluators.split, rows=not_over("axis"), shape_operands={1: "sizes"},
          shape_arithmetic="not larger", int8="moved"),
    _move("relax.strided_slice Slice", numpy=evaluators.strided_slice, rows=row_rules.sliced, part_read=True,
          shape_operands={1: "starts", 2: "ends", 3: "axes", 4: "steps"}, shape_arithmetic="not larger", int8="moved",
          idle=True),
    _move("relax.broadcast_to Expand", numpy=plainly(np.broadcast_to), rows=row_rules.aligned, uniform=True,
          sized=True, shape_operands={1: "shape"}, idle=True),
    _move("relax.tile Tile", rows=row_rules.tiled, uniform=True, sized=True, shape_operands={1: "repeats"},
          idle=True),
    _move("relax.repeat", rows=row_rules.free, uniform=True, sized=True),
    _move("relax.flip", rows=not_over("axis")),
    _move("DepthToSpace SpaceToDepth"),
    _move("relax.layout_transform"),
)  # fmt: skip

PICKS = (
    _pick("relax.take Gather", numpy=evaluators.take, rows=row_rules.taken, part_read=True, non_expansive=True),
    _pick("relax.tvm_ext.take_blocks", rows=row_rules.parameters_shared, rounding="once"),
    _pick("relax.gather_elements GatherElements", rows=_with_neighbours, part_read=True, non_expansive=True),
    _pick("relax.gather_nd GatherND", part_read=True, non_expansive=True),
    _pick("relax.scatter_elements ScatterElements Scatter"),
    _pick("relax.scatter_nd ScatterND"),
    _pick("relax.nn.pad Pad", rows=row_rules.padded, non_expansive=True, shape_operands={1: "pads", 3: "axes"},
          int8="moved", idle=True),
    _pick("CenterCropPad", rounding="function", shape_operands={1: "shape"}),
    _pick("Compress ReverseSequence Trilu"),
)  # fmt: skip

ROWS = (*VIEWS, *MOVES, *PICKS)
