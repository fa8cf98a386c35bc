"""MetaSchedule over the recipes' kernels: its own search, cost model and database, our measuring and design spaces."""

from ...core.records.schedule_database import Found, MetaScheduleDatabase
from .designs import Workload
from .extract import kernels_of
from .session import KernelSummary, Trial, TuneSummary
from .tune import tune_kernels

__all__ = [
    "Found", "KernelSummary", "MetaScheduleDatabase", "Trial", "TuneSummary", "Workload", "kernels_of", "tune_kernels",
]  # fmt: skip
