"""MetaSchedule's log goes to a file: it prints every module it cannot build, and clears the output of notebooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tvm_ffi

#: TVM's loggers, of its task scheduler and its cost model among others; those of single kernels are below it.
_LOGGER = "tvm.s_tir.meta_schedule"
_IPYTHON = "s_tir.meta_schedule.using_ipython"


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """While this is open, all that MetaSchedule says is appended to a file, and nothing is printed."""
    logger = logging.getLogger(_LOGGER)
    before = logger.level, logger.propagate, logger.handlers[:]
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers = False, [handler]
    ipython = tvm_ffi.get_global_func(_IPYTHON)
    tvm_ffi.register_global_func(_IPYTHON, lambda: False, override=True)  # else it prints tables there, by pandas
    try:
        yield
    finally:
        tvm_ffi.register_global_func(_IPYTHON, ipython, override=True)
        logger.level, logger.propagate, logger.handlers = before
        handler.close()


def log_function(kernel: str) -> Callable[[int, str, int, str], None]:
    """What TVM calls to log something about a kernel: (level, file, line, message)."""
    logger = logging.getLogger(f"{_LOGGER}.kernel")

    def log(level: int, _file: str, _line: int, message: str) -> None:
        if level >= 0:
            logger.log(level, "%s: %s", kernel, message)

    return log
