"""Rules of algebraic simplification for operators that only move data: reshapes, transposes, slices."""

from typing import Any

from tvm import relax
from tvm.ir import Call, GenericConst

from ...core.graph.relax_graph import attrs_of, dtype_of, op_name, shape_of
from ...core.numbers.storage import Growth
from .rules import Rule, Site


def _to_reshape(call: Call, site: Site) -> Any:
    """squeeze, expand_dims, flatten -> reshape, for static shapes."""
    shape = shape_of(site.var)
    if shape is None or shape_of(call.args[0]) is None:
        return None
    site.rw.fire(f"{op_name(call).removeprefix('relax.')} made a reshape")
    return relax.op.reshape(call.args[0], shape)


def _same_shape(call: Call, site: Site) -> Any:
    if not site.same_type(call.args[0]):
        return None
    return site.replaced(call.args[0], f"{op_name(call).removeprefix('relax.')} to the shape it has")


def _reshape_of_reshape(call: Call, site: Site) -> Any:
    inner, shape = site.inner(call.args[0], "relax.reshape"), shape_of(site.var)
    if inner is None or shape is None:
        return None
    return site.replaced(relax.op.reshape(inner.args[0], shape), "two reshapes made one", call.args[0])


def _axes(call: Call) -> tuple[int, ...]:
    axes, rank = attrs_of(call, ["axes"])["axes"], int(call.args[0].ty.ndim)
    return tuple(int(a) % rank for a in axes) if axes is not None else tuple(reversed(range(rank)))


def _identity_permute(call: Call, site: Site) -> Any:
    axes = _axes(call)
    if axes != tuple(range(len(axes))):
        return None
    return site.replaced(call.args[0], "permute_dims that moves nothing")


def _permute_of_permute(call: Call, site: Site) -> Any:
    inner = site.inner(call.args[0], "relax.permute_dims")
    if inner is None:
        return None
    first = _axes(inner)
    joined = relax.op.permute_dims(inner.args[0], [first[a] for a in _axes(call)])
    return site.replaced(joined, "two permute_dims made one", call.args[0])


def _permute_of_ones(call: Call, site: Site) -> Any:
    """Only dimensions of extent 1 change places: the data stays where it is."""
    shape, out = shape_of(call.args[0]), shape_of(site.var)
    if shape is None or out is None:
        return None
    moved = [a for a in _axes(call) if shape[a] != 1]
    if moved != sorted(moved):
        return None
    site.rw.fire("permute_dims that moves only dimensions of 1 made a reshape")
    return relax.op.reshape(call.args[0], out)


def _permute_of_scatter(call: Call, site: Site) -> Any:
    """permute_dims(scatter_nd(permute_dims(x), rows, new)) -> scatter_elements(x, rows, permute_dims(new), axis).

    As exporters write a slice of a cache: the axis that is indexed goes to the front, and back.
    """
    scatter = site.inner(call.args[0], "relax.scatter_nd")
    inner = site.inner(scatter.args[0], "relax.permute_dims") if scatter is not None else None
    rows = shape_of(scatter.args[1]) if scatter is not None else None
    if inner is None or rows is None or len(rows) != 2 or rows[1] != 1 or not site.sole(call.args[0]):
        return None
    there, back = _axes(inner), _axes(call)
    if [there[axis] for axis in back] != list(range(len(there))):
        return None
    new = site.rw.emit(relax.op.permute_dims(scatter.args[2], back))
    along = [rows[0] if axis == there[0] else 1 for axis in range(len(there))]
    places = site.rw.emit(relax.op.broadcast_to(site.rw.emit(relax.op.reshape(scatter.args[1], along)), shape_of(new)))
    reduction = attrs_of(scatter, ["reduction"])["reduction"]
    site.take_over(call.args[0])
    site.rw.fire("scatter along the axis that two permute_dims move to the front and back")
    return relax.op.scatter_elements(inner.args[0], places, new, there[0], str(reduction))


def _concat_of_one(call: Call, site: Site) -> Any:
    fields: list[Any] = list(getattr(site.rw.definition(call.args[0]), "fields", ()))
    if len(fields) != 1 or not site.same_type(fields[0]):
        return None
    return site.replaced(fields[0], "concat of one tensor")


def _slice_of_all(call: Call, site: Site) -> Any:
    args: list[Any] = list(call.args)
    shape, strides = shape_of(args[0]), args[4:]
    steps = [getattr(s, "value", None) for s in strides[0].fields] if strides else []
    # With steps of 1, only the whole dimension is as long as the whole dimension.
    if shape is None or any(s != 1 for s in steps):
        return None
    whole, growth = site.same_type(call.args[0]), site.rw.ctx.facts.get(Growth)
    if growth is not None and not growth.whole(site.rw.current, whole):
        return None  # at larger sizes it is a part
    if not whole:
        return None
    return site.replaced(call.args[0], "slice that takes all")


