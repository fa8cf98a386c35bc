"""RNN, GRU and LSTM in float64, as ONNX defines them: one direction, default activations."""

from typing import Any

import numpy as np


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def recurrence(
    kind: str, x: np.ndarray, r: np.ndarray, *, backwards: bool = False, behind: bool = False, **operands: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(all steps (S, N, H), the last states).

    Args:
        x: the input's part of all gates, (S, N, G * H).
        r: (G * H, H).
        behind: whether the reset gate of a GRU multiplies the product.
        operands: `bias` (H), `hidden` and `cell` (N, H), `peepholes` (3 * H), `lengths` (N), those that there are.
    """
    (steps, batch, _), hidden = x.shape, r.shape[1]
    zeros = np.zeros((batch, hidden))
    h, c = (np.float64(operands.get(name, zeros)) for name in ("hidden", "cell"))
    out, more = np.zeros((steps, batch, hidden)), {k: np.float64(v) for k, v in operands.items()}
    for t in range(steps)[:: -1 if backwards else 1]:
        new, cell = _cell(kind, np.float64(x[t]), np.float64(r), h, c, behind, more)
        live = (t < operands["lengths"])[:, None] if "lengths" in operands else np.ones((batch, 1), bool)
        h, c = np.where(live, new, h), np.where(live, cell, c)
        out[t] = np.where(live, new, 0)
    return out, [h, c]


def _cell(kind: str, x: Any, r: Any, h: Any, c: Any, behind: bool, more: dict[str, Any]) -> tuple[Any, Any]:
    size = h.shape[1]
    if kind == "RNN":
        return np.tanh(x + h @ r.T), c
    if kind == "GRU":
        z, reset = np.split(_sigmoid(x[:, : 2 * size] + h @ r[: 2 * size].T), 2, axis=1)
        last = r[2 * size :].T
        part = reset * (h @ last + more.get("bias", 0)) if behind else (reset * h) @ last
        return (1 - z) * np.tanh(x[:, 2 * size :] + part) + z * h, c
    i, o, f, g = np.split(x + h @ r.T, 4, axis=1)
    pi, po, pf = np.split(more.get("peepholes", np.zeros(3 * size)), 3)
    c = _sigmoid(f + pf * c) * c + _sigmoid(i + pi * c) * np.tanh(g)
    return _sigmoid(o + po * c) * np.tanh(c), c
