"""Operators that make one element of several: over axes, over windows of an image; normalizations."""

import functools
import math

import numpy as np

from .. import flops, row_rules
from ..evaluators import reduction
from ..operator import Kind, Operator
from ..row_rules import all_of, images, not_over, parameters_shared

_AXES = {1: "axes"}
_reduction = functools.partial(Operator, kind=Kind.REDUCTION)
_over_axes = functools.partial(_reduction, rows=not_over("axis"), shape_operands=_AXES)
_along = functools.partial(_reduction, rows=not_over("axis"))
_pool = functools.partial(_reduction, rows=images("layout", "N", "C"), non_expansive=True)
_norm = functools.partial(_reduction, rounding="whole", magnitude="normalized")

OVER_AXES = (
    _over_axes("relax.sum ReduceSum", numpy=reduction(np.sum), non_expansive=True, rounding="whole",
               magnitude="whole sum", shape_arithmetic="not larger", left_out=0),
    _over_axes("relax.mean ReduceMean", numpy=reduction(np.mean), non_expansive=True, rounding="whole"),
    _over_axes("relax.max ReduceMax", numpy=reduction(np.max), non_expansive=True, rounding="exact",
               shape_arithmetic="not larger", left_out=-math.inf),
    _over_axes("relax.min ReduceMin", numpy=reduction(np.min), non_expansive=True, rounding="exact",
               shape_arithmetic="not larger", left_out=math.inf),
    _over_axes("relax.prod ReduceProd", numpy=reduction(np.prod), rounding="whole", shape_arithmetic="not larger",
               left_out=1),
    _over_axes("ReduceL1 ReduceL2 ReduceLogSum ReduceSumSquare", rounding="whole", left_out=0),
    _over_axes("ReduceLogSumExp", rounding="whole", left_out=-math.inf),
    _along("relax.std"),
    _along("relax.variance", not_negative=True),
)  # fmt: skip

ALONG_AN_AXIS = (
    _along("relax.argmax ArgMax", jump="step"),
    _along("relax.argmin ArgMin", jump="step"),
    _along("relax.cumsum CumSum", rounding="axis"),
    _along("relax.cumprod relax.sort relax.argsort"),
    _along("relax.topk TopK", jump="step", rounding="exact", shape_operands={1: "k"}),
    _along("relax.nn.softmax Softmax", rounding="axis"),
    _along("relax.nn.log_softmax LogSoftmax", rounding="axis"),
    _reduction("LRN", rounding="axis"),
    _reduction("Hardmax", jump="step"),
)

WINDOWS = (
    _pool("relax.nn.max_pool1d relax.nn.max_pool2d relax.nn.max_pool3d MaxPool", flops=flops.window, selects=True,
          rounding="exact", int8="moved"),
    _pool("relax.nn.avg_pool1d relax.nn.avg_pool2d relax.nn.avg_pool3d AveragePool", flops=flops.window,
          rounding="window", int8="between"),
    _pool("relax.nn.adaptive_avg_pool1d relax.nn.adaptive_avg_pool2d relax.nn.adaptive_avg_pool3d GlobalAveragePool",
          rounding="image", int8="between"),
    _reduction("GlobalMaxPool", non_expansive=True, rounding="exact"),
    _reduction("QLinearAveragePool QLinearGlobalAveragePool QLinearReduceMean QLinearSoftmax", jump="quantized",
               int8="only"),
    Operator("relax.image.resize2d Resize", rows=images("layout", "N", "C"), non_expansive=True,
             shape_operands={2: "scales", 3: "sizes"}, int8="moved"),
    Operator("Upsample", non_expansive=True, shape_operands={1: "scales"}),
    Operator("relax.image.grid_sample GridSample", jump="angle"),
)  # fmt: skip

NORMALIZATIONS = (
    Operator("relax.nn.batch_norm BatchNormalization", Kind.ELEMENTWISE, first_result=True, non_expansive=True,
             rows=all_of(parameters_shared, row_rules.in_inference, not_over("axis")), rounding="twice",
             magnitude="batch norm"),
    _norm("relax.nn.layer_norm LayerNormalization", rows=all_of(parameters_shared, not_over("axes"))),
    _norm("relax.nn.rms_norm RMSNormalization", rows=all_of(parameters_shared, not_over("axes")),
          magnitude="operands"),
    _norm("relax.nn.group_norm GroupNormalization",
          rows=all_of(parameters_shared, not_over("axes"), not_over("channel_axis"))),
    _norm("relax.nn.instance_norm InstanceNormalization",
          rows=all_of(parameters_shared, not_over("axes"), not_over("channel_axis"))),
    _norm("SkipLayerNormalization"),
    _norm("MeanVarianceNormalization LpNormalization SimplifiedLayerNormalization", magnitude="operands"),
)  # fmt: skip

ROWS = (*OVER_AXES, *ALONG_AN_AXIS, *WINDOWS, *NORMALIZATIONS)
