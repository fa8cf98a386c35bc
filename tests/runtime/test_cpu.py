"""Features of CPUs: LLVM's names against the kernel's."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tvm_ext.core.machine import RELEVANT_FEATURES, Machine
from tvm_ext.runtime.cpu import FLAGS_OF_FEATURE, architecture, cpu_flags, missing_features


def test_every_relevant_feature_can_be_checked() -> None:
    assert set(FLAGS_OF_FEATURE) == set(RELEVANT_FEATURES)


def test_the_host_has_what_llvm_finds_on_it() -> None:
    """LLVM asks the CPU, we ask the kernel: where both know a feature they must agree."""
    if not cpu_flags():
        pytest.fail("the kernel reports no CPU flags")
    assert missing_features(Machine.detect().features) == []


@pytest.mark.parametrize(
    ("line", "features", "missing"),
    [
        ("flags\t\t: fpu sse4_2 abm bmi1 avx512_vnni", ["sse4.2", "lzcnt", "bmi", "avx512vnni"], []),
        ("flags\t\t: fpu sse4_2 avx2", ["avx2", "avx512f", "amx-tile"], ["avx512f", "amx-tile"]),
        ("Features\t: fp asimd asimddp fphp asimdhp", ["neon", "dotprod", "fullfp16", "sve"], ["sve"]),
        ("Features\t: fp asimd fphp", ["neon", "fullfp16"], ["fullfp16"]),
        ("model name\t: something", ["avx"], ["avx"]),
        ("flags\t\t: unheard-of", ["unheard-of", "other"], ["other"]),
    ],
)
def test_kernel_flags(tmp_path: Path, line: str, features: list[str], missing: list[str]) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\n\nprocessor\t: 1\nflags\t\t: none\n")
    assert missing_features(features, cpu_flags(str(cpuinfo))) == missing


def test_no_cpuinfo_means_nothing_is_known(tmp_path: Path) -> None:
    assert cpu_flags(str(tmp_path / "none")) == frozenset()
    assert missing_features(["avx2"], frozenset()) == ["avx2"]
    assert missing_features([], frozenset()) == []


def test_architectures_have_one_spelling() -> None:
    assert architecture() == architecture(platform.machine())
    assert [architecture(n) for n in ("AMD64", "arm64", "x86_64", "riscv64")] == [
        "x86_64", "aarch64", "x86_64", "riscv64",
    ]  # fmt: skip
