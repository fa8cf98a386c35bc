"""Scheduling of kernels in whose bodies the variables of run-time sizes stand freely (:mod:`tvm_ext.core.sizes`)."""

import types
from collections.abc import Callable, Iterable
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_ext.core.group import Group


class UncheckedSchedule(Schedule):
    """A schedule whose methods are those that TVM's decorator `type_checked` wraps: the checks of arguments' Python
    types take as long as the scheduling itself.

    What has the wrong type is refused all the same, where TVM's C++ side takes it.
    """

    __slots__ = ()


for _name, _method in vars(Schedule).items():
    if isinstance(_method, types.FunctionType) and hasattr(_method, "__wrapped__"):
        setattr(UncheckedSchedule, _name, _method.__wrapped__)


def apply_schedule(function: tirx.PrimFunc, group: Group | None, schedule: Callable[[Schedule], None]) -> tirx.PrimFunc:
    """A kernel as `schedule` leaves it.

    TVM schedules no function with undefined variables: the sizes are its last parameters meanwhile.

    Args:
        group: whose kernel it is; None of one without run-time sizes.
    """
    sizes = symbols_of(group) if group is not None else []
    sch = UncheckedSchedule(with_params(function, [*function.params, *sizes]) if sizes else function)
    schedule(sch)
    scheduled = sch.mod["main"].without_attr("global_symbol")
    return with_params(scheduled, scheduled.params[: len(function.params)])


def symbols_of(group: Group) -> list[Any]:
    """The variables of the group's extents, each once."""
    extents = [e for shape in group.extents or () for e in shape if not isinstance(e, int)]
    return list(dict.fromkeys(var for e in extents for var in tirx.analysis.undefined_vars(e)))


def with_params(function: tirx.PrimFunc, params: Iterable[Any]) -> tirx.PrimFunc:
    """The function with other parameters."""
    return tirx.PrimFunc(list(params), function.body, function.ret_type, function.attrs)
