"""TVM's schedules without its checks of their arguments' Python types, which take as long as the scheduling itself.

What has the wrong type is refused all the same, where TVM's C++ side takes it.
"""

from __future__ import annotations

import types

from tvm.s_tir import Schedule


class UncheckedSchedule(Schedule):
    """A schedule whose methods are those that TVM's decorator `type_checked` wraps."""

    __slots__ = ()


for _name, _method in vars(Schedule).items():
    if isinstance(_method, types.FunctionType) and hasattr(_method, "__wrapped__"):
        setattr(UncheckedSchedule, _name, _method.__wrapped__)
