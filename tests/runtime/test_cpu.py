"""Features of CPUs: LLVM's names against the kernel's."""

import platform
from pathlib import Path

import pytest

from tvm_ext.core.machine import RELEVANT_FEATURES, Machine
from tvm_ext.runtime.cpu import FLAGS_OF_FEATURE, architecture, cpu_flags, host_identity, missing_features


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


# ------------------------------------------------------------ identity
X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2600.000
flags\t\t: fpu sse4_2 avx avx2 fma avx512f brand_new
bogomips\t: 5192.24

processor\t: 1
model\t\t: 99
"""
ARM = """processor\t: 0
Features\t: fp asimd asimddp sve
CPU implementer\t: 0x41
CPU variant\t: 0x1
CPU part\t: 0xd40
CPU revision\t: 1
"""


def identity(folder: Path, text: str) -> str:
    path = folder / f"cpuinfo{len(list(folder.iterdir()))}"
    path.write_text(text)
    return host_identity(str(path))


def test_it_names_the_model_and_holds_its_instructions(tmp_path: Path) -> None:
    one = identity(tmp_path, X86)
    assert one.startswith("AuthenticAMD 25 17 1 AMD EPYC, ") and one.endswith(" cores")
    assert identity(tmp_path, ARM).startswith("0x41 0x1 0xd40 1, ")


def test_clocks_and_flags_that_no_kernel_uses_do_not_change_it(tmp_path: Path) -> None:
    same = X86.replace("2600.000", "3100.5").replace(" brand_new", "").replace("5192", "5200")
    assert identity(tmp_path, same) == identity(tmp_path, X86)


def test_another_model_or_other_instructions_are_another_machine(tmp_path: Path) -> None:
    others = [X86, X86.replace(": 17", ": 18"), X86.replace(" avx512f", ""), X86.replace("EPYC", "Ryzen"), ARM]
    assert len({identity(tmp_path, text) for text in others}) == len(others)


def test_a_system_that_tells_nothing_has_one_all_the_same(tmp_path: Path) -> None:
    assert host_identity(str(tmp_path / "missing")) and identity(tmp_path, "")
