"""Operations that a scheduled kernel executes, counted in its TIR: of Winograd fewer than its convolution states.

TVM's counter takes no `let` in a value, so what one binds is counted as a store of its own:

    out[i] = let t = a[i] + b[i] in t * t   ->   out[i] = a[i] + b[i]; out[i] = t * t
"""

from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import IRModule
from tvm.s_tir.analysis import estimate_tir_flops


def executed_flops(kernel: tirx.PrimFunc) -> float | None:
    """Operations on values of one call, comparisons and index arithmetic left out; None where TVM cannot count them."""
    try:
        body = tvm_ffi.structural_map(kernel.body, (tirx.BufferStore, _without_lets))
        plain = tirx.PrimFunc(kernel.params, body, kernel.ret_type, kernel.attrs)
        return float(estimate_tir_flops(IRModule({"main": plain})))
    except Exception:  # TVM raises its own errors, of many kinds, for loops and calls that it cannot count
        return None


def _without_lets(store: tirx.BufferStore) -> Any:
    """Stores of all that is bound in a store's value, then of the value."""
    bound: list[Any] = []

    def unbind(let: Any) -> Any:
        bound.append(let.value)
        return let.body

    value = tvm_ffi.structural_map(store.value, (tirx.Let, unbind))
    if not bound:
        return store
    stores = [tirx.BufferStore(store.buffer, x, store.indices) for x in (*bound, value) if x.ty == value.ty]
    return tirx.SeqStmt(stores) if len(stores) > 1 else stores[0]  # TVM refuses a sequence of one statement
