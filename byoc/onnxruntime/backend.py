"""The manifest of onnxruntime: whatever ONNX nodes it knows, as `fallback="onnxruntime"` hands them to it."""

from dataclasses import dataclass

from ..backend import Backend, Lowered
from ..region import NodeRegion
from .driver import NAME, driver, model_of, program_of


@dataclass(frozen=True)
class OnnxruntimeOptions:
    """Threads of a region's session: those of the whole program."""

    threads: int = 1


def lower(region: NodeRegion, options: OnnxruntimeOptions) -> Lowered:
    """The region's model as a program.

    Raises:
        ProgramError: onnxruntime does not take the model.
    """
    program = program_of(region.model, options.threads)
    driver(program)
    return Lowered(program, {"reasons": dict(region.reasons), "threads": options.threads})


def _text(program: bytes) -> str:
    """The model in ONNX's own syntax; it leaves the values of large weights out."""
    import onnx.printer

    return str(onnx.printer.to_text(onnx.ModelProto.FromString(model_of(program))))


BACKEND = Backend(
    name=NAME, patterns=(), fallback=True, lower=lower, driver=driver, options=OnnxruntimeOptions, disassemble=_text
)
