"""The identity of a machine: what changes it, and what does not."""

from __future__ import annotations

from pathlib import Path

from tvm_ext.runtime.host import host_identity

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
