"""DynamicQuantizeLSTM against onnxruntime, of one sequence: of several it may quantize parts of a batch apart."""

from typing import Any

import numpy as np
import pytest

from .cases import Known, agree, case, floats, rng_of

STEPS, INPUTS, HIDDEN = 4, 7, 8


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_directions(direction: str, columns: bool) -> None:
    rng, count = rng_of(1, columns), 2 if direction == "bidirectional" else 1
    gates = 4 * HIDDEN
    # of 7 bits: onnxruntime adds pairs of products of bytes in 16 bits, and saturates them, on CPUs without VNNI
    weights = [Known(np.int8(rng.integers(-63, 64, (count, rows, gates)))) for rows in (INPUTS, HIDDEN)]
    shape = (count, gates) if columns else (count,)
    parts: list[Any] = []
    for _ in weights:
        parts += [Known(np.float32(rng.uniform(0.002, 0.008, shape))), Known(np.zeros(shape, np.int8))]
    bias, states = Known(floats(rng, count, 2 * gates)), [floats(rng, count, 1, HIDDEN) for _ in range(2)]
    x = floats(rng, STEPS, 1, INPUTS)
    more = {"hidden_size": HIDDEN, "direction": direction}
    agree(
        "DynamicQuantizeLSTM",
        case(x, *weights, bias, None, None, None, None, *parts, outputs=3, **more),
        case(x, *weights, bias, None, *states, Known(floats(rng, count, 3 * HIDDEN)), *parts, outputs=3, **more),
        atol=1e-5,
    )


def test_what_is_behind_the_longest_sequence_has_no_part_in_the_range() -> None:
    rng, gates = rng_of(2), 4 * HIDDEN
    parts = [Known(np.int8(rng.integers(-63, 64, (1, rows, gates)))) for rows in (INPUTS, HIDDEN)]
    scales = [Known(np.float32([0.005])), Known(np.zeros(1, np.int8))] * 2
    x = floats(rng, STEPS, 1, INPUTS)
    x[2:] *= 50
    agree(
        "DynamicQuantizeLSTM",
        case(x, *parts, None, Known(np.int32([2])), None, None, None, *scales, outputs=3, hidden_size=HIDDEN),
        case(x, *parts, None, np.int32([2]), None, None, None, *scales, outputs=3, hidden_size=HIDDEN),
        atol=1e-5,
    )
