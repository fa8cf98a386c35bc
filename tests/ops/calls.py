"""What every operator's calls have to stand."""

from typing import Any

import tvm
import tvm_ffi

from tvm_ext.core.graph.relax_graph import bindings_of
from tvm_ext.core.group import Group


def assert_survives(group: Group, says: Any) -> None:
    """The call of a group is the same after TVM's text and after JSON, and so is what it says."""
    mod = tvm.IRModule({"g": group.function.without_attr("tvm_ext.group").without_attr("tvm_ext.constants")})
    for again in (tvm.script.from_source(mod.script()), tvm.ir.load_json(tvm.ir.save_json(mod))):
        assert tvm_ffi.structural_equal(again, mod)
        (call,) = (b.value for b in bindings_of(again["g"]))
        assert type(says).of(call) == says
