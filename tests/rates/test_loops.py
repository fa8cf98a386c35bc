"""The loops that measure the machine do the work they are counted for; both calls check their own results."""

import numpy as np
import pytest
import tvm

from tvm_ext.benchmarking.machine_speed import CHAINS, call_of_fma, call_of_read, read_kernel, round_minimum
from tvm_ext.core.machine import Machine


@pytest.mark.parametrize("threads", [1, 2])
def test_a_read_sums_every_element(threads):
    machine = Machine.detect(None, threads)
    module, shape = read_kernel(machine, 1000)
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    out = tvm.runtime.tensor(np.full((shape[0], *shape[2:]), np.nan, np.float32))
    module["read"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), x.sum(1))
    call, size = call_of_read(machine, 1000)
    call()
    assert 4000 <= size == x.nbytes < 4000 + 4 * threads * CHAINS * machine.lanes


@pytest.mark.parametrize("threads", [1, 2])
def test_multiply_adds_are_counted(threads):
    machine = Machine.detect(None, threads)
    call, operations = call_of_fma(machine, 1000)
    call()
    assert operations == 2 * 1000 * CHAINS * machine.lanes


def test_a_round_gives_the_least_time(monkeypatch):
    from tvm_ext.benchmarking import machine_speed

    now = [0.0]
    costs = iter([0.5, 0.3, 0.2, 0.4, 0.9])
    monkeypatch.setattr(machine_speed.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += next(costs)

    # the first call takes the whole warm-up of 0.2 s; then 0.3 and 0.2 and 0.4 and 0.9 pass the second
    assert round_minimum(call, 1.0) == pytest.approx(0.2)
