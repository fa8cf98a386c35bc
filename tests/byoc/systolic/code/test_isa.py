"""Binary form of instructions: round trip of random ones, every field's range, what does not decode."""

from typing import Any

import numpy as np
import pytest

from tvm_ext.byoc.systolic.code.isa import (
    CLASSES,
    FORMS,
    POP_PREV,
    RECORD_BYTES,
    Finish,
    Gemm,
    Load,
    Store,
    Sync,
    Vector,
    decode,
    encode,
    text_of,
)
from tvm_ext.core.errors import ProgramError

_RANGES = {"B": (0, 1 << 8), "H": (0, 1 << 16), "I": (0, 1 << 32), "Q": (0, 1 << 63), "b": (-128, 128)}
_RANGES["i"] = (-(1 << 31), 1 << 31)


def random_instruction(rng: np.random.Generator, kind: Any) -> Any:
    form = FORMS[kind]
    values: list[Any] = []
    for choices, letter in zip(form.choices, form.packer.format[3:], strict=True):
        if choices:
            values.append(choices[rng.integers(len(choices))])
        elif letter == "f":
            values.append(float(rng.standard_normal(dtype=np.float32)))
        else:
            values.append(int(rng.integers(*_RANGES[letter])))
    allowed = {"load": 2 | 8, "compute": 15, "store": 1 | 4, "all": 0}[kind.queue]
    return kind(*values, tokens=int(rng.integers(16)) & allowed)


@pytest.mark.parametrize("kind", CLASSES.values(), ids=lambda kind: kind.mnemonic)
def test_round_trip(kind: Any) -> None:
    rng = np.random.default_rng(0)
    code = [random_instruction(rng, kind) for _ in range(50)]
    data = encode(code)
    assert len(data) == 50 * RECORD_BYTES
    assert decode(data) == tuple(code)


def test_fields_fit_a_record() -> None:
    assert all(form.packer.size <= RECORD_BYTES for form in FORMS.values())


def test_text() -> None:
    gemm = Gemm("os", 1, 0, 64, 128, 4, 5, 6, tokens=POP_PREV)
    assert text_of(gemm) == "GEMM dataflow=os accumulate=1 a=0 b=64 c=128 m=4 k=5 n=6 pop.prev"


@pytest.mark.parametrize(
    "instruction",
    [
        Gemm("ws", 0, 0, 0, 0, 1 << 16, 1, 1),
        Gemm("rs", 0, 0, 0, 0, 1, 1, 1),
        Gemm("ws", 2, 0, 0, 0, 1, 1, 1),
        Load("a", 0, -1, 1, 1, 0, 1, 1),
        Vector("exp", 0, 1, 1),
        Vector("quantize", 0, 1, 1, scale=1e300),
        Vector("quantize", 0, 1, 1, zero_point=1 << 31),
        Store(1.5, 0, 1, 1, 0, 1, 1),  # type: ignore[arg-type]
    ],
    ids=text_of,
)
def test_values_that_no_field_holds(instruction: Any) -> None:
    with pytest.raises(ProgramError, match=r"instruction 1 \(.*a field does not fit"):
        encode([Sync(), instruction])


@pytest.mark.parametrize("instruction", [Load("a", 0, 0, 1, 1, 0, 1, 1, tokens=1), Sync(tokens=8)], ids=text_of)
def test_tokens_of_no_neighbour(instruction: Any) -> None:
    with pytest.raises(ProgramError, match="has no such neighbour"):
        encode([instruction])


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0, "instruction 1: operation code 0 is unknown"),
        (0, 99, "instruction 1: operation code 99 is unknown"),
        (2, 3, r"instruction 1 \(GEMM\): dataflow 3 is none of"),
        (63, 1, r"instruction 1 \(GEMM\): bytes behind its fields are not zero"),
        (1, 16, "has no such neighbour"),
    ],
)
def test_records_that_are_no_instruction(at: int, value: int, message: str) -> None:
    data = bytearray(encode([Finish(), Gemm("ws", 0, 0, 0, 0, 1, 1, 1)]))
    data[RECORD_BYTES + at] = value
    with pytest.raises(ProgramError, match=message):
        decode(bytes(data))


def test_a_length_that_is_no_multiple() -> None:
    with pytest.raises(ProgramError, match="63 bytes of instructions: a multiple of 64"):
        decode(b"\1" * 63)
