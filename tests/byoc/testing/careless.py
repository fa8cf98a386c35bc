"""A back end that does what it should not: imports the compiler beside its driver, and has programs without a digest.

A program is the text of one matmul's weight shape, and the weight's bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm  # noqa: F401  (what the kit finds)

from tvm_ext.byoc import Backend, Composite, Lowered, Pattern, Region, Runner
from tvm_ext.runtime.drivers import register_driver


def check(composite: Composite, options: Any) -> str:
    """Matrices of more than one column."""
    weight = composite.anchor.operands[1]
    return "" if isinstance(weight, np.ndarray) and weight.ndim == 2 else "no constant matrix"


def lower(region: Region, options: Any) -> Lowered:
    """All weights of a region of matmuls in a row."""
    weights = [np.asarray(operation.operands[1]) for operation in region.operations]
    head = json.dumps([weight.shape for weight in weights]).encode()
    return Lowered(head + b"\n" + b"".join(weight.tobytes() for weight in weights))


def driver(program: bytes) -> Runner:
    """Multiplies by one weight after the other."""
    head, _, data = program.partition(b"\n")
    values, weights = np.frombuffer(data, np.float32), []
    for rows, columns in json.loads(head):
        weights.append(values[: rows * columns].reshape(rows, columns))
        values = values[rows * columns :]

    def run(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        value = inputs[0]
        for weight in weights:
            value = value @ weight
        outputs[0][...] = value

    return run


def make(chip: Backend) -> Backend:
    """The back end; its regions are single layers."""
    pattern = Pattern("matmul", ("relax.matmul",), check=check)
    return replace(chip, name="careless", patterns=(pattern,), lower=lower, driver=driver, disassemble=None)


register_driver("careless", driver)
