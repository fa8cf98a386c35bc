"""How kernels were chosen by measuring, as `tvm-ext compile` prints it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .common import print_table

_HEAD = ("kernel", "chosen", "measured", "default", "estimate", "candidates", "why")


def print_choices(kernels: Sequence[Mapping[str, Any]]) -> None:
    """One row a kernel of which there was something to measure; nothing if there is none."""
    rows = [_cells(kernel) for kernel in kernels if kernel.get("choice", {}).get("candidates")]
    if rows:
        print_table(_HEAD, rows)


def _cells(kernel: Mapping[str, Any]) -> tuple[str, ...]:
    choice = kernel["choice"]
    return (
        kernel["name"], f"{kernel['recipe']} by {choice['by']}", _us(choice.get("seconds")),
        _us(choice.get("default_seconds")), f"{kernel['estimated_us']:.1f} us",
        f"measured {choice['measured']} of {choice['candidates']}", choice["reason"],
    )  # fmt: skip


def _us(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e6 * seconds:.1f} us"
