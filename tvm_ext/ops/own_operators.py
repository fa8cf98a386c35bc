"""Operators of Relax that TVM has not: how TVM comes to know them, prints them and reads them again."""

import types
from collections.abc import Callable
from typing import Any

import tvm
import tvm.script.parser.relax
import tvm_ffi
from tvm.ir import Call, Op

_NAMESPACE = "relax.tvm_ext."


def register(name: str, says: str, result_type: Callable[[Call, Any], Any]) -> Callable[..., Call]:
    """Register a pure operator once.

    Args:
        name: "relax.tvm_ext.NAME".
        says: what it does, in a sentence.
        result_type: (call, block builder) -> the type of its result.

    Returns:
        (operands, attributes by keyword) -> a call of it, as TVM's printer writes it: R.tvm_ext.NAME(..).
    """

    def make(*operands: Any, **attributes: Any) -> Call:
        return Call(Op.get(name), list(operands), tvm.ir.make_node("ir.DictAttrs", **attributes))

    if name not in Op.list_op_names():
        tvm.ir._ffi_api.RegisterOp(name, says)
        operator = Op.get(name)
        operator.set_attr("FInferType", tvm_ffi.convert(result_type))
        operator.set_attr("FPurity", True)
    of_dialect(**{name.removeprefix(_NAMESPACE): make})
    return make


def of_dialect(**functions: Any) -> None:
    """Have TVM's script know functions as R.tvm_ext.NAME."""
    for dialect in (tvm.script.relax, tvm.script.parser.relax):  # what R is in a text of its own, and what in a snippet
        known = vars(getattr(dialect, "tvm_ext", types.SimpleNamespace()))
        dialect.tvm_ext = types.SimpleNamespace(**{**known, **functions})
