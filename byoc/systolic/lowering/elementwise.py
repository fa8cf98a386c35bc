"""What joins quantized tensors element by element, as a layer of the vector unit: sums of one element each.

quantize(add(dequantize(a), dequantize(b)))   ->  a; dequantize; add tile b, scaled; quantize: a residual add
quantize(reshape(dequantize(a)))              ->  a; dequantize; quantize
"""

from __future__ import annotations

import numpy as np

from ....core.errors import ProgramError
from ...region import Composite, Value
from ..code.layer import GemmLayer
from ..config import Accelerator
from .epilogue import Epilogue
from .matrices import conv2d_form, matmul_forms
from .operands import View, read_operand
from .products import checked_zero_point


def elementwise_layer(composite: Composite, hardware: Accelerator, dry: bool = False) -> GemmLayer:
    """The layer of a composite around `relax.add` or `relax.quantize`, which is the first step of its epilogue.

    Args:
        composite, hardware: what, and for what.
        dry: as of the other layers; here is no weight to leave out.

    Raises:
        ProgramError: something of it cannot be done; names the tensor, and what would do.
    """
    anchor, shape = composite.anchor, composite.anchor.result.shape
    values = [operand for operand in anchor.operands if isinstance(operand, Value)]
    sources = {value.name: read_operand(composite, value) for value in values}
    for source in sources.values():
        if source.kind != "quantized" or not isinstance(source.data, View):
            raise ProgramError(
                f"{anchor.result.name} reads {source.name} and is behind no product; "
                "by itself the vector unit takes tensors that are dequantized from int8 or uint8"
            )
    held = next((name for name, source in sources.items() if source.shape == shape), "")
    if not held or 0 in shape:
        raise ProgramError(f"{anchor.result.name} broadcasts all it reads, or is empty, which no layer does")
    source = sources[held]
    assert isinstance(source.data, View) and source.scale is not None
    zero = checked_zero_point(anchor, source, hardware)
    form = conv2d_form(shape, 1) if len(shape) == 4 else matmul_forms(shape)[0]
    n = form.size(form.cols)
    epilogue = Epilogue(composite, form, np.full(n, -zero, np.int32), source.scale.reshape(1), held)
    return GemmLayer(
        name=composite.name, m=form.size(form.rows), k=1, n=n, a=form.matrix(source.data), b=None,
        out=form.matrix(View.of(composite.result)), batch=form.size(form.batch), steps=epilogue.steps(), reduce="sum",
    )  # fmt: skip
