"""The pipeline, top to bottom: what happens to a model between its import and LLVM."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import relax
from tvm.ir import IRModule

from tvm_ext.byoc.settings import Offloading, offloading_of
from tvm_ext.core.errors import OptionError
from tvm_ext.core.kernel_pass import KernelPass
from tvm_ext.core.options import CompileOptions
from tvm_ext.core.passes import CompileContext, Pass, TvmPass, run_passes

from .lowering.assign_layouts import AssignLayouts
from .lowering.choose_recipes import ChooseRecipes
from .lowering.fuse_expansions import FuseExpansions
from .lowering.fuse_products import FuseProducts
from .lowering.group_operations import GroupOperations
from .lowering.legalize_rest import FuseRest, LegalizeRest, LiftGroupConstants
from .lowering.lift_weights import LiftWeights
from .lowering.lower_precision import LowerPrecision
from .lowering.lower_rest import LowerRest
from .lowering.offload import Offload
from .lowering.prepare_storage import PrepareStorage
from .lowering.schedule_kernels import ScheduleKernels
from .memory.destinations import PlaceOutputs
from .memory.overlap_regions import OrderRegions, WaitForRegions
from .memory.placement import PlanMemory
from .memory.updates import UpdateStates
from .memory.workspace import CountOutputs, PlaceWorkspace
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
from .tir.kernel_passes import CODE, LOOPS
from .tir.shares import run_on_kernels

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

_A_KERNEL = "an operator without a kernel cannot run"

LOWER: tuple[Pass, ...] = (
    LowerPrecision(),
    PrepareStorage(),
    GroupOperations(),
    FuseExpansions(),
    FuseProducts(),
    ChooseRecipes(),
    AssignLayouts(),
    ScheduleKernels(),
    LiftGroupConstants(),
    TvmPass("dispatch-sampling", relax.backend.DispatchSampling, _A_KERNEL),
    TvmPass("dispatch-sort-scan", relax.backend.DispatchSortScan, _A_KERNEL),
    LegalizeRest(),
    TvmPass("annotate-patterns", relax.transform.AnnotateTIROpPattern, "fusion reads the kind of each kernel"),
    FuseRest(),
    TvmPass("fuse-tir", relax.transform.FuseTIR, "a fused function becomes one kernel"),
    TvmPass("view-reshapes", relax.transform.RewriteDataflowReshape, "a reshape is another shape of the same memory"),
    TvmPass("drop-unused", relax.transform.DeadCodeElimination, "every kernel that is left gets a schedule", "tir"),
    LowerRest(),
    OrderRegions(),
    LiftWeights(),
)


#: Calls take the memory of their results.
IN_PLACE: tuple[Pass, ...] = (
    TvmPass("open-dataflow", relax.transform.ToNonDataflow, "memory that is written is no dataflow"),
    TvmPass("remove-purity", relax.transform.RemovePurityChecking, "memory that is written is no dataflow"),
    TvmPass("call-in-place", relax.transform.CallTIRRewrite, "the VM calls kernels with the memory of their results"),
)

MEMORY: tuple[Pass, ...] = (
    CountOutputs(), *IN_PLACE, WaitForRegions(), PlaceWorkspace(), PlaceOutputs(), PlanMemory(),
    TvmPass("normalize", relax.transform.Normalize, "the VM takes programs in normal form"),
)  # fmt: skip

_OF_THE_VM = "the VM has no other instructions"
#: TVM's own way to its virtual machine; what a function still allocates itself is planned into shared storage.
VM: tuple[Pass, ...] = (
    TvmPass("share-tensors", relax.transform.StaticPlanBlockMemory, ""),
    TvmPass("lower-allocations", relax.transform.LowerAllocTensor, _OF_THE_VM),
    TvmPass("end-lifetimes", relax.transform.KillAfterLastUse, ""),
    TvmPass("lower-runtime-builtins", relax.transform.LowerRuntimeBuiltin, _OF_THE_VM),
    TvmPass("compute-scalars", relax.transform.ComputePrimValue, _OF_THE_VM),
    TvmPass("lower-shapes", relax.transform.VMShapeLower, _OF_THE_VM),
    TvmPass("name-symbols", relax.transform.AttachGlobalSymbol, "the VM finds functions by their symbols"),
)


@dataclass(frozen=True)
class Phase:
    """Passes of one kind.

    Attributes:
        name: of the phase.
        passes: in order; all of kernels, or none.
        owners: whether `main` is a graph of ONNX nodes in it.
    """

    name: str
    passes: tuple[Pass | KernelPass, ...]
    owners: bool = False

    def run(self, mod: IRModule, ctx: CompileContext) -> IRModule:
        """The module after the passes that are on; kernels are shared among all cores."""
        of_kernels = [step for step in self.passes if isinstance(step, KernelPass)]
        if of_kernels:
            return run_on_kernels(of_kernels, mod, ctx)
        return run_passes((step for step in self.passes if isinstance(step, Pass)), mod, ctx, owners=self.owners)


@dataclass(frozen=True)
class Pipeline:
    """All that happens to a model between its import and LLVM, in order.

    The first four phases are run on each program, the last two on all programs of a model together.
    """

    phases: tuple[Phase, ...]

    @classmethod
    def of(cls, options: CompileOptions) -> Pipeline:
        """The pipeline of a compile.

        Raises:
            OptionError: there is no such back end, or an entry point of `tvm_ext.passes` is no pass.
        """
        return pipeline(offloading_of(options.offload, dict(options.offload_options), options.precision))

    @property
    def passes(self) -> tuple[Pass | KernelPass, ...]:
        """All passes, in order."""
        return tuple(step for phase in self.phases for step in phase.passes)

    def before(self, end: type[Pass] | str) -> Pipeline:
        """What is before a phase, or before the first pass of a class or name; all if there is none."""
        every = [(phase.name, step) for phase in self.phases for step in phase.passes]
        places = (at for at, (name, step) in enumerate(every) if end in (name, step.name, step.__class__))
        return self._part(0, next(places, len(every)))

    def through(self, name: str) -> Pipeline:
        """What is up to the last pass of a name, with it; nothing if there is none."""
        every = self.passes
        return self._part(0, max((at for at, step in enumerate(every, start=1) if step.name == name), default=0))

    def after(self, name: str) -> Pipeline:
        """What is behind the last pass of a name; all if there is none."""
        last = max((at for at, step in enumerate(self.passes) if step.name == name), default=-1)
        return self._part(last + 1, len(self.passes))

    def from_(self, name: str) -> Pipeline:
        """The first pass of a name, and what is behind it; nothing if there is none."""
        every = self.passes
        return self._part(next((at for at, step in enumerate(every) if step.name == name), len(every)), len(every))

    def without(self, *names: str) -> Pipeline:
        """The pipeline without the passes of these names."""
        return self._each(lambda step: None if step.name in names else step)

    def replacing(self, own: Pass) -> Pipeline:
        """The pipeline with a pass in the place of those of its name."""
        return self._each(lambda step: own if step.name == own.name else step)

    def _each(self, change: Callable[[Pass | KernelPass], Pass | KernelPass | None]) -> Pipeline:
        kept = (tuple(new for step in phase.passes if (new := change(step)) is not None) for phase in self.phases)
        return Pipeline(tuple(replace(phase, passes=own) for phase, own in zip(self.phases, kept, strict=True)))

    def _part(self, first: int, last: int) -> Pipeline:
        parts, at = [], 0
        for phase in self.phases:
            parts.append(replace(phase, passes=phase.passes[max(first - at, 0) : max(last - at, 0)]))
            at += len(phase.passes)
        return Pipeline(tuple(phase for phase in parts if phase.passes))

    def run(self, mod: IRModule, ctx: CompileContext) -> IRModule:
        """The module after all passes that are on; `ctx.instruments` are shown it after each."""
        for phase in self.phases:
            mod = phase.run(mod, ctx)
        ctx.settle()
        return mod


#: What is done to each program after its kernels are scheduled.
PLACING = Pipeline((Phase("states", (UpdateStates(),)), Phase("loops", LOOPS), Phase("memory", MEMORY)))
#: What is done to all programs of a model together.
TO_VM, TO_CODE = Phase("vm", VM), Phase("code", CODE)


@functools.cache
def entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    """Those of `tvm_ext.passes`, read once a process: with a hundred packages that takes a tenth of a small compile."""
    return tuple(importlib.metadata.entry_points(group="tvm_ext.passes"))


def pipeline(offloading: Offloading | None = None) -> Pipeline:
    """The pipeline. Passes of installed packages (entry points `tvm_ext.passes`) run after simplification.

    Args:
        offloading: what a back end gets, by a pass of its own before attention is recognized; None for no such pass.

    Raises:
        OptionError: an entry point is no pass.
    """
    extra = []
    for entry in entry_points():
        step = entry.load()()
        if not isinstance(step, Pass):
            raise OptionError(f"entry point {entry.value!r} in tvm_ext.passes gives {type(step).__name__}, no Pass")
        extra.append(step)
    simplify = [p() for p in SIMPLIFY]
    if offloading is not None:
        simplify.insert(SIMPLIFY.index(RecognizeAttention), Offload(offloading))
    graph = Phase("simplify", (*simplify, *extra), owners=True), Phase("lower", LOWER, owners=True)
    return Pipeline((*graph, *PLACING.phases, TO_CODE, TO_VM))
