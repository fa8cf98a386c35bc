"""Owners of ONNX nodes while passes run: what vanishes is owned by the pass that says why, else by nobody."""

import json

import tvm
from tvm import relax

from tvm_ext.core.graph.ownership import FOLD, KERNEL, MEMORY, REGION, Owner, Ownership, Role
from tvm_ext.core.graph.provenance import Provenance
from tvm_ext.core.passes import Event
from tvm_ext.core.plan import Kernel


def module(*chain: str) -> tvm.IRModule:
    """x -> a chain of negations, bound to these names."""
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    value, bindings = x, []
    for name in chain:
        call = relax.BlockBuilder().normalize(relax.op.negative(value))
        value = relax.DataflowVar(name, call.ty) if name != chain[-1] else relax.Var(name, call.ty)
        bindings.append(relax.VarBinding(value, call))
    function = relax.Function([x], relax.SeqExpr([relax.DataflowBlock(bindings)], value), value.ty)
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def started(*chain: str) -> tuple[Ownership, Provenance]:
    """Each variable computes the node of its own name in capitals; one more node was gone at import."""
    provenance = Provenance({name: [name.upper()] for name in chain})
    owners = Ownership({name.upper(): "Neg" for name in chain} | {"K": "Constant"}, {"K": "a constant of the model"})
    owners.see("import", module(*chain), provenance)
    return owners, provenance


def test_a_node_that_vanishes_is_owned_by_the_pass_with_its_reason() -> None:
    owners, provenance = started("a", "b", "c")
    owners.see("simplify", module("a", "c"), provenance, [Event("B", "negated twice", ("b",))])
    assert owners.gone == {
        "K": Owner(FOLD, "import", "a constant of the model"),
        "B": Owner(FOLD, "simplify", "negated twice"),
    }
    assert owners.passes == {"B": [("simplify", "negated twice")]}


def test_what_read_it_says_why_through_all_that_is_gone_with_it() -> None:
    owners, provenance = started("a", "b", "c", "d")
    owners.see("recognize", module("d"), provenance, [Event("D", "made one operator", ("d",))])
    assert {node: owners.gone[node].reason for node in "ABC"} == dict.fromkeys("ABC", "made one operator")


def test_without_a_reason_nobody_owns_it() -> None:
    owners, provenance = started("a", "b", "c")
    owners.see("lossy", module("a", "c"), provenance, [Event("A", "something else", ("a",))])
    owner = owners.owners({"k": Kernel("k", "dense", calls=[("A",), ("C",)])})
    assert owner["B"] == []
    assert owner["C"] == [Owner(KERNEL, "k", "", 1)]


def test_a_node_that_comes_back_by_provenance_is_not_gone() -> None:
    owners, provenance = started("a", "b")
    owners.see("one", module("a"), provenance, [Event("B", "joined", ("b",))])
    assert "B" in owners.gone
    provenance.record("c", ["a", "b"])
    owners.see("two", module("c"), provenance)
    assert "B" not in owners.gone


def test_after_grouping_it_is_another_reading_of_memory() -> None:
    owners, provenance = started("a", "b", "c")
    owners.see(
        "group-operations", module("a", "b", "c"), provenance, [Event("A", "one kernel", ("a",))], Role.MAKES_KERNELS
    )
    owners.see("assign-layouts", module("a", "c"), provenance, [Event("B", "another reading", ("b",))])
    assert owners.gone["B"] == Owner(MEMORY, "assign-layouts", "another reading")
    assert owners.passes == {}  # what makes kernels is told by the kernels
    owner = owners.owners({"k": Kernel("k", "offload:npu", calls=[("A",)])})
    assert owner["A"] == [Owner(REGION, "k", "", 0)]
    assert owner["C"][0].kind == MEMORY  # it is in the program, and no kernel


def test_plain_values() -> None:
    owners, _ = started("a")
    plain = owners.as_dict({"k": Kernel("k", "generic", reason="no recipe", calls=[("A",)])}, lambda name: f"{name}_n4")
    assert json.loads(json.dumps(plain)) == {
        "A": {
            "op": "Neg", "passes": [],
            "owners": [{"kind": "kernel", "name": "k_n4", "call": 0, "reason": "no recipe"}],
        },
        "K": {
            "op": "Constant", "passes": [],
            "owners": [{"kind": "fold", "name": "import", "reason": "a constant of the model"}],
        },
    }  # fmt: skip


def test_without_nodes_nothing_is_kept() -> None:
    owners = Ownership()
    owners.see("import", module("a"), Provenance({"a": ["A"]}))
    owners.see("gone", module("b"), Provenance({"b": ["B"]}))
    assert owners.gone == {} and owners.owners({}) == {}
