"""Checks of the installation, each with a finding of either kind."""

import configparser
import dataclasses
import json
import pathlib

import pytest

from tvm_ext.core.machine import Machine
from tvm_ext.core.machine_files import descriptions
from tvm_ext.verification import doctor

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_pins_are_those_of_the_package():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = config["options"]["install_requires"].split()
    assert {f"{name}=={version}" for name, version in doctor.PINS.items()} <= set(wanted)
    assert {f"{name}>={'.'.join(map(str, least))}" for name, least in doctor.LEAST.items()} <= set(wanted)
    low, high = doctor.PYTHONS
    assert config["options"]["python_requires"] == f">={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"


def test_python():
    assert doctor.check_python().status == "ok"
    assert doctor.check_python((3, 9)).status == doctor.check_python((3, 14)).status == "fail"
    assert "3.10 to 3.13" in doctor.check_python((3, 9)).fix


def test_pinned_packages():
    assert doctor.check_pin("apache-tvm").status == doctor.check_pin("apache-tvm-ffi").status == "ok"
    wrong = doctor.check_pin("apache-tvm-ffi", "0.1.15.post1")
    assert wrong.status == "fail" and "MetaSchedule crashes" in wrong.detail
    assert wrong.fix.endswith("pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post1")


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("1.26.0", "ok"), ("2.4.6", "ok"), ("1.25.9", "fail"), ("1.9", "fail"), ("not installed", "fail"),
        ("2.0rc1", "ok"),
    ],
)  # fmt: skip
def test_least_versions(version, status):
    assert doctor.check_least("numpy", version).status == status


