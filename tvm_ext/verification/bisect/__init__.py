"""Which pass, recipe, layer, record or offloaded node introduced an error: found by switching halves off."""

from .result import Bisection, Culprit, Finding, Trial
from .search import KINDS, bisect

__all__ = ["KINDS", "Bisection", "Culprit", "Finding", "Trial", "bisect"]
