"""The stages of a compile that can be read, and those that a compile can go on from.

onnx -> relax -> grouped -> layout -> scheduled -> (machine code)
                              tir: its kernels      llvm, asm, program
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class Stage:
    """One form of a model.

    Attributes:
        name: what users write.
        summary: what it is.
        suffix: of its file.
        after: the step whose module it is: "import", or a pass; "" if it is no module of the pipeline.
        resumes: whether a compile can go on from its file.
    """

    name: str
    summary: str
    suffix: str
    after: str = ""
    resumes: bool = False


STAGES = (
    Stage("onnx", "the model as the import reads it: inputs frozen, functions inlined, nodes in order", ".txt"),
    Stage("relax", "operators of Relax, one or a few a node", ".py", "import", True),
    Stage("grouped", "simplified; each anchor with its epilogue is a function", ".py", "fuse-expansions", True),
    Stage("layout", "kernels of TIR on tensors in memory, not scheduled yet", ".py", "assign-layouts", True),
    Stage("tir", "all kernels before they are scheduled, those of TVM's own lowering too", ".py"),
    Stage("scheduled", "kernels after their schedules", ".py", "lower-rest", True),
    Stage("llvm", "LLVM IR of each kernel, after LLVM's optimizations", ".ll"),
    Stage("asm", "assembly of each kernel", ".s"),
    Stage("program", "programs of the regions that a back end runs", ".txt", "", True),
)
NAMES = tuple(stage.name for stage in STAGES)


def stage_named(name: str) -> Stage:
    """The stage of a name.

    Raises:
        OptionError: there is none; suggests the nearest.
    """
    for stage in STAGES:
        if stage.name == name:
            return stage
    raise OptionError(f"there is no stage {name!r}", fix=f"{did_you_mean(name, NAMES)}stages: {', '.join(NAMES)}")
