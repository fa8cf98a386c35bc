"""Checks of the installation, each with a finding of either kind."""

import configparser
import json
import pathlib

import pytest

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
    ("found", "status"),
    [
        ("1.26.0", "ok"),
        ("2.4.6", "ok"),
        ("1.25.9", "fail"),
        ("1.9", "fail"),
        ("not installed", "fail"),
        ("2.0rc1", "ok"),
    ],
)
def test_least_versions(found, status):
    assert doctor.check_least("numpy", found).status == status


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
    (given,) = doctor.check_tiles({"amx_tile"}, "")
    (refused,) = doctor.check_tiles({"amx_tile"}, "Linux gives this process no AMX tile registers: reasons")
    assert given.status == "ok" and refused.status == "warn" and refused.detail.endswith("reasons")


def test_environment_surprises():
    assert [c.status for c in doctor.check_environment({}, 4)] == ["ok"]
    assert [c.status for c in doctor.check_environment({"OMP_NUM_THREADS": "4"}, 4)] == ["ok"]
    found = doctor.check_environment({"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "8"}, 4)
    assert [(c.name, c.status) for c in found] == [("TVM_NUM_THREADS", "warn"), ("OMP_NUM_THREADS", "warn")]
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
