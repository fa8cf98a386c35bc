"""The compile driver: cache, import, passes, build."""

from __future__ import annotations

import functools
import hashlib
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import ToolError
from ..core.machine import Machine
from ..core.options import CompileOptions
from ..frontend.reader import Source, fingerprint, read_model
from ..runtime.artifact import write_artifact
from ..runtime.cpu import why_not_here
from ..runtime.library import load_library, write_library
from ..runtime.linker import find_linker
from ..runtime.model import CompiledModel
from ..runtime.spec import Metadata, TensorSpec, installed_versions
from .cache import Cache, CacheWarning, cache_key

if TYPE_CHECKING:
    from tvm.ir import IRModule
    from tvm.relax import VMExecutable

    from ..core.passes import CompileContext
    from ..frontend.importer import Imported


def compile_model(model: Any, options: CompileOptions | None = None, **given: Any) -> CompiledModel:
    """Compile an ONNX model for a CPU; see :func:`tvm_ext.compile`.

    Args:
        model: a path, the bytes of an ONNX file, or a ModelProto.
        options: the options as one object; or give them by keyword.
        **given: fields of :class:`CompileOptions`.
    """
    options = options or CompileOptions.of(**given)
    clock = _Clock()
    sha256, _ = fingerprint(model)
    machine = Machine.detect(options.target, options.threads)
    if not options.cache or why_not_here(machine.as_dict()):
        return _in_memory(lower(model, options, machine, clock))
    versions = {**installed_versions(), "source": source_state()}
    cache, key = Cache(), cache_key(sha256, machine, options, versions)
    if (found := cache.load(key)) is not None:
        return found
    lowered = lower(model, options, machine, clock)
    if lowered.source.sha256 != sha256:  # the file was replaced meanwhile: its entry is that of what was read
        key = cache_key(lowered.source.sha256, machine, options, versions)
    return _through_cache(cache, key, lowered) or _in_memory(lowered)


@functools.cache
def source_state() -> str:
    """Sizes and times of this library's own files: a checkout that is worked on must not find old programs."""
    root = Path(__file__).parents[1]
    files = sorted(p for p in root.rglob("*.py")) + sorted((root / "schedules").glob("*.py"))
    stats = [(str(p.relative_to(root)), s.st_size, s.st_mtime_ns) for p in files for s in [p.stat()]]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


class _Clock:
    """Seconds of each stage, in the order they ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = round(now - self._last, 4), now


@dataclass
class Lowered:
    """A model after all passes, with what the metadata needs."""

    source: Source
    imported: Imported
    mod: IRModule
    ctx: CompileContext
    clock: _Clock

    def metadata(self) -> Metadata:
        """What the artifact says of itself."""
        from .build import has_parallel_loops

        weights = tuple(TensorSpec(f"w{i}", w.shape, str(w.dtype)) for i, w in enumerate(self.ctx.weights))
        return Metadata(
            self.imported.inputs, self.imported.outputs, weights, self.ctx.machine.threads,
            has_parallel_loops(self.mod), self.ctx.machine.as_dict(), installed_versions(),
            {"name": self.source.name, "sha256": self.source.sha256}, self._report(),
        )  # fmt: skip

    def _report(self) -> dict[str, Any]:
        kernels = [k.as_dict() for k in self.ctx.kernels.values() if k.calls]
        return {
            "kernels": kernels,
            "launches": sum(k["calls"] for k in kernels),
            "passes": [r.as_dict() for r in self.ctx.reports],
            "timing": dict(self.clock.seconds),
            "warnings": list(self.imported.warnings),
        }


def lower(model: Any, options: CompileOptions, machine: Machine, clock: _Clock | None = None) -> Lowered:
    """Import a model and run all passes: everything but the build."""
    from ..core.passes import CompileContext, run_passes
    from ..frontend.importer import import_model
    from ..passes.pipeline import pipeline

    clock = clock or _Clock()
    clock.lap("start")
    source = read_model(model)
    imported = import_model(source, options)
    clock.lap("import")
    ctx = CompileContext(machine, options, imported.provenance)
    mod = run_passes(pipeline(), imported.mod, ctx)
    clock.lap("passes")
    return Lowered(source, imported, mod, ctx, clock)


def _in_memory(lowered: Lowered) -> CompiledModel:
    """The program in this process, linked only if it is exported; for another CPU it can be nothing but exported."""
    from .build import build

    executable = build(lowered.mod, lowered.ctx.machine)
    lowered.clock.lap("build")
    module = None if why_not_here(lowered.ctx.machine.as_dict()) else executable.jit()
    lowered.clock.lap("load")
    return CompiledModel(module, lowered.ctx.weights, lowered.metadata(), executable.export_library)


def _through_cache(cache: Cache, key: str, lowered: Lowered) -> CompiledModel | None:
    """Link, put the artifact into the cache, and load what was linked: a cache hit later is the same machine code.

    None if nothing can be linked here: then the program stays in memory.
    """
    with tempfile.TemporaryDirectory(prefix="tvm-ext-") as folder:
        library = Path(folder, "library.so")
        try:
            find_linker()
        except ToolError:
            return None
        try:
            _build_library(lowered, library)
        except ToolError as error:
            warnings.warn(f"the model is compiled in memory, and every time: {error}", CacheWarning, stacklevel=3)
            return None
        metadata = lowered.metadata()
        cache.put(key, lambda path: write_artifact(path, library, lowered.ctx.weights, metadata, sync=False))
        code = memoryview(library.read_bytes())
    module = load_library(code, lowered.source.name)
    return CompiledModel(
        module, lowered.ctx.weights, metadata, lambda file: write_library(code, file), needs_linker=False
    )


def _build_library(lowered: Lowered, library: Path) -> None:
    from .build import build_objects

    with build_objects(lowered.mod, lowered.ctx.machine) as executable:
        lowered.clock.lap("build")
        _link(executable, library)
    lowered.clock.lap("link")


def _link(executable: VMExecutable, library: Path) -> None:
    """Write the executable as a shared library.

    Raises:
        ToolError: the linker failed.
    """
    try:
        executable.export_library(str(library))
    except Exception as error:  # whatever TVM raises of a command that fails or prints nonsense
        reason = str(error).strip().splitlines()[-1][:200]
        raise ToolError(f"linking by {find_linker()} failed: {reason}", fix="set CXX to a working compiler") from error
