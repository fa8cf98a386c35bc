"""The machine and the versions a table was made on, as far as a reader needs them; nothing that names a host."""

import os
import platform
from typing import Any

from ..core.machine import available_cores
from ..runtime.cpu import first_core
from ..runtime.tvm_runtime import version_of

PACKAGES = ("tvm-ext", "apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "numpy")


def describe_machine() -> dict[str, Any]:
    """CPU name, cores, memory, system, Python and package versions."""
    return {
        "cpu": cpu_name(), "cores": available_cores(), "cores_total": os.cpu_count(), "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": platform.python_version(), "packages": {name: package_version(name) for name in PACKAGES},
    }  # fmt: skip


def cpu_name() -> str:
    """The CPU's name as the kernel gives it, or its architecture."""
    return first_core().get("model name") or platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Version of an installed distribution; "not installed" otherwise."""
    return version_of(name) or "not installed"


def _memory_gib() -> float:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return 0.0
