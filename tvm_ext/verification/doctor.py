"""Checks of the installation: versions, linker, machine, environment variables, cache folder, a tiny model."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ..core.errors import ToolError
from ..core.machine import Machine, available_cores
from ..rates import Rates
from ..rates.instructions import Product
from ..rates.measure import products_of
from ..runtime.cpu import cpu_flags
from ..runtime.linker import find_linker
from ..runtime.table import Plain
from ..runtime.tiles import why_no_tiles
from .environment import cpu_name, package_version

#: what this release was made for; setup.cfg pins the same
PINS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
LEAST = {"onnx": (1, 17), "onnxruntime": (1, 20), "numpy": (1, 26)}
PYTHONS = ((3, 10), (3, 13))
SELF_TEST_SECONDS = 180
#: How many times slower than promised an instruction may be: two measurements of one machine differ by less.
_SLOWER = 1.5


@dataclass(frozen=True)
class Check(Plain):
    """One finding.

    Attributes:
        name: what was looked at.
        status: "ok", "warn" (works, but surprises) or "fail".
        detail: what was found.
        fix: what to do about it; empty if there is nothing to do.
    """

    name: str
    status: str
    detail: str
    fix: str = ""


def run_checks() -> list[Check]:
    """All checks, in the order a reader would repair them. None raises: a check that breaks is a failed check."""
    checks = [_guarded("Python", check_python)]
    checks += [_guarded(name, functools.partial(check_pin, name)) for name in PINS]
    checks += [_guarded(name, functools.partial(check_least, name)) for name in LEAST]
    checks += [_guarded("linker", check_linker), _guarded("machine", check_machine)]
    checks += check_tiles(cpu_flags(), why_no_tiles()) if "amx_tile" in cpu_flags() else []
    checks += check_environment(os.environ, available_cores())
    return [*checks, _guarded("cache", check_cache), _guarded("self-test", check_self_test)]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        return Check(name, "fail", f"{type(error).__name__}: {error}")


def check_python(version: tuple[int, int] | None = None) -> Check:
    """Whether this Python is one the library is made for."""
    running = version or sys.version_info[:2]
    text = ".".join(map(str, running))
    if PYTHONS[0] <= running <= PYTHONS[1]:
        return Check("Python", "ok", text)
    low, high = (".".join(map(str, v)) for v in PYTHONS)
    return Check("Python", "fail", text, f"make an environment with Python {low} to {high}")


def check_pin(name: str, installed: str | None = None) -> Check:
    """Whether a package has exactly the pinned version."""
    installed, wanted = installed or package_version(name), PINS[name]
    if installed == wanted:
        return Check(name, "ok", installed)
    why = "; with others MetaSchedule crashes" if name == "apache-tvm-ffi" else ""
    pins = " ".join(f"{key}=={value}" for key, value in PINS.items())
    return Check(name, "fail", f"{installed}, but {wanted} is needed{why}", f"{sys.executable} -m pip install {pins}")


def check_least(name: str, version: str | None = None) -> Check:
    """Whether a package is there and new enough."""
    version, least = version or package_version(name), LEAST[name]
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers >= least:
        return Check(name, "ok", version)
    text = ".".join(map(str, least))
    return Check(name, "fail", f"{version}, but {text} is needed", f"{sys.executable} -m pip install '{name}>={text}'")


def check_linker() -> Check:
    """Whether something can link a shared library; only `export` and the cache need it."""
    try:
        return Check("linker", "ok", find_linker())
    except ToolError as error:
        return Check("linker", "fail", error.message, error.fix)


def check_machine() -> Check:
    """What the compiler sees of this machine."""
    m = Machine.detect()
    caches = ", ".join(f"{name} {size >> 10} KiB" for name, size in (("L1d", m.l1d), ("L2", m.l2), ("L3", m.l3)))
    text = f"{cpu_name()}: {m.isa} ({m.lanes} f32 lanes, {m.registers} registers), {m.threads} cores, {caches}"
    if m.isa == "scalar":
        return Check("machine", "warn", text, "no vector instructions were found: expect slow programs")
    if why := check_rates(m, m.measured().rates):
        return Check("machine", "warn", f"{text}; {why}", "stop other programs, then `tvm-ext machine --measure`")
    return Check("machine", "ok", text)


def check_rates(machine: Machine, measured: Rates) -> str:
    """What of the measured rates contradicts the processor; "" if nothing.

    Args:
        machine: as detected, with the rates of a similar machine.
    """
    typical = machine.rates
    if measured.fma < typical.fma and measured.fma_half <= typical.fma:
        return f"{measured.fma:g} multiply-adds a cycle were measured, where such a processor does {typical.fma:g}"
    for product in products_of(machine):
        speed, promised = (_speed(product, rates) for rates in (measured, typical))
        if not product.tiles:  # a processor with narrower vectors has fewer of both
            promised = (promised or typical.fma) * measured.fma / typical.fma
        if speed < promised / _SLOWER and (speed or _speed(product, typical)):
            done = f"{speed:.3g} {product.instruction} a cycle were measured"
            return f"{done}, where such a processor does {promised:.3g}"
    for what, names in (("", ("l1", "l2", "l3", "memory")), (" to tiles", ("tile_l1", "tile_l2", "tile_l3"))):
        order = [getattr(measured, name) for name in names]
        if order != sorted(order, reverse=True):
            text, levels = ", ".join(f"{value:g}" for value in order), ("L1", "L2", "L3", "memory")[: len(order)]
            delivered = f"{', '.join(levels[:-1])} and {levels[-1]} deliver {text} bytes a cycle{what}"
            return f"{delivered}: a cache is slower than what lies behind it"
    return ""


def _speed(product: Product, rates: Rates) -> float:
    """Instructions a cycle."""
    rate = float(getattr(rates, product.rate))
    return 1 / rate if product.tiles and rate else rate


def check_tiles(flags: Collection[str], refused: str) -> list[Check]:
    """Whether this process may use the tile registers of a CPU that has AMX; nothing is said of other CPUs.

    Args:
        flags: of the CPU, as the kernel reports them.
        refused: why Linux gives this process none; "" if it does.
    """
    if "amx_tile" not in flags:
        return []
    if refused:
        return [Check("AMX", "warn", refused, "bfloat16 and 8-bit models run by AVX-512 meanwhile")]
    return [Check("AMX", "ok", "Linux gives this process the tile registers")]


def check_environment(environ: Mapping[str, str], cores: int) -> list[Check]:
    """Variables that change threads or libraries behind the user's back; one finding each, or one that all is well."""
    checks = [
        Check(name, "warn", f"{name}={environ[name]} on {cores} cores", f"unset {name}, or give threads= to compile")
        for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")
        if environ.get(name, str(cores)) != str(cores)
    ]
    if environ.get("TVM_USE_RUNTIME_LIB", "0") not in ("", "0"):
        detail = "TVM_USE_RUNTIME_LIB is set: artifacts run, but nothing can be compiled"
        checks.append(Check("TVM_USE_RUNTIME_LIB", "fail", detail, "unset TVM_USE_RUNTIME_LIB"))
    return checks or [Check("environment", "ok", "no variable changes threads or libraries")]


