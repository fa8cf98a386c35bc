"""What a region is estimated to take on the CPU: the estimates of the kernels that the same model gets there."""

import pytest

from benchmarks.offloading import int8
from tvm_ext.core.machine import machine_for
from tvm_ext.core.options import CompileOptions
from tvm_ext.driver.lower import Lowered
from tvm_ext.driver.programs import lower_all

MACHINE = "zen4"
STOCK_MACS = 0.65e9  #: a second
#: The largest case of each.
KINDS = {(case.kind, case.scales): case for case in int8.cases() if case.exact}


def lowered(case: int8.Case, **options: object) -> Lowered:
    chosen = CompileOptions.of(machine=MACHINE, **options)
    programs = lower_all(case.model, chosen, machine_for(chosen))
    return programs.lowered[programs.largest]


@pytest.mark.parametrize("case", KINDS.values(), ids=["-".join(kind) for kind in KINDS])
def test_quantized_layers_are_estimated_as_the_kernels_of_the_cpu(case: int8.Case) -> None:
    plan = lowered(case, offload="systolic", offload_options=int8.OPTIONS).ctx.offload
    assert plan is not None and len(plan.regions) == 1
    kernels = [kernel for kernel in lowered(case).ctx.kernels.values() if kernel.calls]
    if any(kernel.recipe == "generic" for kernel in kernels):  # weights less zero points are no int8: as stock TVM
        m, k, n = *case.inputs["x"].shape, 96
        assert case.kind == "MatMulInteger"
        assert plan.regions[0].host_seconds == pytest.approx(m * k * n / STOCK_MACS, rel=0.05)
        return
    alone = sum(kernel.estimate for kernel in kernels if kernel.recipe != "layout_transform")
    assert plan.regions[0].host_seconds == pytest.approx(alone)
