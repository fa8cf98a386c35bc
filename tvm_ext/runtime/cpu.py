"""Whether this CPU can run code compiled for given features: LLVM's names against what the kernel reports."""

from __future__ import annotations

import functools
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .tiles import needs_tiles, why_no_tiles

#: LLVM's feature name -> the flags of /proc/cpuinfo that must all be there. The kernel drops the flags of
#: instructions whose registers it does not save, so a flag means that the instructions can be used.
FLAGS_OF_FEATURE: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in (
        "avx", "avx2", "fma", "f16c", "bmi2", "movbe", "popcnt", "avx512f", "avx512bw", "avx512cd", "avx512dq",
        "avx512vl", "avx512vbmi", "avx512ifma", "vpclmulqdq", "vaes", "gfni", "sve", "sve2", "bf16", "i8mm",
    )},
    "sse4.2": ("sse4_2",), "bmi": ("bmi1",), "lzcnt": ("abm",), "sha": ("sha_ni",), "avxvnni": ("avx_vnni",),
    "avx512vnni": ("avx512_vnni",), "avx512bf16": ("avx512_bf16",), "avx512fp16": ("avx512_fp16",),
    "avx512vbmi2": ("avx512_vbmi2",), "avx512bitalg": ("avx512_bitalg",),
    "avx512vpopcntdq": ("avx512_vpopcntdq",),
    "amx-tile": ("amx_tile",), "amx-bf16": ("amx_bf16",), "amx-int8": ("amx_int8",),
    "neon": ("asimd",), "dotprod": ("asimddp",), "fullfp16": ("fphp", "asimdhp"),
}  # fmt: skip

_SAME_ARCHITECTURE = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


def architecture(name: str | None = None) -> str:
    """The architecture under one spelling: "x86_64", "aarch64". None asks for this machine's."""
    name = (name or platform.machine()).lower()
    return _SAME_ARCHITECTURE.get(name, name)


@functools.cache
def cpu_flags(cpuinfo: str = "/proc/cpuinfo") -> frozenset[str]:
    """Flags the kernel reports for the first core; empty if it reports none."""
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def missing_features(features: Iterable[str], flags: frozenset[str] | None = None) -> list[str]:
    """Features this CPU lacks, in the order given; one whose flags are not known counts as lacking.

    Args:
        features: LLVM names, such as "avx512f".
        flags: the CPU's flags; None asks the kernel.
    """
    flags = cpu_flags() if flags is None else flags
    return [name for name in features if not flags.issuperset(FLAGS_OF_FEATURE.get(name, (name,)))]


def why_not_here(machine: Mapping[str, Any]) -> str:
    """Why code compiled for a machine cannot run in this process; "" if it can.

    Args:
        machine: `Machine.as_dict()`: "isa", "mcpu", "triple" (empty for the host's) and "features".
    """
    made_for = f"compiled for {machine['mcpu']} ({machine['isa']})"
    if machine["triple"] and architecture(machine["triple"].split("-")[0]) != architecture():
        return f"{made_for} of {machine['triple']}, this machine is {architecture()}"
    if lacking := missing_features(machine["features"]):
        return f"{made_for}; it needs {', '.join(lacking)}, which this {architecture()} CPU lacks"
    if needs_tiles(machine["features"]) and (refused := why_no_tiles()):
        return f"{made_for}; {refused}"
    return ""


OTHER_MACHINE_FIX = 'compile it on this machine, or for a CPU this one can stand for, such as target="x86-64-v2"'
