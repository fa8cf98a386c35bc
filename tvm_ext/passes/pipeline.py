"""The pipeline, top to bottom: what happens to a model between import and build."""

from __future__ import annotations

import importlib.metadata

from tvm_ext.byoc.settings import Offloading, offloading_of
from tvm_ext.core.errors import OptionError
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import Pass

from .lowering.assign_layouts import AssignLayouts
from .lowering.choose_recipes import ChooseRecipes
from .lowering.fuse_expansions import FuseExpansions
from .lowering.group_operations import GroupOperations
from .lowering.lift_weights import LiftWeights
from .lowering.lower_precision import LowerPrecision
from .lowering.lower_rest import LowerRest
from .lowering.offload import Offload
from .lowering.prepare_storage import PrepareStorage
from .lowering.schedule_kernels import ScheduleKernels
from .simplification.eliminate_common_subexpressions import EliminateCommonSubexpressions
from .simplification.eliminate_dead_code import EliminateDeadCode
from .simplification.fold_affine import FoldAffine
from .simplification.fold_batch_norm import FoldBatchNorm
from .simplification.fold_constants import FoldConstants
from .simplification.move_strides import MoveStrides
from .simplification.recognize_activations import RecognizeActivations
from .simplification.recognize_attention import RecognizeAttention
from .simplification.recognize_layer_norm import RecognizeLayerNorm
from .simplification.reduce_strength import ReduceStrength
from .simplification.simplify_algebra import SimplifyAlgebra
from .simplification.widen_conv1d import WidenConv1d

SIMPLIFY: tuple[type[Pass], ...] = (
    EliminateDeadCode,
    FoldConstants,
    EliminateCommonSubexpressions,
    SimplifyAlgebra,
    FoldBatchNorm,
    ReduceStrength,
    FoldConstants,
    SimplifyAlgebra,
    RecognizeActivations,
    RecognizeLayerNorm,
    RecognizeAttention,
    FoldAffine,
    SimplifyAlgebra,
    WidenConv1d,
    MoveStrides,
    EliminateCommonSubexpressions,
    EliminateDeadCode,
)

LOWER: tuple[type[Pass], ...] = (
    LowerPrecision,
    PrepareStorage,
    GroupOperations,
    FuseExpansions,
    ChooseRecipes,
    AssignLayouts,
    ScheduleKernels,
    LowerRest,
    LiftWeights,
)


def passes_of(options: CompileOptions) -> tuple[Pass, ...]:
    """:func:`pipeline` of a compile with these options."""
    return pipeline(offloading_of(options.offload, dict(options.offload_options)))


def pipeline(offloading: Offloading | None = None) -> tuple[Pass, ...]:
    """All passes in order. Passes of installed packages (entry points `tvm_ext.passes`) run after simplification.

    Args:
        offloading: what a back end gets, by a pass of its own before attention is recognized; None for no such pass.

    Raises:
        OptionError: an entry point is no pass.
    """
    extra = []
    for entry in importlib.metadata.entry_points(group="tvm_ext.passes"):
        made = entry.load()()
        if not isinstance(made, Pass):
            raise OptionError(f"entry point {entry.value!r} in tvm_ext.passes gives {type(made).__name__}, no Pass")
        extra.append(made)
    simplify = [p() for p in SIMPLIFY]
    if offloading is not None:
        simplify.insert(SIMPLIFY.index(RecognizeAttention), Offload(offloading))
    return (*simplify, *extra, *(p() for p in LOWER))
