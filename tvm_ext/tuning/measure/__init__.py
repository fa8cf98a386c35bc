"""Measuring candidates: worker processes build them, compare their outputs with the unscheduled function, time them."""

from .measurement import MeasureError, Measurement, Measurer, TaskError, measuring
from .measurers import LocalMeasurer, RPCMeasurer, check_tracker

__all__ = [
    "LocalMeasurer", "MeasureError", "Measurement", "Measurer", "RPCMeasurer", "TaskError", "check_tracker",
    "measuring",
]  # fmt: skip
