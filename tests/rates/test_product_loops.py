"""Loops of instructions do the work they are counted for; each call checks its own sums."""

import re
from dataclasses import replace

import numpy as np
import pytest
import tvm

from tests.emulation.execution import MACHINE, tile_instructions
from tvm_ext.core.machine import Machine
from tvm_ext.rates import product_loops
from tvm_ext.rates.instructions import INSTRUCTIONS, tile_configuration
from tvm_ext.rates.product_loops import ACCUMULATORS, DOT_CHAINS, call_of_instruction

HOST = Machine.detect()
DOTS = [
    pytest.param(name, group, marks=pytest.mark.skipif(not has, reason=f"no {name}"))
    for name, group, has in (
        ("vpdpbusd", 4, "avx512vnni" in HOST.features), ("vdpbf16ps", 2, "avx512bf16" in HOST.features),
        ("vpmaddwd", 2, INSTRUCTIONS["vpmaddwd"].features(HOST.lanes) <= set(HOST.features)),
    )
]  # fmt: skip
TILES = [("tdpbf16ps", 2), ("tdpbusd", 4), ("tdpbssd", 4), ("tdpbsud", 4), ("tdpbuud", 4)]
#: CPUs that LLVM compiles for anywhere: without tiles and with them.
COOPER_LAKE = Machine.detect("cooperlake", 1)
SAPPHIRE_RAPIDS = Machine.detect("sapphirerapids", 1)


def loop_of(kernel: tvm.tirx.PrimFunc, machine: Machine, instruction: str) -> list[str]:
    """Lines of assembly of the blocks that jump to themselves and have an instruction: a loop, and what it leaves."""
    name = str(kernel.attrs["global_symbol"])
    text = tvm.compile(tvm.IRModule({name: kernel}), target=machine.target()).mod.inspect_source("asm")
    blocks = re.split(r"^(\.LBB\w+):", text, flags=re.M)
    loops = [
        body.split(f"\t{label}\n")[0]
        for label, body in zip(blocks[1::2], blocks[2::2], strict=True)
        if f"\t{instruction}\t" in body and re.search(rf"\tj\w+\t{re.escape(label)}\n", body)
    ]
    assert loops
    return [line.strip() for body in loops for line in body.splitlines()]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "group"), DOTS)
def test_dot_products_are_counted(name: str, group: int, threads: int) -> None:
    call, operations = call_of_instruction(Machine.detect(None, threads), name, 1000)
    call()
    assert operations == 2 * 1000 * DOT_CHAINS * HOST.lanes * group


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("name", "group"), TILES)
def test_products_of_tiles_are_counted(name: str, group: int, threads: int) -> None:
    with tile_instructions() as amx:
        call, operations = call_of_instruction(MACHINE.with_threads(threads), name, 24)
        call()
    amx.assert_counts(**{name: 48})
    amx.assert_configured(2 * threads)
    assert operations == 2 * 24 * 16 * 16 * 16 * group


@pytest.mark.parametrize("name", ["vpdpbusd", "vdpbf16ps"])
def test_a_loop_of_dot_products_has_nothing_but_its_instruction(name: str) -> None:
    """A chain that left its register would measure the cache."""
    lines = loop_of(product_loops.product_kernel(INSTRUCTIONS[name], 1, "dot"), COOPER_LAKE, name)
    products = [match for line in lines if (match := re.fullmatch(rf"{name}\t(.*), %zmm(\d+)", line))]
    assert len({match[2] for match in products}) == DOT_CHAINS and len(products) % DOT_CHAINS == 0
    assert not any("(" in match[1] for match in products)
    assert not [line for line in lines if re.match(r"v(?!pdpbusd|dpbf16ps)\w+\t", line)]


