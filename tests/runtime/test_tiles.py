"""Permission for AMX tile registers: asked once, refused with a reason."""

import dataclasses
import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_ext.core import machine as machine_module
from tvm_ext.core.errors import ArtifactError
from tvm_ext.core.machine import Machine
from tvm_ext.runtime import cpu, tiles
from tvm_ext.runtime.artifact import read_artifact, write_artifact
from tvm_ext.runtime.model import load

FLAGS = frozenset({"avx2", "amx_tile", "amx_bf16", "amx_int8"})
MACHINE = {"isa": "avx512", "mcpu": "sapphirerapids", "triple": "", "features": ["amx-bf16", "amx-tile", "avx2"]}


def test_reasons_of_refusals() -> None:
    assert tiles.refusal(lambda: 0) == ""
    for number, words in (
        (errno.EOPNOTSUPP, "virtual machine"),
        (errno.EINVAL, "5.16"),
        (errno.ENOSPC, "signal stack"),
    ):
        reason = tiles.refusal(lambda number=number: number)
        assert reason.startswith("Linux gives this process no AMX tile registers: ") and words in reason
    assert "Numerical argument" in tiles.refusal(lambda: errno.EDOM)


def test_linux_gives_only_what_the_cpu_has() -> None:
    """A sandbox, or an older Linux, may refuse what the CPU has."""
    assert tiles.request() or "amx_tile" in cpu.cpu_flags()


def test_it_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(tiles, "refusal", lambda: asked.append(1) or "no")
    tiles.why_no_tiles.cache_clear()
    try:
        assert [tiles.why_no_tiles() for _ in range(3)] == ["no"] * 3 and len(asked) == 1
    finally:
        tiles.why_no_tiles.cache_clear()


@pytest.mark.parametrize("features", [["avx2"], []])
def test_nobody_asks_for_code_without_tiles(features: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "cpu_flags", lambda: FLAGS)
    monkeypatch.setattr(cpu, "why_no_tiles", lambda: pytest.fail("asked"))
    assert cpu.why_not_here({**MACHINE, "features": features}) == ""


def made_for(artifact: Path, path: Path, machine: dict[str, object]) -> Path:
    """The artifact, with another machine in its metadata."""
    read = read_artifact(artifact)
    elf = path.with_suffix(".elf")
    elf.write_bytes(read.library)
    write_artifact(path, elf, read.weights, dataclasses.replace(read.metadata, machine=machine))
    return path


def test_an_artifact_with_tiles_says_why_it_cannot_run(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_ext.runtime.model.load_library", lambda *_: pytest.fail("its code was about to be loaded"))
    path = made_for(artifact, tmp_path / "model.so", MACHINE)
    monkeypatch.setattr(cpu, "cpu_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(ArtifactError, match="it needs amx-bf16, amx-tile, which this"):
        load(path)
    monkeypatch.setattr(cpu, "cpu_flags", lambda: FLAGS)
    monkeypatch.setattr(cpu, "why_no_tiles", lambda: "Linux gives this process no AMX tile registers: reasons")
    with pytest.raises(ArtifactError, match=r"no AMX tile registers: reasons\n.*fix: compile it on this machine"):
        load(path)
    monkeypatch.setattr(cpu, "why_no_tiles", lambda: "")
    assert read_artifact(path).metadata.machine == MACHINE


def test_a_machine_without_permission_has_no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = frozenset({"avx2", "fma", "amx_tile", "amx_bf16"})
    monkeypatch.setattr(machine_module, "cpu_flags", lambda: flags)
    monkeypatch.setattr(machine_module, "why_no_tiles", lambda: "")
    host = machine_module._host.__wrapped__
    assert host().features == ("amx-bf16", "amx-tile", "avx2", "fma")
    monkeypatch.setattr(machine_module, "why_no_tiles", lambda: "no room")
    assert host().features == ("avx2", "fma")


def test_the_reason_is_that_of_linux_on_the_machine_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Machine.detect()
    monkeypatch.setattr(machine_module, "cpu_flags", lambda: FLAGS)
    monkeypatch.setattr(machine_module, "why_no_tiles", lambda: "no room")
    without = dataclasses.replace(host, features=("avx2",))
    assert without.why_no_tiles() == "no room"
    other = "nehalem"  # a CPU whose name no machine that runs this has
    assert dataclasses.replace(without, mcpu=other).why_no_tiles() == "nehalem has no amx-tile"
    assert Machine.detect("sapphirerapids", 1).why_no_tiles() == ""


def test_the_runtime_asks_without_tvm() -> None:
    code = "import sys; from tvm_ext.runtime import tiles; tiles.why_no_tiles(); assert 'tvm' not in sys.modules"
    root = str(Path(__file__).resolve().parents[2])
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
