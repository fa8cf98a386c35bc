"""The compile driver: cache, import, passes, build."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.collector import rare_collections
from ..core.errors import BuildError, ToolError, naming
from ..core.instruments import Instruments
from ..core.machine import machine_for
from ..core.options import CompileOptions
from ..frontend.reading.reader import content_of, read_model
from ..runtime.artifact import write_artifact
from ..runtime.cpu import why_not_here
from ..runtime.files import scratch_folder
from ..runtime.library import load_library, write_library
from ..runtime.linker import find_linker
from ..runtime.memory.arrays import together
from ..runtime.model import CompiledModel
from ..runtime.pool.threads import dispatcher
from ..runtime.spec import installed_versions
from .cache import Cache, CacheWarning, cache_key
from .lower import NO_INSTRUMENTS, Clock
from .programs import lower_all
from .records import fingerprint_of

if TYPE_CHECKING:
    from tvm.relax import VMExecutable

    from .assemble import Assembled


def compile_model(
    model: Any, options: CompileOptions | None = None, instruments: Instruments = NO_INSTRUMENTS, **fields: Any
) -> CompiledModel:
    """Compile an ONNX model for a CPU; see :func:`tvm_ext.compile`.

    Args:
        model: a path, the bytes of an ONNX file, or a ModelProto.
        options: the options as one object; or give them by keyword.
        instruments: what looks at the compile, or is switched off in it; with any, the cache is left alone.
        **fields: fields of :class:`CompileOptions`.
    """
    options = options or CompileOptions.of(**fields)
    dispatcher.choose_wait(options.threads_wait)
    clock = Clock()
    with rare_collections, naming(BuildError, lambda: f"the compile failed after stage {clock.stage!r}"):
        return _compiled(model, options, instruments, clock)


def _compiled(model: Any, options: CompileOptions, instruments: Instruments, clock: Clock) -> CompiledModel:
    content = content_of(model)  # read once: a file that is replaced meanwhile is another model
    machine = machine_for(options)
    alone = instruments or not options.cache or has_no_key(options) or why_not_here(machine.as_dict())
    key, cache = "", None if alone else Cache()
    if cache is not None:
        versions = {**installed_versions(), "source": source_state(), "records": fingerprint_of(options, machine)}
        key = cache_key(content.sha256, machine, options, versions)
        if (cached := cache.load(key)) is not None:
            return cached
    source = read_model(content)
    del content  # its bytes are as large as the model
    from .assemble import assemble

    assembled = assemble(lower_all(source, options, machine, clock, instruments))
    through = None if cache is None else _through_cache(cache, key, assembled)
    return through or in_memory(assembled)


def has_no_key(options: CompileOptions) -> bool:
    """Whether something takes part that may change without a trace: a function, or a back end from elsewhere."""
    if options.offload is None:
        return callable(options.fusion)
    from ..byoc.registry import backend_named

    own = isinstance(options.offload, str) and backend_named(options.offload).module.startswith("tvm_ext.")
    return callable(options.fusion) or not own


@functools.cache
def source_state() -> str:
    """Sizes and times of this library's own files: a checkout that is worked on must not find old programs."""
    root = Path(__file__).parents[1]
    linked = [path for folder in ("byoc", "schedules") for path in (root / folder).rglob("*.py")]
    files = sorted({*root.rglob("*.py"), *linked})
    stats = [(str(p.relative_to(root)), s.st_size, s.st_mtime_ns) for p in files for s in [p.stat()]]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


def in_memory(assembled: Assembled) -> CompiledModel:
    """The program in this process, linked only if it is exported; for another CPU it can be nothing but exported."""
    from .build import build

    executable = build(assembled.mod, assembled.ctx)
    assembled.clock.lap("build")
    with naming(BuildError, lambda: f"{assembled.source.name}: the program cannot be loaded"):
        module = None if why_not_here(assembled.machine.as_dict()) else executable.jit()
    assembled.clock.lap("load")
    compact = assembled.compact()
    return CompiledModel(
        module, together(assembled.weights), assembled.metadata(), executable.export_library, lambda: compact
    )


def _through_cache(cache: Cache, key: str, assembled: Assembled) -> CompiledModel | None:
    """Link, put the artifact into the cache, and load what was linked: a cache hit later is the same machine code.

    None if nothing can be linked here: then the program stays in memory.
    """
    reports = len(assembled.ctx.reports)
    try:
        find_linker()
    except ToolError:
        return None
    with contextlib.ExitStack() as stack:
        try:
            library = stack.enter_context(scratch_folder()) / "library.so"
            _build_library(assembled, library)
        except ToolError as error:
            warnings.warn(f"the model is compiled in memory, and every time: {error}", CacheWarning, stacklevel=3)
            del assembled.ctx.reports[reports:]  # it is built again
            return None
        metadata, compact = replace(assembled.metadata(), expanded=True), assembled.compact()
        cache.put(key, lambda path: write_artifact(path, library, assembled.weights, metadata, compact, sync=False))
        code = memoryview(library.read_bytes())
    module, weights = load_library(code, assembled.source.name), together(assembled.weights)
    return CompiledModel(
        module, weights, metadata, lambda file: write_library(code, file), lambda: compact, needs_linker=False
    )


def _build_library(assembled: Assembled, library: Path) -> None:
    from .build import build_objects

    with build_objects(assembled.mod, assembled.ctx) as executable:
        assembled.clock.lap("build")
        _link(executable, library)
    assembled.clock.lap("link")


def _link(executable: VMExecutable, library: Path) -> None:
    """Write the executable as a shared library.

    Raises:
        ToolError: the linker failed.
    """
    with naming(ToolError, lambda: f"linking by {find_linker()} failed", fix="set CXX to a working compiler"):
        executable.export_library(str(library))
