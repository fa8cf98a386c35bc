"""The loops that measure the machine do the work they are counted for; both calls check their own results."""

import numpy as np
import pytest
import tvm

from tvm_ext.core.machine import Machine
from tvm_ext.rates import loops
from tvm_ext.rates.loops import CHAINS, call_of_fma, call_of_read, read_kernel, round_minimum


@pytest.mark.parametrize("threads", [1, 2])
def test_a_read_sums_every_element(threads):
    machine = Machine.detect(None, threads)
    module = tvm.compile(read_kernel(machine.lanes, threads, "read"), target=machine.target())
    shape, start = (threads, 3, CHAINS, machine.lanes), 5
    x = np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)
    out = tvm.runtime.tensor(np.full((shape[0], *shape[2:]), np.nan, np.float32))
    module["read"](2, start, shape[1], tvm.runtime.tensor(np.concatenate([np.zeros(start, "f4"), x.ravel()])), out)
    np.testing.assert_array_equal(out.numpy(), 2 * x.sum(1))
    call, size = call_of_read(machine, 1000)
    call()
    assert (
        4000 <= size < 4000 + 4 * threads * CHAINS * machine.lanes
        and size % (4 * threads * CHAINS * machine.lanes) == 0
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_multiply_adds_are_counted(threads):
    machine = Machine.detect(None, threads)
    call, operations = call_of_fma(machine, 1000)
    call()
    assert operations == 2 * 1000 * CHAINS * machine.lanes


def test_a_round_gives_the_least_time(monkeypatch):
    now = [0.0]
    costs = iter([0.5, 0.3, 0.2, 0.4, 0.9])
    monkeypatch.setattr(loops.time, "perf_counter", lambda: now[0])

    def call():
        now[0] += next(costs)

    # the first call takes the whole warm-up of 0.2 s; then 0.3 and 0.2 and 0.4 and 0.9 pass the second
    assert round_minimum(call, 1.0) == pytest.approx(0.2)


@pytest.mark.parametrize("shift", [0, 1])
def test_an_exchange_reads_what_a_thread_wrote(shift):
    machine = Machine.detect(None, 2)
    module = tvm.compile(loops.exchange_kernel(machine.lanes, 2), target=machine.target())
    x = tvm.runtime.tensor(np.full(2 * 3 * CHAINS * machine.lanes, np.nan, np.float32))
    out = tvm.runtime.tensor(np.full((2, CHAINS, machine.lanes), np.nan, np.float32))
    module["exchange"](4, 3, shift, x, out)
    np.testing.assert_array_equal(x.numpy(), 4.0)  # the last pass
    np.testing.assert_array_equal(out.numpy(), 12.0)


def test_a_chain_of_integers_is_as_long_as_it_says():
    machine = Machine.detect(None, 1)
    module = tvm.compile(loops.chain_kernel(), target=machine.target())
    factor, value = 0x9E3779B97F4A7C15, 1
    x = tvm.runtime.tensor(np.array([value, factor], np.uint64))
    module["chain"](7, x)
    for _ in range(7):
        value = (value ^ factor) * factor % 2**64
    assert int(x.numpy()[0]) == value


def test_launches_are_counted():
    machine = Machine.detect(None, 2)
    module = tvm.compile(loops.launch_kernel(2), target=machine.target())
    out = tvm.runtime.tensor(np.full((2, 64), -1, np.int32))
    module["launch"](5, out)
    assert out.numpy()[:, 0].tolist() == [4, 4]
