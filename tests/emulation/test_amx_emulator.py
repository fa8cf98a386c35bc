"""The emulator of AMX: decoding by hand-written bytes, results by float64 and int64, faults as the manual has them."""

import ctypes
import struct

import ml_dtypes
import numpy as np
import pytest

from .amx import Emulator, assemble, decode
from .amx_state import Fault, TileState, _exact_sums, _plain_sums

#: Bytes as LLVM and binutils assemble them, AT&T syntax beside.
ENCODED = {
    "c4 e2 78 49 01": ("ldtilecfg", 5, {"base": 1}),  # ldtilecfg (%rcx)
    "c4 c2 78 49 44 24 10": ("ldtilecfg", 7, {"base": 12, "displacement": 16}),  # ldtilecfg 16(%r12)
    "c4 e2 78 49 05 00 01 00 00": ("ldtilecfg", 9, {"base": 16, "displacement": 256}),  # ldtilecfg 256(%rip)
    "c4 e2 79 49 00": ("sttilecfg", 5, {"base": 0}),  # sttilecfg (%rax)
    "c4 e2 78 49 c0": ("tilerelease", 5, {}),  # tilerelease
    "c4 e2 7b 49 f8": ("tilezero", 5, {"reg": 7}),  # tilezero %tmm7
    "c4 a2 7b 4b 2c 01": ("tileloadd", 6, {"reg": 5, "base": 1, "index": 8}),  # tileloadd (%rcx,%r8), %tmm5
    "c4 e2 7b 4b 24 8d 40 00 00 00": ("tileloadd", 10, {"reg": 4, "index": 1, "scale": 4, "displacement": 64}),
    "c4 a2 79 4b b4 05 80 f8 ff ff": ("tileloaddt1", 10, {"reg": 6, "base": 5, "index": 8, "displacement": -1920}),
    "c4 82 7a 4b 04 0e": ("tilestored", 6, {"reg": 0, "base": 14, "index": 9}),  # tilestored %tmm0, (%r14,%r9)
    "c4 e2 7a 4b 04 20": ("tilestored", 6, {"reg": 0, "base": 0}),  # no index: a stride of zero
    "c4 e2 4a 5c c4": ("tdpbf16ps", 5, {"reg": 0, "rm": 4, "vvvv": 6}),  # tdpbf16ps %tmm6, %tmm4, %tmm0
    "c4 e2 63 5e c2": ("tdpbssd", 5, {"reg": 0, "rm": 2, "vvvv": 3}),  # tdpbssd %tmm3, %tmm2, %tmm0
    "c4 e2 62 5e c2": ("tdpbsud", 5, {"reg": 0, "rm": 2, "vvvv": 3}),
    "c4 e2 61 5e c2": ("tdpbusd", 5, {"reg": 0, "rm": 2, "vvvv": 3}),
    "c4 e2 60 5e c2": ("tdpbuud", 5, {"reg": 0, "rm": 2, "vvvv": 3}),
}


@pytest.mark.parametrize("text", ENCODED)
def test_instructions_are_decoded(text: str) -> None:
    name, length, fields = ENCODED[text]
    one = decode(bytes.fromhex(text).ljust(15, b"\x90"))
    assert one is not None and (one.name, one.length) == (name, length)
    assert {key: getattr(one, key) for key in fields} == fields
    if "index" not in fields:
        assert one.index is None


@pytest.mark.parametrize("text", ["0f 0b", "c4 e2 fb 4b 04 20", "c4 e2 7f 4b 04 20", "c4 e3 7b 4b 04 20", "c5 f8 77"])
def test_other_instructions_are_not(text: str) -> None:
    """ud2; W1; 256 bits; map 0F3A; two-byte VEX."""
    assert decode(bytes.fromhex(text).ljust(15, b"\x90")) is None


def configured(*shapes: tuple[int, int]) -> TileState:
    config = np.zeros(64, np.uint8)
    config[0] = 1
    for i, (rows, columns) in enumerate(shapes):
        config[16 + 2 * i], config[48 + i] = columns, rows
    state = TileState()
    state.configure(config.tobytes())
    assert state.configuration() == config.tobytes()
    return state


