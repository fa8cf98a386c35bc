"""Every error this library raises on purpose: what is wrong, with which object, and what to do about it.

All derive from :class:`TvmExtError`, and from the built-in class that a caller would expect
(`ValueError`, `TypeError`, `OSError`), so both `except TvmExtError` and plain Python habits work.
"""

from __future__ import annotations


class TvmExtError(Exception):
    """Base of all errors of this library.

    Args:
        message: what is wrong; names the object and what was expected.
        fix: what the user can do; printed on a line of its own.
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        self.message = message
        self.fix = fix
        super().__init__(f"{message}\n  fix: {fix}" if fix else message)


class OptionError(TvmExtError, ValueError):
    """A compile option is unknown, has the wrong type, or contradicts another one."""


class ModelError(TvmExtError, ValueError):
    """The model is not readable, not valid ONNX, or incomplete (missing external data, free dimensions)."""


class UnsupportedError(TvmExtError, NotImplementedError):
    """The model is valid, but this library or the pinned TVM cannot compile it; the message names the node."""


class InputError(TvmExtError, ValueError):
    """A run-time input does not fit the model: name, shape or dtype."""


class ArtifactError(TvmExtError, ValueError):
    """A file is not an artifact of this library, is damaged, or needs another version or instruction set."""


class StageError(TvmExtError, ValueError):
    """A stage file is damaged, of other versions or another machine, or holds what cannot be; names file and line."""


class ToolError(TvmExtError, OSError):
    """Something outside Python is missing or failed: a linker, a directory that cannot be written."""


class PassError(TvmExtError, RuntimeError):
    """A pass broke one of its own conditions, or raised: names the pass and the one before it."""


class ProgramError(TvmExtError, ValueError):
    """A program of an accelerator is damaged, malformed, or waits for ever; names the instruction."""


class DriverError(TvmExtError, RuntimeError):
    """The driver of a back end failed while a model ran; names the back end and the region."""
