"""Merging: neighbours in one region, never around something that has to run between them."""

from collections.abc import Callable, Container, Sequence
from typing import Any

from tvm.relax import op as R

from tests.byoc.interpreter import Settings, make
from tests.passes.helpers import build, const, random
from tvm_ext.byoc import Region
from tvm_ext.byoc.match import Matcher
from tvm_ext.byoc.merge import Merger
from tvm_ext.byoc.relax_view import RelaxView
from tvm_ext.core.graph.provenance import Provenance


def merged(body: Callable[..., Any], *shapes: Sequence[Any], alone: Container[str] = ()) -> tuple[list[Region], Merger]:
    """Regions of `main(x0, x1, ...)`; `alone` are names of results."""
    view = RelaxView(build(body, *shapes), Provenance())
    composites = Matcher(view, make(), Settings()).composites()
    merger = Merger(view, composites, [c for c in composites if c.result.name in alone])
    return merger.regions("r"), merger


def product(emit: Any, x: Any, seed: int = 0) -> Any:
    return emit(R.matmul(x, const(random(5, 5, seed=seed))))


def sizes(regions: Sequence[Region]) -> list[int]:
    return [len(region.composites) for region in regions]


def test_a_chain_is_one_region() -> None:
    regions, _ = merged(lambda emit, x: product(emit, product(emit, product(emit, x))), (5, 5))
    assert sizes(regions) == [3]
    assert [v.name for v in regions[0].inputs] == ["x0"]
    assert [v.name for v in regions[0].outputs] == [regions[0].composites[-1].result.name]


def test_what_runs_between_splits() -> None:
    regions, _ = merged(lambda emit, x: product(emit, emit(R.tanh(product(emit, x)))), (5, 5))
    assert sizes(regions) == [1, 1]


def test_a_branch_around_the_cpu_splits() -> None:
    """a -> b and a -> tanh -> b: in one region b would wait for what waits for the region."""

    def body(emit: Any, x: Any) -> Any:
        a = product(emit, x)
        return emit(R.matmul(a, emit(R.tanh(a))))

    assert sizes(merged(body, (5, 5))[0]) == [1, 1]


def test_branches_that_do_not_meet_are_one_region() -> None:
    def body(emit: Any, x: Any) -> Any:
        return product(emit, x), product(emit, x, 1), emit(R.tanh(product(emit, x, 2)))

    (region,), _ = merged(body, (5, 5))
    assert len(region.composites) == len(region.outputs) == 3


def test_no_two_regions_wait_for_each_other() -> None:
    """a, b independent; c reads both and joins a; d reads a and would join b: then each would read the other."""

    def body(emit: Any, x: Any, y: Any) -> Any:
        a = product(emit, x)
        t = emit(R.tanh(a))
        b = product(emit, t, 1)
        c = emit(R.matmul(emit(R.exp(b)), a))
        d = emit(R.matmul(a, b))
        return c, d, product(emit, y, 2)

    regions, merger = merged(body, (5, 5), (5, 5))
    of = {
        operation.result.name: region.name
        for region in regions
        for c in region.composites
        for operation in c.operations
    }
    done: set[str] = set()
    for name in merger.order():
        if name not in of:
            done.add(name)
            continue
        region = next(r for r in regions if r.name == of[name])
        assert {v.name for v in region.inputs} <= done | {"x0", "x1"} or of[name] in done
        done |= {of[name], *(v.name for v in region.outputs)}
    assert sum(sizes(regions)) == 5


def test_members_stand_side_by_side_after_what_they_read() -> None:
    def body(emit: Any, x: Any, y: Any) -> Any:
        a = product(emit, x)
        used = emit(R.tanh(a))  # reads the region
        z = emit(R.exp(y))  # the region reads it
        return used, emit(R.matmul(a, z))

    (region,), merger = merged(body, (5, 5), (5, 5))
    order = merger.order()
    positions = [order.index(c.result.name) for c in region.composites]
    assert positions == [1, 2]
    assert len(region.outputs) == 2


def test_a_value_that_only_prologues_read_is_no_output() -> None:
    def body(emit: Any, x: Any) -> Any:
        return product(emit, emit(R.negative(product(emit, x))), 1)

    (region,), merger = merged(body, (5, 5))
    assert [len(region.composites), len(region.outputs)] == [2, 1]
    negative = next(operation.result.name for operation in region.operations if operation.op == "relax.negative")
    assert negative not in merger.live()


def test_some_stand_alone() -> None:
    def body(emit: Any, x: Any) -> Any:
        return product(emit, product(emit, product(emit, x)))

    (whole,), _ = merged(body, (5, 5))
    names = [c.result.name for c in whole.composites]
    assert sizes(merged(body, (5, 5), alone=names[1:2])[0]) == [1, 1, 1]
    assert sizes(merged(body, (5, 5), alone=names[2:])[0]) == [2, 1]


def test_what_nothing_needs_is_no_region() -> None:
    def body(emit: Any, x: Any) -> Any:
        product(emit, x, 3)
        return emit(R.tanh(x))

    assert merged(body, (5, 5))[0] == []
