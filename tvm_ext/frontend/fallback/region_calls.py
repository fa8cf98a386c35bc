"""The call of a region: one kernel that hands its operands to a driver, with the region's program as a constant.

y = call_tir(region, (program, x))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax

from ...byoc.kernel import kernel_of
from ...byoc.region import Region, Value
from ...core.graph.offload_plan import OffloadedRegion
from ...core.graph.relax_graph import dtype_of, shape_of

Type = tuple[tuple[int, ...], str]
"""Shape and dtype."""


def emit_call(
    name: str, driver: tuple[str, str], code: bytes, inputs: Sequence[Any], outputs: Sequence[Type],
    nodes: Mapping[str, tuple[str, str]], facts: Mapping[str, Any] | None = None,
) -> tuple[list[Any], OffloadedRegion]:  # fmt: skip
    """Emit the call of a region into the function that is being built.

    Args:
        name: of the region: a valid identifier.
        driver: name of its back end, and the module whose import registers its driver.
        code: its program.
        inputs: Relax expression of each of its inputs: tensors.
        outputs: what it makes.
        nodes: label of each ONNX node in it -> its operator, and why it is there.
        facts: more of it for the report.

    Returns:
        The expression of each output, and the region.
    """
    builder = relax.BlockBuilder.current()
    inputs = inputs or [relax.const(np.zeros(1, np.uint8))]  # TVM takes a kernel of one argument for a reshape
    reads = [Value(f"x{i}", shape_of(x) or (), dtype_of(x)) for i, x in enumerate(inputs)]
    makes = [Value(f"y{i}", *kind) for i, kind in enumerate(outputs)]
    kernel = builder.add_func(kernel_of(Region(name, (), tuple(reads), tuple(makes)), len(code)), name)
    program = relax.const(np.frombuffer(code, np.uint8))
    types = [relax.TensorType(*kind) for kind in outputs]
    call = builder.emit(relax.call_tir(kernel, [program, *inputs], types if len(types) > 1 else types[0]))
    results = [relax.TupleGetItem(call, i) for i in range(len(types))] if len(types) > 1 else [call]
    reasons = {node: why for node, (_, why) in nodes.items()}
    ops = tuple(op for op, _ in nodes.values())
    region = OffloadedRegion(
        name, *driver, program, kernel.name_hint, tuple(nodes), (("nodes", ops),), None, None,
        {"reasons": reasons, **(facts or {})},
    )  # fmt: skip
    return results, region
