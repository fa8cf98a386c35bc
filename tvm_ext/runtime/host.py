"""Which machine this process runs on: what times measured elsewhere are told from."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from .cpu import FLAGS_OF_FEATURE, architecture

#: Fields of /proc/cpuinfo that tell one model of a CPU from another, on x86 and on Arm.
_FIELDS = (
    "vendor_id", "cpu family", "model", "stepping", "model name",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision",
)  # fmt: skip


@functools.cache
def host_identity(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The CPU's vendor, family, model, stepping and name, a hash of its instructions, and the number of cores.

    "AuthenticAMD 25 17 1 AMD EPYC, 1f6a09c2, 2 cores". A cloud may mask the name and the model number of a CPU, which
    is why the instructions count; that two machines have one identity means that times of one say what pays on the
    other.
    """
    facts = _first_core(cpuinfo)
    flags = set(facts.get("flags", facts.get("Features", "")).split())
    known = sorted({flag for names in FLAGS_OF_FEATURE.values() for flag in names if flag in flags})
    digest = hashlib.sha256(" ".join(known).encode()).hexdigest()[:8]
    name = " ".join(facts[field] for field in _FIELDS if facts.get(field)) or architecture()
    return f"{name}, {digest}, {os.cpu_count()} cores"


def _first_core(cpuinfo: str) -> dict[str, str]:
    """What Linux says of the first core; nothing if it says nothing."""
    try:
        text = Path(cpuinfo).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.strip().split("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
