"""Weights of few bits in blocks: groups, operands, and what they mean in float64."""

from typing import Any

import numpy as np

from tvm_ext.core.group import Group
from tvm_ext.ops.block_weights import NAME, TAKE, Blocks, unpacked

from .kernels import make_group


class BlockCase:
    """A random weight (N, K).

    Args:
        points: "none", "integers" or "floats".
        scales: dtype of the scales.
    """

    def __init__(
        self, rng: np.random.Generator, outputs: int, depth: int, bits: int = 4, block: int = 32, points: str = "none",
        scales: str = "float16", digits: int = 0,
    ) -> None:  # fmt: skip
        blocks = -(-depth // block)
        self.says = Blocks(bits, block, float(1 << (bits - 1)), depth, digits)
        self.codes = rng.integers(0, 256, (outputs, blocks, block * bits // 8)).astype(np.uint8)
        self.scales = (rng.uniform(0.01, 0.1, (outputs, blocks)) * 2.0 ** (4 - bits)).astype(scales)
        self.points: np.ndarray | None = None
        if points == "integers":
            self.points = rng.integers(0, 1 << bits, (outputs, blocks)).astype(np.uint8)
        elif points == "floats":
            self.points = (rng.uniform(0, 0.5, (outputs, blocks))).astype(scales)

    @property
    def operands(self) -> list[np.ndarray]:
        """Codes, scales and perhaps points."""
        return [self.codes, self.scales, *([] if self.points is None else [self.points])]

    def weight(self) -> np.ndarray:
        """(N, K) in float64."""
        says, rows = self.says, len(self.codes)
        codes = unpacked(self.codes, says.bits).reshape(rows, -1, says.block).astype(np.float64)
        scales, zero = self.scales.astype(np.float64)[..., None], np.float64(says.zero)
        if self.points is None:
            values = (codes - zero) * scales
        else:
            points = self.points.astype(np.float64)[..., None]
            values = (codes - points) * scales if self.points.dtype == np.uint8 else codes * scales - points
        return values.reshape(rows, -1)[:, : says.depth]

    def group(self, data: tuple[int, ...], more: Any = None, kind: str = "float32") -> Group:
        """A matmul of rows, or of indices the rows that they pick.

        Args:
            more: (the anchor's variable, a further parameter of (N,)) -> calls behind it.
        """
        operands, take = self.operands, kind.startswith("int")
        shapes = [data, *(a.shape for a in operands), *([(len(self.codes),)] if more else [])]
        dtypes = [kind, *(str(a.dtype) for a in operands), *(["float32"] if more else [])]

        def body(*params: Any) -> Any:
            own = params[: 1 + len(operands)]
            y = yield (self.says.take if take else self.says.matmul)(*own)
            if more:
                yield from more(y, params[-1])

        constants = list(range(1, 1 + len(operands)))
        return make_group(TAKE if take else NAME, shapes, body, constants, dtypes)