def test_tiles_are_loaded_and_stored_by_rows_of_a_stride() -> None:
    memory = np.arange(1000, dtype=np.uint8)
    state = configured((3, 8))
    state.load(0, lambda at, size: memory[at : at + size].tobytes(), 5, 100)
    assert np.array_equal(state.data[0, :3, :8], [memory[at : at + 8] for at in (5, 105, 205)])
    assert not state.data[0, 3:].any() and not state.data[0, :, 8:].any()
    written: dict[int, bytes] = {}
    state.store(0, written.__setitem__, 7, 11)
    assert written == {7 + 11 * i: memory[5 + 100 * i : 13 + 100 * i].tobytes() for i in range(3)}


@pytest.mark.parametrize(("name", "signed"), [("ss", (1, 1)), ("su", (1, 0)), ("us", (0, 1)), ("uu", (0, 0))])
def test_bytes(name: str, signed: tuple[bool, bool]) -> None:
    rng = np.random.default_rng(1)
    m, k, n = 5, 7, 6
    state = configured((m, 4 * n), (m, 4 * k), (k, 4 * n))
    state.data[0, :m, : 4 * n] = rng.integers(0, 256, (m, 4 * n))
    state.data[1, :m, : 4 * k] = rng.integers(0, 256, (m, 4 * k))
    state.data[2, :k, : 4 * n] = rng.integers(0, 256, (k, 4 * n))
    before = state.data[0, :m, : 4 * n].copy().view("<i4").astype(object)
    a, b = state.data[1, :m, : 4 * k].copy(), state.data[2, :k, : 4 * n].copy()
    state.dot_int8(0, 1, 2, signed)
    x, y = a.view(np.int8 if signed[0] else np.uint8), b.view(np.int8 if signed[1] else np.uint8)
    for i in range(m):
        for j in range(n):
            total = before[i, j] + sum(int(x[i, 4 * g + e]) * int(y[g, 4 * j + e]) for g in range(k) for e in range(4))
            wrapped = (total + 2**31) % 2**32 - 2**31
            assert state.data[0, i, 4 * j : 4 * j + 4].view("<i4")[0] == wrapped


def test_bf16_is_summed_as_the_manual_says() -> None:
    rng = np.random.default_rng(2)
    m, k, n = 3, 16, 5
    x = rng.standard_normal((m, 2 * k)).astype(ml_dtypes.bfloat16)
    y = rng.standard_normal((k, 2 * n)).astype(ml_dtypes.bfloat16)
    c = rng.standard_normal((m, n)).astype("float32")
    state = configured((m, 4 * n), (m, 4 * k), (k, 4 * n))
    for tile, value in enumerate((c, x, y)):
        state.data[tile, : value.shape[0], : value[0].nbytes] = value.view(np.uint8).reshape(len(value), -1)
    state.dot_bf16(0, 1, 2)
    for i in range(m):
        for j in range(n):
            even = odd = np.float32(0)
            for g in range(k):
                even = np.float32(float(x[i, 2 * g]) * float(y[g, 2 * j]) + float(even))
                odd = np.float32(float(x[i, 2 * g + 1]) * float(y[g, 2 * j + 1]) + float(odd))
            assert state.data[0, i, 4 * j : 4 * j + 4].view("<f4")[0] == c[i, j] + (even + odd)


def bf16_of(x: float, y: float, c: float) -> np.float32:
    """c + x * y by one instruction."""
    state = configured((1, 4), (1, 4), (1, 4))
    state.data[0, 0, :4] = np.frombuffer(np.float32(c).tobytes(), np.uint8)
    state.data[1, 0, :2] = np.frombuffer(np.array(x, ml_dtypes.bfloat16).tobytes(), np.uint8)
    state.data[2, 0, :2] = np.frombuffer(np.array(y, ml_dtypes.bfloat16).tobytes(), np.uint8)
    state.dot_bf16(0, 1, 2)
    return state.data[0, 0, :4].view("<f4")[0]


