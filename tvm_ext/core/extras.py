"""Libraries of the optional extras, imported where they are used."""

import importlib
from typing import Any

from .errors import ToolError


def extra(module: str, name: str, what: str) -> Any:
    """A module that an extra of this library brings.

    Args:
        module: its name, such as "matplotlib.figure".
        name: of the extra, as setup.cfg has it.
        what: what it is needed for, such as "a page".

    Raises:
        ToolError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        needed = module.partition(".")[0]
        raise ToolError(f"{what} needs {needed}: {error}", fix=f"pip install 'tvm-ext[{name}]'") from error
