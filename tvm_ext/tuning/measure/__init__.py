"""Measuring candidates: worker processes build them, compare their outputs with the unscheduled function, time them."""

from .measurement import MeasureError, Measurement, Measurer, TaskError, measuring
from .measurers import LocalMeasurer, RPCMeasurer

__all__ = ["LocalMeasurer", "MeasureError", "Measurement", "Measurer", "RPCMeasurer", "TaskError", "measuring"]