def check_cache() -> Check:
    """Whether the cache folder can be written."""
    from ..driver.cache import Cache

    return check_writable(pathlib.Path(Cache().folder))


def check_writable(folder: pathlib.Path) -> Check:
    """Whether files can be made in a folder, which is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            return Check("cache", "ok", str(folder))
    except OSError as error:
        fix = "make the folder writable, or set TVM_EXT_CACHE to one that is"
        return Check("cache", "warn", f"{folder} cannot be written ({error.strerror}): every compile is cold", fix)


def check_self_test() -> Check:
    """Compile, run and verify a tiny model in a process of its own."""
    command = [sys.executable, "-m", "tvm_ext.verification.selftest"]
    root = str(pathlib.Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, timeout=SELF_TEST_SECONDS, env=env)
    except subprocess.TimeoutExpired:
        return Check("self-test", "fail", f"no answer within {SELF_TEST_SECONDS} s")
    return self_test_result(done.returncode, done.stdout, done.stderr)


def self_test_result(code: int, stdout: str, stderr: str) -> Check:
    """Read what the self-test's process left behind."""
    last = (stderr.strip().splitlines() or ["no message"])[-1]
    if code < 0:
        return Check("self-test", "fail", f"crashed with signal {-code}: {last}", "repair the versions above first")
    try:
        result = json.loads(stdout)
    except ValueError:
        return Check("self-test", "fail", f"exit code {code}: {last}", "python -m tvm_ext.verification.selftest")
    if result["ok"]:
        told = f"compiled, ran, agrees with onnxruntime ({result['of_range']:.1e} of the range)"
        return Check("self-test", "ok", told)
    return Check("self-test", "fail", "the outputs disagree with onnxruntime: " + result["text"].splitlines()[-2])
