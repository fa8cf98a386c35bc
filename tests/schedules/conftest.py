"""Machines and random numbers for the tests of recipes."""

import zlib

import numpy as np
import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.runtime.cpu import why_not_here


def runnable() -> dict[str, Machine]:
    """One machine for each instruction set this CPU runs: recipes must not know a vector width."""
    machines = {}
    for target in (None, "skylake-avx512", "haswell", "x86-64-v2"):
        machine = Machine.detect(target, 2)
        if not why_not_here(machine.as_dict()):
            machines.setdefault(machine.isa, machine)
    return machines


MACHINES = runnable()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(params=[*MACHINES][1:])
def other_machine(request: pytest.FixtureRequest) -> Machine:
    """One of another instruction set than this CPU's best."""
    return MACHINES[request.param]


@pytest.fixture
def case_machine(request: pytest.FixtureRequest) -> Machine:
    """One of all, by the name of the case: among many cases each instruction set has its share."""
    return [*MACHINES.values()][zlib.crc32(request.node.name.encode()) % len(MACHINES)]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]
