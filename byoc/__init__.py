"""Bring your own codegen: accelerators that run parts of a model."""

from .backend import Backend, Limits, Lowered, NoOptions, Pattern, Runner
from .region import Composite, Operand, Operation, Region, Value, multiply_adds
from .registry import backend_named, register

__all__ = [
    "Backend", "Composite", "Limits", "Lowered", "NoOptions", "Operand", "Operation", "Pattern", "Region", "Runner",
    "Value", "backend_named", "multiply_adds", "register",
]  # fmt: skip
