"""Bytes of a program: round trip, checksum, and 1,000 changed programs whose checksum was made anew."""

import numpy as np
import pytest

from tests.byoc.systolic.programs import PREFIX, START, joined, mutated, sealed, sections, small_program
from tvm_ext.byoc.systolic.code.program import program_from_bytes
from tvm_ext.byoc.systolic.simulation.functional import run
from tvm_ext.byoc.systolic.simulation.timing import simulate
from tvm_ext.core.errors import InputError, ProgramError


@pytest.fixture(scope="module")
def data() -> bytes:
    return small_program().to_bytes()


def test_round_trip(data: bytes) -> None:
    program, again = small_program(), program_from_bytes(data)
    assert again.to_bytes() == data == sealed(data) == joined(*sections(data))
    assert again.accelerator == program.accelerator and again.tensors == program.tensors
    assert again.instructions == program.instructions and again.layers == program.layers
    x = np.random.default_rng(1).integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    np.testing.assert_array_equal(run(again, {"x": x})["y"], run(program, {"x": x})["y"])


def test_any_changed_byte_is_refused(data: bytes) -> None:
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x10
        with pytest.raises(ProgramError):
            program_from_bytes(bytes(changed))


def zlib_at(data: bytes) -> bytes:
    """The first bytes of the compressed instructions."""
    at = START + PREFIX.unpack_from(data)[2]
    return data[at : at + 16]


def test_what_is_wrong_is_named(data: bytes) -> None:
    changes = {
        "no program": b"ELF" + data[3:],
        "version 2": data[:8] + b"\2" + data[9:],
        "cut off at 20": data[:20],
        "bytes; .* are due": data[:-64],
        "do not decompress": sealed(data[:-START].replace(zlib_at(data), b"\0" * 16) + data[-START:]),
        "checksum": data[:-1] + bytes([data[-1] ^ 1]),
        "the header .* is malformed": sealed(data.replace(b'{"accelerator"', b'["accelerator"', 1)),
        "unknown setting 'rowz'": sealed(data.replace(b'"rows"', b'"rowz"', 1)),
        "rows=0": sealed(data.replace(b'"rows":4', b'"rows":0', 1)),
    }
    for message, changed in changes.items():
        with pytest.raises(ProgramError, match=message):
            program_from_bytes(changed)


@pytest.mark.parametrize(("seed", "dataflow"), [*((seed, None) for seed in range(10)), (10, "rs"), (11, "rs")])
def test_a_hundred_mutations(seed: int, dataflow: str | None) -> None:
    """An error that names what is wrong, or equal values from numpy and from the stepper; never anything else."""
    rng, data = np.random.default_rng(seed), small_program(dataflow).to_bytes()
    x = rng.integers(-128, 128, (1, 2, 4, 5), dtype=np.int8)
    ran = 0
    for _ in range(100):
        changed = mutated(rng, data)
        try:
            program = program_from_bytes(changed)
            values = run(program, {"x": x})
        except (ProgramError, InputError) as error:
            assert error.message
            continue
        ran += 1
        stepped = run(program, {"x": x}, backend="stepper")
        for name, value in values.items():
            np.testing.assert_array_equal(value, stepped[name])
        assert simulate(program).cycles <= simulate(program).totals.serial_cycles
    assert 0 < ran < 100
