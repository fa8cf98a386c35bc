"""The machine that figures are measured on: what it is, and a short name made of that, which is its
folder's name.

amd-zen4-avx512-2c        vendor, microarchitecture, instruction set, cores
intel-avx512-amx-2c       a virtual machine that masks the model number: no microarchitecture is
                          told
"""

import functools
from collections.abc import Collection, Mapping
from typing import Any

from tvm_ext.core.machine import RELEVANT_FEATURES, Machine
from tvm_ext.runtime.cpu import architecture, first_core, missing_features
from tvm_ext.verification.environment import describe_machine

#: Instructions for narrow numbers, of which pages name those that a machine has.
NARROW = ("avx512vnni", "avx512bf16", "amx-int8", "amx-bf16")
_VENDORS = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}
#: What LLVM answers where it knows no better.
_NO_NAMES = ("", "generic", "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def machine_name(facts: Mapping[str, Any]) -> str:
    """The folder of a machine's results.

    Args:
        facts: "vendor", "processor" ("" where it is not known), "isa", "features" (in one text),
            "cores".
    """
    processor, isa = str(facts["processor"]).replace("znver", "zen"), str(facts["isa"])
    parts = [facts["vendor"], processor, "" if processor.endswith(isa) else isa]
    parts.append("amx" if "amx-tile" in facts["features"].split() else "")
    return "-".join([*filter(None, parts), f"{facts['cores']}c"])


@functools.cache
def this_machine() -> dict[str, Any]:
    """Plain facts of this machine: its name, vendor, LLVM's name of the processor, features,
    caches, cores, memory."""
    seen = Machine.detect()
    features = [name for name in RELEVANT_FEATURES if not missing_features([name])]
    facts = {
        **describe_machine(), "vendor": _vendor(), "processor": _processor(features),
        "isa": seen.isa, "features": " ".join(features), "l1d": seen.l1d, "l2": seen.l2,
        "l3": seen.l3,
    }  # fmt: skip
    return {"name": machine_name(facts), **facts}


def machine_text(machine: Mapping[str, Any]) -> str:
    """One line: the name, the CPU, cores, memory, system and versions."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    name = f"{machine['name']}: " if machine.get("name") else ""
    size = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB"
    return f"{name}{size}; {machine['system']}; Python {machine['python']}; {versions}"


def instructions(machine: Mapping[str, Any]) -> str:
    """The instruction set, and what there is for narrow numbers."""
    features = machine["features"].split()
    return ", ".join([machine["isa"], *(name for name in NARROW if name in features)])


def known_name(mcpu: str, implied: Collection[str], features: Collection[str]) -> str:
    """LLVM's name of a CPU, "" where the CPU is another one: it has features that the name does not
    imply, as a virtual machine has that masks the model number.

    Args:
        mcpu: LLVM's name.
        implied: features that LLVM knows of it.
        features: those that the CPU has, of the same names.
    """
    return "" if mcpu in _NO_NAMES or set(features) - set(implied) else mcpu


def _processor(features: Collection[str]) -> str:
    import tvm
    from tvm.target import codegen

    mcpu = str(codegen.llvm_get_system_cpu())
    implied = codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mcpu": mcpu}))
    return known_name(mcpu, {str(name) for name in implied}, features)


def _vendor(cpuinfo: str = "/proc/cpuinfo") -> str:
    """ "amd", "intel", another one's own word, or the architecture where Linux names none."""
    named = first_core(cpuinfo).get("vendor_id", "")
    return _VENDORS.get(named, named.lower()) or architecture()
