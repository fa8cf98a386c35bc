"""TVM's runtime library and its Relax VM, without importing the Python package `tvm` around them.

That package imports the compiler and a thousand modules, which takes longer than all else a deployment does. The
library alone, through `tvm_ffi`, is what TVM's C++ deployments use. A later `import tvm` finds it loaded.
"""

import ctypes
import functools
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_LIBRARY = "libtvm_runtime.so"
_CPU, _FIRST_DEVICE, _POOLED_ALLOCATOR = 1, 0, 2  # kDLCPU of DLPack; AllocatorType of TVM's memory manager


@functools.cache
def load_runtime() -> None:
    """Load TVM's runtime into this process, as `import tvm` does: once, with its symbols for everybody."""
    if "tvm" in sys.modules:
        return
    import tvm_ffi  # noqa: F401  (the runtime library needs its library)

    if (path := _library_path()) is not None:
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    else:  # an installation of another layout: it knows itself where its library is
        import tvm.runtime  # noqa: F401


def _library_path() -> Path | None:
    """Where `import tvm` would find the library: $TVM_LIBRARY_PATH, then the package."""
    package = find_spec("tvm")
    folders = [os.environ.get("TVM_LIBRARY_PATH", "")]
    folders += [os.path.join(folder, "lib") for folder in (package and package.submodule_search_locations) or ()]
    paths = [Path(folder, _LIBRARY) for folder in folders if folder]
    return next((path for path in paths if path.is_file()), None)


@functools.cache
def runtime_symbols() -> ctypes.CDLL:
    """The C symbols of the loaded runtime."""
    load_runtime()
    return ctypes.CDLL(None)


@functools.cache
def tvm_version() -> str:
    """The version of the installed TVM."""
    if version := version_of("apache-tvm"):
        return version
    import tvm.runtime  # built from source

    return str(tvm.__version__)


@functools.cache
def version_of(package: str) -> str:
    """The version of a package, "" if it is not installed. Looking it up takes milliseconds, and is done once."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def load_shared_library(path: str) -> Any:
    """The module of a shared library, whatever its file is called; unloaded when nothing refers to it any more."""
    load_runtime()
    import tvm_ffi

    # `load_module` would pick this loader by the file's extension, and keep the module for ever
    return tvm_ffi.get_global_func("ffi.Module.load_from_file.so")(path, "so")


def virtual_machine(module: Any) -> Any:
    """A new Relax VM over an executable; its functions are had by name, as `vm["main"]`."""
    load_runtime()
    vm = module["vm_load_executable"]()
    vm["vm_initialization"](_CPU, _FIRST_DEVICE, _POOLED_ALLOCATOR)
    return vm