# ------------------------------------------------------------ broadcasts move down, where they vanish
def broadcast_operand(call: Call, site: Site) -> Any:
    """x op broadcast_to(y) -> x op y, which broadcasts by itself; with one number, broadcast_to(y op number)."""
    for i, operand in enumerate(call.args):
        if (inner := site.inner(operand, "relax.broadcast_to")) is None:
            continue
        args = [inner.args[0] if j == i else a for j, a in enumerate(call.args)]
        if (new := site.fits(Call(call.op, args, call.attrs, call.ty_args))) is not None:
            return site.replaced(new, f"{op_name(call).removeprefix('relax.')} broadcasts its operand by itself")
        others = [a for j, a in enumerate(call.args) if j != i]
        alone = site.sole(operand)
        cheap = alone or isinstance(inner.args[0], GenericConst)
        if all(shape_of(a) == () for a in others) and cheap and shape_of(site.var) is not None:
            if alone:
                site.take_over(operand)
            site.rw.fire(f"{op_name(call).removeprefix('relax.')} with one number before it is broadcast")
            small = site.rw.emit(Call(call.op, args, call.attrs, call.ty_args))
            return relax.op.broadcast_to(small, shape_of(site.var))
    return None


def _cast_of_broadcast(call: Call, site: Site) -> Any:
    """astype(broadcast_to(x)) -> broadcast_to(astype(x)): fewer elements are cast."""
    inner, shape = site.inner(call.args[0], "relax.broadcast_to"), shape_of(site.var)
    if inner is None or shape is None or not site.sole(call.args[0]):
        return None
    site.take_over(call.args[0])
    site.rw.fire("cast before it is broadcast")
    return relax.op.broadcast_to(site.rw.emit(relax.op.astype(inner.args[0], dtype_of(site.var))), shape)


def _reduction_of_broadcast(call: Call, site: Site) -> Any:
    """sum(broadcast_to(x), axis) -> broadcast_to(sum(x, axis)), where x is whole along the axis."""
    inner, shape = site.inner(call.args[0], "relax.broadcast_to"), shape_of(site.var)
    small, full = (shape_of(inner.args[0]), shape_of(call.args[0])) if inner is not None else (None, None)
    axes = attrs_of(call, ["axis"])["axis"]
    if inner is None or shape is None or not small or not full or len(small) != len(full) or axes is None:
        return None
    if any(small[a] != full[a] for a in axes) or not site.sole(call.args[0]):
        return None
    site.take_over(call.args[0])
    site.rw.fire(f"{op_name(call).removeprefix('relax.')} before it is broadcast")
    reduced = Call(call.op, [inner.args[0]], call.attrs, call.ty_args)
    return relax.op.broadcast_to(site.rw.emit(reduced), shape)


def _does_nothing(attribute: str, neutral: int) -> Rule:
    """tile or repeat by 1, pad by 0."""

    def rule(call: Call, site: Site) -> Any:
        values = attrs_of(call, [attribute])[attribute]
        values = values if isinstance(values, tuple) else (values,)
        if any(int(v) != neutral for v in values) or not site.same_type(call.args[0]):
            return None
        return site.replaced(call.args[0], f"{op_name(call).removeprefix('relax.')} by {neutral} does nothing")

    return rule


DATA_MOVEMENT_RULES: dict[str, tuple[Rule, ...]] = {
    "relax.squeeze": (_to_reshape,),
    "relax.expand_dims": (_to_reshape,),
    "relax.flatten": (_to_reshape,),
    "relax.nn.batch_flatten": (_to_reshape,),
    "relax.reshape": (_same_shape, _reshape_of_reshape),
    "relax.broadcast_to": (_same_shape,),
    "relax.astype": (_cast_of_broadcast,),
    **{f"relax.{name}": (_reduction_of_broadcast,) for name in ("sum", "mean", "max", "min")},
    "relax.permute_dims": (_identity_permute, _permute_of_permute, _permute_of_ones, _permute_of_scatter),
    "relax.concat": (_concat_of_one,),
    "relax.strided_slice": (_slice_of_all,),
    "relax.tile": (_does_nothing("repeats", 1),),
    "relax.repeat": (_does_nothing("repeats", 1),),
    "relax.nn.pad": (_does_nothing("pad_width", 0),),
}
"""Operator name -> rules, tried in order."""