def test_small_numbers_are_zero() -> None:
    tiny = 2.0**-127
    assert bf16_of(tiny, 2.0**60, 0) == 0  # an operand
    assert bf16_of(2.0**-70, 2.0**-70, 1.0) == 1.0  # a product
    assert bf16_of(0, 0, tiny) == 0  # the accumulator
    assert bf16_of(1.5, 2.0**-126, -(2.0**-126)) == 0  # the result
    assert bf16_of(2.0**-63, 2.0**-63, 0) == 2.0**-126
    assert np.isnan(bf16_of(np.nan, 0, 1)) and np.isnan(bf16_of(np.inf, 0, 1)) and bf16_of(3e38, 3e38, 0) == np.inf


def test_both_ways_to_sum_agree() -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((16, 16, 2)).astype(ml_dtypes.bfloat16).astype("float32") for _ in range(2))
    assert np.array_equal(_plain_sums(x, y), _exact_sums(x, y))


@pytest.mark.parametrize(
    ("config", "reason"),
    [({0: 2}, "palette 2"), ({0: 1, 3: 1}, "reserved"), ({0: 1, 16: 4, 48: 17}, r"rows \[17"),
     ({0: 1, 16: 68, 48: 1}, "68"), ({0: 1, 48: 3}, "rows"), ({0: 1, 56: 1, 32: 4}, "reserved"),
     ({0: 1, 1: 1}, "rows")],
)  # fmt: skip
def test_configurations_that_fault(config: dict[int, int], reason: str) -> None:
    data = bytearray(64)
    for place, value in config.items():
        data[place] = value
    with pytest.raises(Fault, match=reason):
        TileState().configure(bytes(data))


def test_uses_that_fault() -> None:
    with pytest.raises(Fault, match="not configured"):
        TileState().zero(0)
    state = configured((4, 16), (4, 8), (2, 16), (3, 16))
    state.dot_int8(0, 1, 2, (True, True))
    for registers in ((0, 1, 3), (0, 1, 1), (0, 0, 2), (3, 1, 2)):
        with pytest.raises(Fault, match="tile product"):
            state.dot_int8(*registers, (True, True))
    state.release()
    with pytest.raises(Fault, match="not configured"):
        state.zero(0)


def test_an_instruction_is_stepped_over() -> None:
    """Registers as a signal handler finds them: memory operands, and the instruction pointer moves on."""
    config = np.zeros(64, np.uint8)
    config[0], config[16], config[48] = 1, 4, 2
    data, out = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    code = b"".join([
        bytes.fromhex("c4 e2 78 49 01"),  # ldtilecfg (%rcx)
        bytes.fromhex("c4 a2 7b 4b 44 05 02"),  # tileloadd 2(%rbp,%r8), %tmm0
        bytes.fromhex("c4 82 7a 4b 04 0e"),  # tilestored %tmm0, (%r14,%r9)
        assemble("tilerelease"), b"\x90" * 15,
    ])  # fmt: skip
    memory = ctypes.create_string_buffer(code, len(code))
    start = ctypes.addressof(memory)
    registers = (ctypes.c_int64 * 23)()
    registers[14], registers[10], registers[0] = config.ctypes.data, data.ctypes.data, 10  # rcx, rbp, r8
    registers[6], registers[1], registers[16] = out.ctypes.data, 20, start  # r14, r9, rip
    emulator = Emulator()
    while emulator.step(registers):
        pass
    assert registers[16] == start + 23 and not emulator.faults
    assert out[:4].tolist() == [2, 3, 4, 5] and out[20:24].tolist() == [12, 13, 14, 15] and not out[24:].any()
    assert dict(emulator.executed) == dict.fromkeys(("ldtilecfg", "tileloadd", "tilestored", "tilerelease"), 1)
    assert struct.unpack("5B", assemble("tdpbssd", 0, 2, 3)) == tuple(bytes.fromhex("c4 e2 63 5e c2"))
