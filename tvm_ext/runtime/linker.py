"""Finding the compiler driver that links an exported library."""

import os
import shlex
import shutil

from ..core.errors import ToolError

#: What TVM looks for on PATH, in its order.
LINKERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


def find_linker() -> str:
    """The command TVM will link with: $CXX, else $CC, else the first of :data:`LINKERS` on PATH.

    Raises:
        ToolError: there is none; says what was looked for and how to install one.
    """
    fix = 'install a C++ compiler ("apt install g++", "dnf install gcc-c++"), or set CXX to one'
    for variable in ("CXX", "CC"):
        if command := os.environ.get(variable):
            if shutil.which(command) is None:
                hint = " (TVM takes a program, without options)" if len(shlex.split(command)) > 1 else ""
                raise ToolError(f"export needs a linker, and {variable}={command!r} is no program{hint}", fix=fix)
            return command
    for name in LINKERS:
        if path := shutil.which(name):
            return path
    raise ToolError(f"export needs a linker; none of {', '.join(LINKERS)} is on PATH", fix=fix)
