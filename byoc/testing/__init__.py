"""The test kit: checks any back end on small models against onnxruntime, in other processes, threads, and damage."""

from .case import Case
from .graphs import KitModel, Tensor, graph
from .kit import KitReport, KitRow, cases, check_backend

__all__ = ["Case", "KitModel", "KitReport", "KitRow", "Tensor", "cases", "check_backend", "graph"]
