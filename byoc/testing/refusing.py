"""Checks of what stays on the CPU: refusals with their reasons, and the choices of the user."""

from typing import Any

import numpy as np

from ...core.errors import OptionError
from .case import UnexpectedError, need
from .graphs import KitModel, Tensor, graph
from .subject import Subject, compared, faults, feeds_of

_MORE_WORK = 1 << 62
#: Of which the first that is beyond the limits is tried.
DTYPES = ("float64", "int32", "float16")


def unknown_operator(subject: Subject, model: KitModel) -> str:
    """An operator of no pattern stays on the CPU, with a reason, and the model is right."""
    return _all_on_cpu(subject, model, "")


def other_dtype(subject: Subject) -> str:
    """A matmul of a dtype beyond the limits stays on the CPU; the reason names the dtype."""
    dtype = next(name for name in DTYPES if name not in subject.backend.limits.dtypes)
    weight = np.arange(35).reshape(7, 5).astype(dtype)
    proto = graph(["y = MatMul(x, w)"], {"x": Tensor((3, 7), dtype)}, {"w": weight})
    return _all_on_cpu(subject, KitModel(f"matmul of {dtype}", "", proto, dtypes=(dtype,)), dtype)


def skipped(subject: Subject, by: str) -> str:
    """The option skip keeps a node on the CPU, by its name, its ONNX operator or TVM's.

    Args:
        by: "node", "onnx" or "tvm".
    """
    anchor, model = _anchor(subject), subject.main
    node, name = anchor["node"], anchor[by]
    compiled = subject.compile(model, skip=(name,))
    row = next(row for row in compiled.offload_report().ops if row.node == node)
    need(row.place == "cpu", f"skip={name!r}: node {node!r} runs on {row.place}: {row.reason}")
    feeds = feeds_of(compiled)
    wrong = faults(compared(compiled.run(feeds), feeds, model))
    need(not wrong, f"skip={name!r}: {wrong}")
    return f"skip={name!r}: {row.reason}"


def minimum_work(subject: Subject) -> str:
    """With a minimum of work that nothing reaches nothing is offloaded."""
    return _all_on_cpu(subject, subject.main, "minimum_work", minimum_work=_MORE_WORK)


def unknown_option(subject: Subject) -> str:
    """An option that the back end does not have is an error that names it."""
    try:
        subject.compile(subject.main, no_such_option=1)
    except OptionError as error:
        need("no_such_option" in str(error), f"an error that does not name it: {error}")
        return ""
    raise UnexpectedError("it was taken")


def _anchor(subject: Subject) -> dict[str, str]:
    """The first offloaded anchor of the main model: its ONNX node, and its operator of ONNX and of TVM."""
    region, _ = next(subject.regions(subject.main))
    anchor = region.composites[0].anchor
    rows = {row.node: row.op for row in subject.compiled(subject.main).offload_report().ops}
    node = next((node for node in anchor.nodes if node in rows), "")
    need(bool(node), f"{anchor} is of no ONNX node")
    return {"node": node, "onnx": rows[node], "tvm": anchor.op.removeprefix("relax.")}


def _all_on_cpu(subject: Subject, model: KitModel, why: str, **general: Any) -> str:
    """Nothing of a model is offloaded, a reason has `why` in it, and the numbers are right."""
    compiled = subject.compile(model, **general)
    rows = compiled.offload_report().ops
    there = [row.node for row in rows if row.place not in ("cpu", "compile time")]
    need(not there, f"{model}: offloaded are {', '.join(there)}")
    reasons = [row.reason for row in rows if row.place == "cpu"]
    reason = next((text for text in reasons if text and why in text), "")
    need(bool(reason), f"{model}: reasons {reasons}")
    feeds = feeds_of(compiled)
    wrong = faults(compared(compiled.run(feeds), feeds, model))
    need(not wrong, wrong)
    return f"{model}: {reason}"
