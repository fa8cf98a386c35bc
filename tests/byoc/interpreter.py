"""A back end that runs operators one by one in numpy: for tests of everything around a back end."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_ext.byoc import Backend, Composite, Limits, Lowered, Pattern, Region, Runner, Value
from tvm_ext.core.errors import ProgramError

_OPS: dict[str, Callable[..., Any]] = {
    "relax.matmul": np.matmul,
    "relax.add": np.add,
    "relax.nn.relu": lambda x: np.maximum(x, 0),
    "relax.negative": np.negative,
}


@dataclass(frozen=True)
class Settings:
    """What tests ask of it.

    Attributes:
        seconds: what it says that each composite takes, besides the launch.
        launch: seconds of each region.
        refuse: it does not lower regions of more composites.
        fail: text of an error of the driver; "" for none.
    """

    seconds: float = 0.0
    launch: float = 0.0
    refuse: int = 1000
    fail: str = ""


def lower(region: Region, settings: Settings) -> Lowered:
    """Steps as JSON beside the constants."""
    if len(region.composites) > settings.refuse:
        raise ProgramError(f"{len(region.composites)} composites; {settings.refuse} are possible")
    constants: list[np.ndarray] = []
    steps = []
    for operation in region.operations:
        names: list[Any] = []
        for operand in operation.operands:
            names.append(operand.name if isinstance(operand, Value) else len(constants))
            constants += [] if isinstance(operand, Value) else [operand]
        steps.append([operation.op, names, operation.result.name])
    text = json.dumps([steps, [v.name for v in region.inputs], [v.name for v in region.outputs], settings.fail])
    file = io.BytesIO()
    np.savez(file, *constants, text=np.array(text))
    return Lowered(file.getvalue(), {"steps": len(steps)})


def driver(program: bytes) -> Runner:
    """Runs the steps."""
    with np.load(io.BytesIO(program)) as file:
        steps, feeds, results, fail = json.loads(str(file["text"]))
        constants = [file[f"arr_{i}"] for i in range(len(file.files) - 1)]

    def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        if fail:
            raise ValueError(fail)
        values = dict(zip(feeds, inputs, strict=True))
        for op, operands, result in steps:
            values[result] = _OPS[op](*[constants[o] if isinstance(o, int) else values[o] for o in operands])
        for name, output in zip(results, outputs, strict=True):
            output[...] = values[name]

    return run


def check_bias(composite: Composite, settings: Any) -> str:
    """Sums of a computed tensor and a row only; a residual is refused by its shape."""
    for operation in composite.epilogue:
        if operation.op == "relax.add" and min(operand.ndim if isinstance(operand, np.ndarray) else len(operand.shape)
                                         for operand in operation.operands) > 1:  # fmt: skip
            return f"{operation.result.name} adds a tensor that is no row"
    return ""


PATTERNS = (
    Pattern(
        "dense", ("relax.matmul",), prologue=("relax.negative",), epilogue=("relax.add", "relax.nn.relu"),
        check=check_bias,
    ),
)  # fmt: skip


def make(name: str = "interpreter", **options: Any) -> Backend:
    """The back end, with other fields."""
    fields: dict[str, Any] = {
        "patterns": PATTERNS, "lower": lower, "driver": driver, "options": Settings, "limits": Limits(("float32",)),
        "cost": lambda region, settings: settings.launch + settings.seconds * len(region.composites),
    }  # fmt: skip
    return Backend(name, **{**fields, **options})
