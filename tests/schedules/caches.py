"""Calls with a cache: their groups, operands, and what they give, in numpy and float64."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from tvm_ext.core.group import Group
from tvm_ext.ops.kv_cache import APPEND, ATTENTION, Append, Attention

from .kernels import make_group, random
from .stored import FLOATS


class CacheCase:
    """New tokens of some sequences.

    Args:
        batch, steps, heads, groups, size, capacity: sequences, tokens of each, heads of queries and of keys, elements
            and rows of a head of keys.
        more: operands besides the lengths.
        width: elements of a value; 0 for as many as a key has.
        dtype: that keys and values are stored in.
        attributes: of :class:`Attention`.
    """

    def __init__(
        self, batch: int, steps: int, heads: int, groups: int, size: int, capacity: int, more: str = "",
        width: int = 0, dtype: str = "float32", **attributes: Any,
    ) -> None:  # fmt: skip
        own, self._rng = tuple(more.split()), np.random.default_rng([batch, steps, heads, size, capacity])
        self.says = Attention(("lengths", *own), heads=heads, scale=size**-0.5, **attributes)
        turned = tuple(role for role in own if role != "sink")
        rows = capacity if "cos" in own else 0
        self.append_says = Append(
            ("lengths", *turned), 0, self.says.interleaved, source="lengths", position_source="positions", turned=rows
        )
        cache, half = (batch, groups, capacity, size), size // 2 - 1
        shapes = {
            "past": cache, "new": (batch, steps, groups, size), "query": (batch, steps, heads, size), "keys": cache,
            "values": (*cache[:3], width or size), "lengths": (batch,), "total": (1,), "cos": (capacity, half),
            "sin": (capacity, half), "positions": (batch, steps), "sink": (heads,),
        }  # fmt: skip
        self.arrays = {role: random(self._rng, *shape) for role, shape in shapes.items()}
        self.arrays["positions"] = self._rng.integers(0, capacity, shapes["positions"])
        self.arrays |= {role: self.arrays[role].astype(dtype) for role in ("keys", "values")}
        self.append, self.attention = self._group(APPEND, self.append_says), self._group(ATTENTION, self.says)

    def _group(self, anchor: str, says: Append | Attention) -> Group:
        whole = {"lengths": "int32", "total": "int32", "positions": "int64", "sequences": "int32", "table": "int32"}
        shapes = [self.arrays[role].shape for role in says.roles]
        dtypes = [whole.get(role, str(self.arrays[role].dtype)) for role in says.roles]

        def body(*params: Any) -> Any:
            operands = dict(zip(says.roles, params, strict=True))
            for role, dtype in zip(says.roles, dtypes, strict=True):
                if dtype in FLOATS:
                    operands[role] = yield relax.op.astype(operands[role], "float32")
            yield says.call(operands)

        return make_group(anchor, shapes, body, (), dtypes)

    def in_pages(self, rows: int, lengths: Sequence[int]) -> tuple[Group, list[np.ndarray]]:
        """The attention of one token a sequence over caches in pages of so many rows, which lie in no order; and its
        operands, after which sequences have so many rows."""
        batch, groups, capacity, _ = self.arrays["keys"].shape
        count = capacity // rows
        order = self._rng.permutation(batch * count + 1)[: batch * count]
        for role in ("keys", "values"):
            own = self.arrays[role].reshape(batch, groups, count, rows, -1).transpose(0, 2, 3, 1, 4)
            pages = np.full((batch * count + 1, *own.shape[2:]), np.nan, own.dtype)
            pages[order] = own.reshape(batch * count, *own.shape[2:])
            self.arrays[role] = pages
        self.arrays["table"] = np.int32(order.reshape(batch, count))
        self.arrays["sequences"] = np.arange(batch, dtype="int32")
        says = replace(self.says, operands=(*self.says.operands, "sequences", "table"))
        return self._group(ATTENTION, says), self.operands(says, lengths)

    def operands(self, says: Append | Attention, lengths: Sequence[int], total: int = 0) -> list[np.ndarray]:
        """Operands of a call after which sequences have so many rows; `total` is that of a first prompt, or 0."""
        arrays = {**self.arrays, "lengths": np.int32(lengths) - 1, "total": np.int32([total])}
        return [arrays[role] for role in says.roles]

    def _starts(self, lengths: Sequence[int], total: int) -> list[int]:
        steps = self.arrays["new"].shape[1]
        prompt = "total" in self.says.operands and total == steps
        return [0 if prompt else length - steps for length in lengths]

    def _turned(self, x: np.ndarray, start: int, sequence: int, prompt: bool) -> np.ndarray:
        """Rows (steps, heads, size) of a sequence, turned by their positions."""
        if "cos" not in self.says.operands:
            return x.astype(np.float64)
        places = start + np.arange(len(x))
        if "positions" in self.says.operands:
            own = self.arrays["positions"]
            places = own[0, 0] + np.arange(len(x)) if prompt else own[sequence]
        places = np.clip(places, 0, len(self.arrays["cos"]) - 1)
        cos, sin = (self.arrays[role][places][:, None].astype(np.float64) for role in ("cos", "sin"))
        half, y = cos.shape[2], x.astype(np.float64)
        pairs = (
            (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
            if self.says.interleaved
            else (slice(half), slice(half, 2 * half))
        )
        one, other = (x[..., part].astype(np.float64) for part in pairs)
        y[..., pairs[0]], y[..., pairs[1]] = one * cos - other * sin, other * cos + one * sin
        return y

    def present(self, lengths: Sequence[int], total: int = 0) -> np.ndarray:
        """What the append gives."""
        out, steps = self.arrays["past"].astype(np.float64), self.arrays["new"].shape[1]
        for b, start in enumerate(self._starts(lengths, total)):
            new = self._turned(self.arrays["new"][b], start, b, total == steps)
            out[b, :, start : start + steps] = new.swapaxes(0, 1)
        return out

    def attended(self, lengths: Sequence[int], total: int = 0) -> np.ndarray:
        """What the attention gives."""
        query, keys, values, says = *(self.arrays[role] for role in ("query", "keys", "values")), self.says
        steps, shared = query.shape[1], says.heads // keys.shape[1]
        out = np.zeros((*query.shape[:3], values.shape[3]))
        for b, start in enumerate(self._starts(lengths, total)):
            turned = self._turned(query[b], start, b, total == steps)
            for s in range(steps):
                stop = start + s + 1 if says.causal else lengths[b]
                low = max(start + s + 1 - says.window, 0) if says.window else 0
                for head in range(says.heads):
                    seen = keys[b, head // shared, low:stop].astype(np.float64)
                    scores = seen @ turned[s, head] * says.scale
                    scores = says.softcap * np.tanh(scores / says.softcap) if says.softcap else scores
                    sink = [self.arrays["sink"][head]] if "sink" in says.operands else [0.0] * says.smooth
                    weights = np.exp(np.append(scores, sink) - max([*scores, *sink]))
                    weights = weights[: len(scores)] / weights.sum()
                    out[b, s, head] = weights @ values[b, head // shared, low:stop]
        return out
