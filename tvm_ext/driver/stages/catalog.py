"""The stages of a compile that can be read, and those that a compile can go on from.

onnx -> relax -> grouped -> layout -> scheduled -> (machine code)
                              tir: its kernels      llvm, asm, program
"""

from dataclasses import dataclass

from ...core.errors import OptionError, choose_of
from ...core.graph.ownership import IMPORT


@dataclass(frozen=True)
class Stage:
    """One form of a model.

    Attributes:
        name: what users write.
        summary: what it is.
        suffix: of its file.
        resumes: whether a compile can go on from its file.
    """

    name: str
    summary: str
    suffix: str
    resumes: bool = False

    @property
    def after(self) -> str:
        """The step whose module it is: "import", or the pass that declares it; "" if it is no module."""
        from ...passes.pipeline import LOWER

        return next((step.name for step in LOWER if step.stage == self.name), IMPORT if self.name == "relax" else "")


STAGES = (
    Stage("onnx", "the model as the import reads it: inputs frozen, functions inlined, nodes in order", ".txt"),
    Stage("relax", "operators of Relax, one or a few a node", ".py", True),
    Stage("grouped", "simplified; each anchor with its epilogue is a function", ".py", True),
    Stage("layout", "kernels of TIR on tensors in memory, not scheduled yet", ".py", True),
    Stage("tir", "all kernels before they are scheduled, those of TVM's own lowering too", ".py"),
    Stage("scheduled", "kernels after their schedules", ".py", True),
    Stage("llvm", "LLVM IR of each kernel, after LLVM's optimizations", ".ll"),
    Stage("asm", "assembly of each kernel", ".s"),
    Stage("program", "programs of the regions that a back end runs", ".txt", True),
)
NAMES = tuple(stage.name for stage in STAGES)


def stage_named(name: str) -> Stage:
    """The stage of a name.

    Raises:
        OptionError: there is none; suggests the nearest.
    """
    for stage in STAGES:
        if isinstance(name, str) and stage.name == name:
            return stage
    raise OptionError(f"there is no stage {name!r}", fix=choose_of(name, "stages", NAMES))
