"""The pipeline, top to bottom: what happens to a model between import and build."""

from __future__ import annotations

import importlib.metadata

from tvm_ext.byoc.settings import Offloading
from tvm_ext.core.errors import OptionError
from tvm_ext.core.passes import Pass

from .assign_layouts import AssignLayouts
from .choose_recipes import ChooseRecipes
from .eliminate_common_subexpressions import EliminateCommonSubexpressions
from .eliminate_dead_code import EliminateDeadCode
from .fold_affine import FoldAffine
from .fold_batch_norm import FoldBatchNorm
from .fold_constants import FoldConstants
from .fuse_expansions import FuseExpansions
from .group_operations import GroupOperations
from .lift_weights import LiftWeights
from .lower_precision import LowerPrecision
from .lower_rest import LowerRest
from .move_strides import MoveStrides
from .offload import Offload
from .prepare_storage import PrepareStorage
from .recognize_activations import RecognizeActivations
from .recognize_attention import RecognizeAttention
from .recognize_layer_norm import RecognizeLayerNorm
from .reduce_strength import ReduceStrength
from .schedule_kernels import ScheduleKernels
from .simplify_algebra import SimplifyAlgebra
from .widen_conv1d import WidenConv1d

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
