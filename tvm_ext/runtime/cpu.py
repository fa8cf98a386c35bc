"""What the kernel reports of this CPU: whether it can run code for features by LLVM's names, and which one it is."""

import functools
import hashlib
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .tiles import needs_tiles, why_no_tiles

#: Threads that kernels can be planned for.
MOST_THREADS = 1024
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

#: Fields of /proc/cpuinfo that tell one model of a CPU from another, on x86 and on Arm.
_FIELDS = (
    "vendor_id", "cpu family", "model", "stepping", "model name",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip
_SAME_ARCHITECTURE = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


def architecture(name: str | None = None) -> str:
    """The architecture under one spelling: "x86_64", "aarch64". None asks for this machine's."""
    name = (name or platform.machine()).lower()
    return _SAME_ARCHITECTURE.get(name, name)


@functools.cache
def first_core(cpuinfo: str = "/proc/cpuinfo") -> Mapping[str, str]:
    """What Linux says of the first core; nothing if it says nothing."""
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.strip().split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@functools.cache
def cpu_flags(cpuinfo: str = "/proc/cpuinfo") -> frozenset[str]:
    """Flags the kernel reports for the first core; empty if it reports none."""
    core = first_core(cpuinfo)
    return frozenset(core.get("flags", core.get("Features", "")).split())


def available_cores() -> int:
    """Cores this process may use: its affinity mask, which containers and `taskset` set."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


@functools.cache
def host_identity(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The CPU's vendor, family, model, stepping and name, a hash of its instructions, and the number of cores.

    "AuthenticAMD 25 17 1 AMD EPYC, 1f6a09c2, 2 cores". A cloud may mask the name and the model number of a CPU, which
    is why the instructions count; that two machines have one identity means that times of one say what pays on the
    other.
    """
    facts = first_core(cpuinfo)
    known = sorted(cpu_flags(cpuinfo) & {flag for names in FLAGS_OF_FEATURE.values() for flag in names})
    digest = hashlib.sha256(" ".join(known).encode()).hexdigest()[:8]
    name = " ".join(facts[field] for field in _FIELDS if facts.get(field)) or architecture()
    return f"{name}, {digest}, {os.cpu_count()} cores"


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
