"""Machines: detection, other CPUs, errors."""

from __future__ import annotations

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.core.machine import Machine, available_cores


def test_the_host() -> None:
    machine = Machine.detect()
    assert machine.threads == available_cores() >= 1
    assert machine.lanes in (4, 8, 16) and machine.registers in (16, 32)
    assert 4 << 10 <= machine.l1d <= machine.l2 <= 1 << 30
    assert str(machine.target().kind) == "llvm"


@pytest.mark.parametrize(
    ("target", "isa", "lanes", "registers"),
    [
        ("skylake-avx512", "avx512", 16, 32),
        ("haswell", "avx2", 8, 16),
        ("sandybridge", "avx", 8, 16),
        ("x86-64-v2", "sse4.2", 4, 16),
        ("aarch64-linux-gnu:cortex-a72", "neon", 4, 32),
    ],
)
def test_other_machines(target: str, isa: str, lanes: int, registers: int) -> None:
    machine = Machine.detect(target, 3)
    assert (machine.isa, machine.lanes, machine.registers, machine.threads) == (isa, lanes, registers, 3)
    assert machine.features == tuple(sorted(machine.features))
    assert machine.as_dict()["features"] == list(machine.features)


@pytest.mark.parametrize("target", ["no-such-cpu", "aarch64-linux-gnu:haswell", "nonsense:triple:cpu"])
def test_an_unknown_cpu_is_refused(target: str) -> None:
    with pytest.raises(OptionError, match="fix: leave target out"):
        Machine.detect(target)


@pytest.mark.parametrize("threads", [0, -1, 1.5, True])
def test_threads_are_a_whole_number(threads: object) -> None:
    with pytest.raises(OptionError, match="threads"):
        Machine.detect(None, threads)  # type: ignore[arg-type]
