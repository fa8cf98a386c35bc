"""What the cores at hand do in a cycle, measured by loops in TIR: the rates that estimates of kernels are made of."""

from .rates import Rates

__all__ = ["Rates"]