def test_linker(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CC", raising=False)
    (tmp_path / "gcc").write_text("#!/bin/sh\n")
    (tmp_path / "gcc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.check_linker() == doctor.Check("linker", "ok", str(tmp_path / "gcc"))
    (tmp_path / "gcc").unlink()
    missing = doctor.check_linker()
    assert missing.status == "fail" and missing.fix


def test_machine_is_described():
    check = doctor.check_machine()
    assert "f32 lanes" in check.detail and "L1d" in check.detail


def test_tile_registers_of_a_cpu_that_has_them():
    assert doctor.check_tiles({"avx2"}, "") == []
    (check,) = doctor.check_tiles({"amx_tile"}, "")
    (refused,) = doctor.check_tiles({"amx_tile"}, "Linux gives this process no AMX tile registers: reasons")
    assert check.status == "ok" and refused.status == "warn" and refused.detail.endswith("reasons")


def test_environment_surprises():
    assert [c.status for c in doctor.check_environment({}, 4)] == ["ok"]
    assert [c.status for c in doctor.check_environment({"OMP_NUM_THREADS": "4"}, 4)] == ["ok"]
    checks = doctor.check_environment({"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "8"}, 4)
    assert [(c.name, c.status) for c in checks] == [("TVM_NUM_THREADS", "warn"), ("OMP_NUM_THREADS", "warn")]
    assert doctor.check_environment({"TVM_USE_RUNTIME_LIB": "1"}, 4)[0].status == "fail"
    assert doctor.check_environment({"TVM_USE_RUNTIME_LIB": "0"}, 4)[0].status == "ok"


def test_cache_folder(tmp_path):
    assert doctor.check_writable(tmp_path / "new" / "folder").status == "ok"
    (tmp_path / "file").write_text("")
    blocked = doctor.check_writable(tmp_path / "file" / "folder")
    assert blocked.status == "warn" and "every compile is cold" in blocked.detail


@pytest.mark.parametrize(
    ("result", "status", "detail"),
    [
        ((0, json.dumps({"ok": True, "of_range": 1e-7, "text": ""}), ""), "ok", "1.0e-07"),
        (
            (1, json.dumps({"ok": False, "of_range": 1.0, "text": "a\nfailed: y: wrong\nNOT OK"}), ""),
            "fail",
            "y: wrong",
        ),
        ((-11, "", "Segmentation fault"), "fail", "signal 11"),
        ((1, "", "Traceback\nImportError: no tvm"), "fail", "ImportError: no tvm"),
    ],
)
def test_self_test_results(result, status, detail):
    check = doctor.self_test_result(*result)
    assert check.status == status and detail in check.detail


def test_a_check_that_breaks_is_a_failed_check():
    def broken():
        raise RuntimeError("oh")

    assert doctor._guarded("x", broken) == doctor.Check("x", "fail", "RuntimeError: oh")


@pytest.mark.parametrize("name", descriptions())
def test_rates_that_fit_the_processor(name):
    machine = Machine.described(name)
    assert doctor.check_rates(machine, machine.rates) == ""
    assert doctor.check_rates(machine, dataclasses.replace(machine.rates, clock=0.8, memory_all=500.0)) == ""


@pytest.mark.parametrize(
    ("machine", "over", "part"),
    [
        ("xeon-amx", {"fma": 1, "fma_half": 1}, "1 multiply-adds"),
        ("zen4", {"fma": 0.5, "fma_half": 1}, "0.5 multiply-adds"),
        ("zen5", {"fma": 1, "fma_half": 2}, "1 multiply-adds"),
        ("zen4", {"l2": 100}, "100"),
        ("zen4", {"l3": 40}, "40"),
        ("zen4", {"memory": 27}, "27"),
        ("zen4", {"l1": 16, "l2": 16, "l3": 16, "memory": 16, "memory_all": 16}, ""),
        ("zen4", {"fma": 1, "fma_half": 0.5}, ""),
        ("zen5", {"dot_int8": 1}, "1 vpdpbusd a cycle were measured, where such a processor does 2"),
        ("zen5", {"dot_bf16": 1}, "1 vdpbf16ps"),
        ("zen4", {"dot_int8": 0}, "0 vpdpbusd"),
        ("zen4", {"fma": 2, "dot_int8": 2, "dot_bf16": 1}, "1 vdpbf16ps"),
        ("zen4", {"dot_int8": 2, "dot_bf16": 4}, ""),
        ("xeon-skylake", {"dot_int8": 2}, ""),
        ("xeon-amx", {"tile_int8": 34.4}, "0.0291 tdpbssd a cycle were measured, where such a processor does 0.0581"),
        ("xeon-amx", {"tile_bf16": 32}, "tdpbf16ps"),
        ("xeon-amx", {"tile_bf16": 0}, "0 tdpbf16ps"),
        ("xeon-amx", {"tile_int8": 16, "tile_bf16": 16}, ""),
        ("xeon-amx", {"tile_l1": 46}, ""),
        ("xeon-amx", {"tile_l1": 29, "tile_l3": 3.7}, "L1, L2 and L3 deliver 29, 46, 3.7 bytes a cycle to tiles"),
    ],
)
def test_rates_that_contradict_the_processor(machine, over, part):
    described = Machine.described(machine)
    why = doctor.check_rates(described, dataclasses.replace(described.rates, **over))
    assert bool(why) == bool(part) and part in why


@pytest.mark.parametrize(("dot", "part"), [(2, ""), (1, "1 vpdpbusd a cycle"), (0.5, "0.5 vpdpbusd a cycle"), (0, "")])
def test_dot_products_of_a_machine_like_one_without_them_are_as_many_as_multiply_adds(dot, part):
    """0 is that of the other machine, taken for this one: nothing was measured."""
    skylake = Machine.described("xeon-skylake")
    machine = dataclasses.replace(skylake, features=(*skylake.features, "avx512vnni"))
    why = doctor.check_rates(machine, dataclasses.replace(skylake.rates, dot_int8=dot))
    assert bool(why) == bool(part) and part in why


def test_narrower_vectors_do_fewer_of_both():
    """A processor whose whole vectors take two halves."""
    machine = Machine.described("zen5")
    halved = dataclasses.replace(machine.rates, fma=1, fma_half=4, dot_int8=1, dot_bf16=1)
    assert doctor.check_rates(machine, halved) == ""


def test_the_machine_is_checked_by_its_measured_rates(monkeypatch):
    machine = Machine.described("zen5")
    slow = dataclasses.replace(machine.rates, fma=0.5, fma_half=0.5)
    monkeypatch.setattr(Machine, "detect", staticmethod(lambda: machine))
    monkeypatch.setattr(Machine, "measured", lambda self: dataclasses.replace(self, rates=slow))
    check = doctor.check_machine()
    assert check.status == "warn" and "0.5 multiply-adds" in check.detail and "--measure" in check.fix
    monkeypatch.setattr(Machine, "measured", lambda self: self)
    assert doctor.check_machine().status == "ok"
