"""Language models of the Llama family in numpy, in float64, one token after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_ext.ops.block_weights import unpacked


@dataclass(frozen=True)
class Decoder:
    """A model.

    Attributes:
        weights: name in GGUF -> matrix (outputs, inputs) or vector, of float64.
        layers, heads, kv_heads, base, epsilon: of it.
        interleaved: whether the pairs that are turned are neighbours.
        stretch: what positions are divided by.
    """

    weights: Mapping[str, np.ndarray]
    layers: int
    heads: int
    kv_heads: int
    base: float = 10000.0
    epsilon: float = 1e-5
    interleaved: bool = True
    stretch: float = 1.0

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """(tokens, vocabulary): those behind each token."""
        w, x = self.weights, self.weights["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            own = {n.removeprefix(f"blk.{layer}."): a for n, a in w.items() if n.startswith(f"blk.{layer}.")}
            x = x + self._attention(self._norm(x, own["attn_norm.weight"]), own)
            h = self._norm(x, own["ffn_norm.weight"])
            gate, up = (h @ own[f"ffn_{part}.weight"].T for part in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ own["ffn_down.weight"].T
        return self._norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The likeliest tokens that follow, one after the other."""
        known = list(tokens)
        for _ in range(count):
            known.append(int(self.logits(known)[-1].argmax()))
        return known[len(tokens) :]

    def _norm(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.epsilon) * weight

    def _attention(self, h: np.ndarray, own: Mapping[str, np.ndarray]) -> np.ndarray:
        steps, size = len(h), h.shape[-1] // self.heads
        heads = {"q": self.heads, "k": self.kv_heads, "v": self.kv_heads}
        q, k, v = ((h @ own[f"attn_{part}.weight"].T).reshape(steps, n, size) for part, n in heads.items())
        q, k = self._turned(q), self._turned(k)
        k, v = (np.repeat(part, self.heads // self.kv_heads, 1) for part in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size)
        scores = np.where(np.tri(steps, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v).reshape(steps, -1) @ own["attn_output.weight"].T

    def _turned(self, x: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        angles = np.arange(len(x))[:, None, None] / self.stretch * self.base ** (-np.arange(half) / half)
        first, second = (slice(0, None, 2), slice(1, None, 2)) if self.interleaved else (slice(half), slice(half, None))
        a, b, out = x[..., first], x[..., second], np.empty_like(x)
        out[..., first] = a * np.cos(angles) - b * np.sin(angles)
        out[..., second] = b * np.cos(angles) + a * np.sin(angles)
        return out


def decoder_of(model: Any, layers: int, heads: int, kv_heads: int, hidden: int) -> Decoder:
    """The decoder of an ONNX model of the zoo, whose joint matrices are taken apart."""
    from onnx import numpy_helper

    known = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = {n.name: n for n in model.graph.node}
    weights: dict[str, np.ndarray] = {}
    for name, array in known.items():
        if name.endswith("weight.codes"):
            weights[name.removesuffix(".codes")] = _decoded(name.removesuffix(".codes"), known, nodes)
        elif name.endswith("weight^T"):
            weights[name.removesuffix("^T")] = array.T.astype(np.float64)
        elif name.endswith("weight"):
            weights[name] = array.astype(np.float64)
    narrow = hidden // heads * kv_heads
    for layer in range(layers):
        joint = weights.pop(f"blk.{layer}.attn_qkv.weight", None)
        if joint is not None:
            parts = np.split(joint, [hidden, hidden + narrow])
            weights |= {f"blk.{layer}.attn_{n}.weight": part for n, part in zip("qkv", parts, strict=True)}
    return Decoder(weights, layers, heads, kv_heads)


def _decoded(name: str, known: Mapping[str, np.ndarray], nodes: Mapping[str, Any]) -> np.ndarray:
    node = nodes[f"{name.removesuffix('.weight')}.matmul"]
    bits = next(a.i for a in node.attribute if a.name == "bits")
    scales = known[f"{name}.scales"].astype(np.float64)[..., None]
    codes = unpacked(known[f"{name}.codes"], bits).astype(np.float64)
    points: Any = known.get(f"{name}.points")
    points = float(1 << (bits - 1)) if points is None else points.astype(np.float64)[..., None]
    return ((codes - points) * scales).reshape(len(codes), -1)[:, : next(a.i for a in node.attribute if a.name == "K")]
