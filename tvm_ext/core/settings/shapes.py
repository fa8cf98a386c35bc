"""The options `shapes`, `dims` and `specialize`, checked."""

import keyword
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import OptionError, choose_of, is_whole

Shapes = tuple[tuple[str, tuple[int | str, ...]], ...]
#: What `shapes` has of an optional input that is absent: no dimension can have this name.
NO_TENSOR: tuple[int | str, ...] = ("None",)
#: Sizes of a batch without bounds that have programs, unless `specialize` says otherwise.
DEFAULT_SIZES = (1, 4, 16)

_SHAPES = (
    "for example shapes={'input': (1, 3, 224, 224)}, or ('N', 3, 224, 224) for any batch N; "
    "[(2, 3), (4, 3)] of a sequence"
)


def checked_shapes(shapes: Any) -> Shapes:
    """The option `shapes`, in the order of its names; a list of shapes is a shape for each element of a sequence.

    {"seq": [(2, 3), (4, 3)], "opt": None}   ->   (("opt", NO_TENSOR), ("seq[0]", (2, 3)), ("seq[1]", (4, 3)))

    Raises:
        OptionError: it is something else than names with shapes.
    """
    pairs = shapes.items() if isinstance(shapes, Mapping) else (shapes or ())
    if not isinstance(pairs, Iterable):
        raise OptionError(f"shapes={shapes!r}: input names with their shapes are needed", fix=_SHAPES)
    checked = []
    for pair in pairs:
        try:
            name, shape = pair
            entries = _entries(name, shape)
        except (TypeError, ValueError):
            name, entries = pair, []
        if not isinstance(name, str) or any(dims is None for _, dims in entries) or not entries:
            wrong = "every entry is an input name and a tuple of whole numbers, 0 or more, or names"
            raise OptionError(f"shapes={shapes!r}: {wrong}", fix=_SHAPES)
        checked += [(key, dims) for key, dims in entries if dims is not None]
    return tuple(sorted(checked, key=lambda pair: pair[0]))


def _entries(name: str, shape: Any) -> list[tuple[str, tuple[int | str, ...] | None]]:
    """What `shapes` says of an input, by the names of its tensors; None for what is no shape."""
    if shape is None or shape == NO_TENSOR:
        return [(name, NO_TENSOR)]
    if isinstance(shape, list | tuple) and shape and all(isinstance(each, list | tuple) for each in shape):
        from ...runtime.values import element_of  # numpy, which the command line starts without

        return [(element_of(name, place), _dims(each)) for place, each in enumerate(shape)]
    return [(name, _dims(shape))]


def _dims(shape: Any) -> tuple[int | str, ...] | None:
    """Whole numbers and names; None if something else is among them."""
    if isinstance(shape, str):
        return None
    dims = tuple(d if isinstance(d, str) else operator.index(d) for d in shape)
    return dims if all(is_name(d) if isinstance(d, str) else d >= 0 for d in dims) else None


def is_name(text: str) -> bool:
    """Whether a symbolic dimension can have this name: letters, digits and underscores, and no word of Python's."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def names_in(shapes: Shapes) -> dict[str, bool]:
    """The names among the dimensions, in order, and whether each stands first in a shape."""
    names: dict[str, bool] = {}
    for _, dims in shapes:
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and dims != NO_TENSOR:
                names[dim] = names.get(dim, False) or axis == 0
    return names


def checked_bounds(dims: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The option `dims`, in the order of its names.

    Raises:
        OptionError: it is something else than names with two sizes that ascend.
    """
    fix = "for example dims={'N': (1, 8), 'S': (1, 512)}"
    try:
        pairs = {name: tuple(bounds) for name, bounds in dict(dims or {}).items()}
    except (TypeError, ValueError):
        raise OptionError(f"dims={dims!r}: names of dimensions with their smallest and largest size", fix=fix) from None
    for name, bounds in pairs.items():
        if not isinstance(name, str):
            raise OptionError(f"dims={dims!r}: {name!r} is no name", fix=fix)
        whole = len(bounds) == 2 and all(map(is_whole, bounds))
        if not whole or not 0 <= bounds[0] <= bounds[1] < 1 << 31 or bounds[1] < 1:
            wrong = f"the bounds of {name!r} are two whole numbers below 2^31, 0 or more and 1 or more, ascending"
            raise OptionError(f"dims={dims!r}: {wrong}", fix=fix)
        pairs[name] = tuple(map(int, bounds))
    return tuple(sorted(pairs.items()))


def check_names(option: str, pairs: Iterable[tuple[str, Any]], names: Sequence[str], model: str) -> None:
    """Check that an option says something of symbolic dimensions only.

    Args:
        option: its name.
        pairs: the option, checked.
        names: of the symbolic dimensions.
        model: its name, for messages.

    Raises:
        OptionError: a name is none of them.
    """
    for name, _ in pairs:
        if name not in names:
            fix = choose_of(name, "symbolic dimensions", names)
            raise OptionError(f"{option}: no dimension of {model} is {name!r}", fix=fix)


def checked_sizes(
    specialize: Any, dims: Iterable[tuple[str, tuple[int, ...]]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The option `specialize`, in the order of its names; the sizes of each ascend.

    Args:
        dims: the option of that name, checked.

    Raises:
        OptionError: it is something else than names with sizes from 1 to 2^31 - 1, or a size is out of its bounds.
    """
    fix = f"for example specialize={{'S': {DEFAULT_SIZES}}}"
    try:
        pairs = dict(specialize or {})
    except (TypeError, ValueError):
        raise OptionError(f"specialize={specialize!r}: names of dimensions with sizes are needed", fix=fix) from None
    bounds = dict(dims)
    for name, stated in pairs.items():
        pairs[name] = sizes = tuple(stated) if isinstance(stated, Iterable) else ()
        if not isinstance(name, str) or not sizes or not all(is_whole(n) and 1 <= n < 1 << 31 for n in sizes):
            wrong = "sizes are whole numbers, 1 or more and below 2^31, by name"
            raise OptionError(f"specialize={specialize!r}: {wrong}", fix=fix)
        low, high = bounds.get(name, (1, max(sizes)))
        if beyond := [n for n in sizes if not low <= n <= high]:
            wrong = f"{name} is {beyond[0]}, and dims has {low} to {high}"
            wider = f"dims={{{name!r}: ({min(low, *sizes)}, {max(high, *sizes)})}}"
            raise OptionError(f"specialize={specialize!r}: {wrong}", fix=wider)
    return tuple(sorted((name, tuple(sorted(set(map(int, sizes))))) for name, sizes in pairs.items()))
