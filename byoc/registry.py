"""Which back ends there are: those registered in this process, and those of packages (`tvm_ext.backends`)."""

import importlib.metadata

from ..core.errors import OptionError
from ..runtime.drivers import register_driver
from .backend import Backend

GROUP = "tvm_ext.backends"
_registered: dict[str, Backend] = {}


def register(backend: Backend) -> Backend:
    """Make a back end known in this process by its name; one of the same name is replaced.

    Its driver is known from now on too: artifacts that need it load.
    """
    if not isinstance(backend, Backend):
        raise OptionError(f"register({backend!r}): a Backend is needed")
    register_driver(backend.name, backend.driver)
    _registered[backend.name] = backend
    return backend


def backend_named(name: str) -> Backend:
    """The back end of that name.

    Raises:
        OptionError: there is none; the message lists those there are. An entry point is no back end.
    """
    if name in _registered:
        return _registered[name]
    entries = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if name not in entries:
        known = ", ".join(sorted({*_registered, *entries})) or "none"
        fix = "import the module that registers it, or install its package"
        raise OptionError(f"there is no back end {name!r}; known are: {known}", fix=fix)
    loaded = entries[name].load()
    if not isinstance(loaded, Backend) or loaded.name != name:
        raise OptionError(f"entry point {entries[name].value!r} in {GROUP} gives {loaded!r}, no Backend named {name!r}")
    return register(loaded)
