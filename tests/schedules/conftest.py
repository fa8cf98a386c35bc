"""Machines and random numbers for the tests of recipes."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_ext.core.machine import Machine


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(params=["host", "x86-64-v2"], ids=["host", "sse4.2"])
def machine(request: pytest.FixtureRequest) -> Machine:
    """This machine, and the same with 4 lanes: recipes must not know a vector width."""
    return Machine.detect(None if request.param == "host" else request.param, 2)