@pytest.mark.parametrize(("machine", "register"), [("zen3-avx2", "ymm"), ("xeon-skylake", "zmm")])
def test_a_loop_of_pairs_has_products_and_sums_alone(machine: str, register: str) -> None:
    described = Machine.described(machine)
    kernel = product_loops.product_kernel(INSTRUCTIONS["vpmaddwd"], 1, "dot", described.lanes)
    lines = loop_of(kernel, described, "vpmaddwd")
    products = [
        line for line in lines if re.fullmatch(rf"vpmaddwd\t%{register}\d+, %{register}\d+, %{register}\d+", line)
    ]
    assert len(products) == sum(line.startswith("vpmaddwd") for line in lines) and len(products) % DOT_CHAINS == 0
    assert {line.split("\t")[0] for line in lines if line.startswith("v")} == {"vpmaddwd", "vpaddd"}


@pytest.mark.parametrize("name", ["tdpbssd", "tdpbf16ps"])
def test_a_loop_of_tiles_has_nothing_but_its_instruction(name: str) -> None:
    """Four accumulators, each of another pair of operands: no product waits for the one before."""
    lines = loop_of(product_loops.product_kernel(INSTRUCTIONS[name], 1, "tiles"), SAPPHIRE_RAPIDS, name)
    operands = [re.findall(r"%tmm(\d)", line) for line in lines if line.startswith(f"{name}\t")]
    assert {result for *_, result in operands} == {"0", "1", "2", "3"} and len(operands) % ACCUMULATORS == 0
    pairs = {tuple(sorted(pair)) for *pair, _ in operands}
    assert pairs == {("4", "6"), ("4", "7"), ("5", "6"), ("5", "7")}
    assert not [line for line in lines if re.match(r"(tile|v)\w+\t", line)]


def test_a_loop_of_loads_has_nothing_but_loads() -> None:
    lines = loop_of(product_loops.tile_read_kernel(), SAPPHIRE_RAPIDS, "tileloadd")
    loads = [match[1] for line in lines if (match := re.fullmatch(r"tileloadd\t.*, %tmm(\d)", line))]
    assert set(loads) == {"0", "1", "2", "3"} and len(loads) % 4 == 0
    assert not [line for line in lines if re.match(r"(tile(?!loadd)|tdp|v)\w+\t", line)]


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("steps", [1, 5])
def test_loads_are_of_the_whole_buffer(passes: int, steps: int) -> None:
    code = tvm.compile(product_loops.tile_read_kernel(), target=MACHINE.target())
    x = np.random.default_rng(passes).standard_normal(steps * product_loops.STEP_BYTES // 4).astype(np.float32)
    out = tvm.runtime.tensor(np.full(product_loops.LOADED_SHAPE, np.nan, np.float32))
    with tile_instructions() as amx:
        code["tile_read"](passes, steps, product_loops.configuration(), tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy().ravel(), x[-product_loops.STEP_BYTES // 4 :])
    amx.assert_counts(tileloadd=4 * passes * steps, tilestored=4)


def test_a_cpu_without_bfloat16_gets_none_of_it() -> None:
    """The function of vdpbf16ps comes with the kernels that call it alone."""
    machine = replace(COOPER_LAKE, features=tuple(f for f in COOPER_LAKE.features if f != "avx512bf16"))
    kernel = product_loops.product_kernel(INSTRUCTIONS["vpdpbusd"], 1, "dot")
    assert "tvm_ext_vdpbf16ps" not in tvm.compile(kernel, target=machine.target()).mod.inspect_source("ll")


def test_a_configuration_names_rows_and_bytes_of_each_register() -> None:
    config = tile_configuration([(16, 64), (3, 20)])
    assert len(config) == 64 and config[0] == 1
    assert [config[at] for at in (16, 17, 18, 48, 49)] == [64, 0, 20, 16, 3]
    assert sum(config) == 1 + 64 + 20 + 16 + 3


def test_an_unknown_instruction_is_named() -> None:
    with pytest.raises(ValueError, match="no instruction 'vmulps': there are vpdpbusd, vpmaddwd, vdpbf16ps"):
        call_of_instruction(Machine.detect(), "vmulps", 10)
