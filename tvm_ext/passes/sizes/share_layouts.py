"""Programs of fixed sizes read weights as the program of any size has packed them, but where that costs too much.

S = 32: tiles of 3 vectors are best, but weights lie in tiles of 6, which take 1.02 of the time   ->   tiles of 6
a convolution: Winograd's weights are none of those stored, and save half of the time             ->   stored too
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.ir import Call, GenericConst, GlobalVar, IRModule

from tvm_ext.core.graph.relax_graph import array_of, main_bindings, shape_of
from tvm_ext.core.group import CONFIG, RECIPE
from tvm_ext.core.layout import Layout
from tvm_ext.core.machine import Machine
from tvm_ext.core.passes import CompileContext, Event, Pass, PassResult
from tvm_ext.core.plan import Plan
from tvm_ext.core.recipe import Config, Match, Recipe, config_text

from ..lowering.choose_recipes import allowed_matches

#: Bytes that programs of fixed sizes may add to the weights, as a part of those of the program of any size.
_MORE = 0.5
#: What a packing of its own must save of the time of a group with stored weights.
_WORTH = 0.1

#: The part of the time that is left where a knob of a default is changed.
_MUCH = 0.95

_Key = tuple[tuple[int, ...], str, bytes]


class StoredWeights:
    """The weights of an artifact, in all layouts in which it has them.

    Args:
        ctx: of the program of any size, after all passes.

    Attributes:
        spare: bytes that may be added.
    """

    def __init__(self, ctx: CompileContext) -> None:
        self._keys: dict[tuple[int, tuple[int, ...], str], tuple[np.ndarray, _Key]] = {}
        self._arrays: set[_Key] = set()
        self._packed: set[tuple[_Key, Layout]] = set()
        self.spare = 0.0
        self.add(ctx)
        self.spare = _MORE * sum(array.nbytes for array in ctx.weights)

    def add(self, ctx: CompileContext) -> None:
        """The weights of one more program, which was lowered."""
        for array in ctx.weights:
            if (key := self._key(array)) not in self._arrays:
                self._arrays.add(key)
                self.spare -= array.nbytes
        self._packed.update((self._key(array_of(value)), layout) for _, value, layout in ctx.packed)

    def bytes_of(self, constant: GenericConst, layout: Layout) -> int:
        """Bytes that a constant in a layout adds; 0 if it is there."""
        array = array_of(constant)
        key = self._key(array)
        if key in self._arrays if layout.is_plain else (key, layout) in self._packed:
            return 0
        return math.prod(layout.physical_shape(array.shape)) * array.dtype.itemsize

    def _key(self, array: np.ndarray) -> _Key:
        """Shape, dtype and digest of an array, which is read once: it is kept, so that no other one has its address."""
        place = (array.ctypes.data, array.shape, str(array.dtype))
        if place not in self._keys or self._keys[place][0].strides != array.strides:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            digest = hashlib.blake2b(data.data, digest_size=16).digest()
            self._keys[place] = array, (array.shape, place[2], digest)
        return self._keys[place][1]


@dataclass(frozen=True)
class _Wish:
    """A group whose plan packs weights anew: bytes that it adds, and the best plan that reads stored ones, if any."""

    name: str
    plan: Plan
    nbytes: int
    shared: Plan | None
    calls: int

    @property
    def stays(self) -> bool:
        """Whether the plan stays whatever it adds: it follows a record or a measurement."""
        return self.plan.choice.get("by") != "estimate"

    @property
    def gain(self) -> float:
        """Seconds that the plan saves; infinite where no other one is there."""
        return math.inf if self.shared is None else self.calls * (self.shared.cost - self.plan.cost)

    @property
    def pays(self) -> bool:
        """Whether it saves enough."""
        return self.shared is None or self.shared.cost - self.plan.cost >= _WORTH * self.shared.cost


class ShareLayouts(Pass):
    """Plans of groups that read weights which are stored already.

    Args:
        stored: the weights.
    """

    name = "share-layouts"

    def __init__(self, stored: StoredWeights) -> None:
        self._stored = stored

    def run(self, mod: IRModule, ctx: CompileContext) -> PassResult:
        wishes = sorted(self._wishes(mod, ctx), key=lambda wish: wish.gain / wish.nbytes, reverse=True)
        out, fired, skipped, spare = IRModule(dict(mod.functions_items()), attrs=mod.attrs), [], [], self._stored.spare
        for wish in wishes:
            if wish.shared is None or wish.stays or (wish.pays and wish.nbytes <= spare):
                spare -= wish.nbytes
                skipped.append(Event(wish.name, f"{wish.nbytes} bytes of weights in a layout of its own"))
                continue
            ctx.plans[wish.name], gvar = wish.shared, mod.get_global_var(wish.name)
            text = config_text(wish.shared.config)
            out.update_func(gvar, mod[gvar].with_attr({RECIPE: wish.shared.recipe.name, CONFIG: text}))
            fired.append(Event(wish.name, f"{wish.shared.recipe.name} {text} reads weights that are stored"))
        return PassResult(out, tuple(fired), tuple(skipped))

    def _wishes(self, mod: IRModule, ctx: CompileContext) -> Iterator[_Wish]:
        calls: dict[str, list[Call]] = {}
        for binding in main_bindings(mod):
            value = binding.value
            if isinstance(value, Call) and isinstance(value.op, GlobalVar) and value.op.name_hint in ctx.plans:
                calls.setdefault(value.op.name_hint, []).append(value)
        for name, sites in calls.items():
            plan = ctx.plans[name]
            if nbytes := self._added(plan, sites):
                yield _Wish(name, plan, nbytes, self._shared(plan, sites, ctx), len(sites))

    def _added(self, plan: Plan, sites: Sequence[Call]) -> int:
        """Bytes that the weights of calls take in the layouts of a plan beside those that are stored."""
        return sum(
            self._stored.bytes_of(operand, layout)
            for call in sites
            for operand, layout in zip(call.args, _layouts(plan, call), strict=True)
            if isinstance(operand, GenericConst)
        )

    def _shared(self, plan: Plan, sites: Sequence[Call], ctx: CompileContext) -> Plan | None:
        """The plan of least cost for the same group, near a default, that adds nothing; None if there is none."""
        choices = [_Choices(*pair, ctx.machine) for pair in allowed_matches(plan.match.group, ctx)]
        plans = [p for choice in choices for p in choice.plans(sites[0], lambda near: not self._added(near, sites))]
        return min(plans, key=lambda near: near.cost, default=None)


@dataclass(frozen=True)
class _Choices:
    """The space of a recipe for a group, walked from its default: that knows more than costs, and spaces are large."""

    recipe: Recipe[Any]
    match: Match
    machine: Machine

    @functools.cached_property
    def _space(self) -> Mapping[str, Sequence[Any]]:
        return self.recipe.space(self.match, self.machine)

    @functools.cached_property
    def _default(self) -> Config:
        of = self.recipe.default if self.match.group.extents is None else self.recipe.default_of_any_size
        return of(self.match, self.machine)

    def plans(self, call: Call, fits: Callable[[Plan], bool]) -> Iterator[Plan]:
        """Legal plans: the default with each combination of the knobs that decide layouts of a call, where it fits."""
        deciding = [
            knob
            for knob, choices in self._space.items()
            if len({_layouts(self._plan({**self._default, knob: choice}), call) for choice in choices}) > 1
        ]
        for values in itertools.product(*(self._space[knob] for knob in deciding)):
            plan = self._plan({**self._default, **dict(zip(deciding, values, strict=True))})
            if fits(plan) and not math.isinf((best := self._settled(plan.config, deciding)).cost):
                yield best

    def _settled(self, config: Config, fixed: Sequence[str]) -> Plan:
        """The plan of a configuration whose other knobs are changed, one by one and twice, where that saves much."""
        cost = self._cost(config)
        for knob in [knob for knob in self._space if knob not in fixed] * 2:
            other = min(({**config, knob: choice} for choice in self._space[knob]), key=self._cost)
            if (less := self._cost(other)) < _MUCH * cost:
                config, cost = other, less
        return self._plan(config, cost)

    def _plan(self, config: Config, cost: float = math.inf) -> Plan:
        return Plan(self.recipe, self.match, config, cost, choice={"by": "estimate"})

    def _cost(self, config: Config) -> float:
        if self.match.group.extents is not None and not self.recipe.cuts(self.match, config):
            return math.inf
        return self.recipe.cost(self.match, config, self.machine)


def _layouts(plan: Plan, call: Call) -> tuple[Layout, ...]:
    offered = [Layout.plain(len(shape_of(operand) or ())) for operand in call.args]
    params: Any = plan.recipe.layouts(plan.match, plan.config, offered).params
    return tuple(params)
