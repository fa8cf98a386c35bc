"""Measuring candidates: worker processes build them, compare their outputs with the unscheduled function, time them."""

from .local import LocalMeasurer
from .measurement import MeasureError, Measurement, Measurer, TaskError, measuring
from .rpc import RPCMeasurer

__all__ = ["LocalMeasurer", "MeasureError", "Measurement", "Measurer", "RPCMeasurer", "TaskError", "measuring"]
