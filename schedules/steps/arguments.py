"""The parameters of a group as the arguments of a kernel that is being built: where they lie, and how they are read.

args = Arguments(group, layouts)                    one TE placeholder a parameter, in physical shape
x = args.reader(match.data)                         decoded, at physical indices
return args.kernel(lambda *i: tirx.exp(x(*i)))      the stage "out": the epilogue of that, at all indices
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from tvm_ext.core.recipe import Group, Layout, Layouts, Param

from .epilogue import Epilogue
from .storage import Reader, decoder, reader


class Arguments:
    """What a kernel is called with.

    Args:
        group: whose parameters they are.
        layouts: of the parameters and of the result.
        buffers: of the parameters, in a function that is being built (:func:`building`); None makes TE placeholders.

    Attributes:
        tensors: what stands for each parameter, to be called with a physical index.
        epilogue: the group's result at a logical index, given the anchor's value there.
    """

    def __init__(self, group: Group, layouts: Layouts, buffers: Sequence[Any] | None = None) -> None:
        self.group, self.layouts = group, layouts
        self._buffers = buffers or ()
        self.tensors: Sequence[Any] = [lambda *i, b=b: b[i] for b in self._buffers]
        if buffers is None:
            self.tensors = placeholders(group, layouts.params)
        self._number = {p.var: i for i, p in enumerate(group.params)}
        self.epilogue = Epilogue(group, self.tensors, layouts.params)

    def tensor(self, param: Param) -> Any:
        """What stands for a parameter."""
        return self.tensors[self._number[param.var]]

    def buffer(self, param: Param) -> Any:
        """The buffer of a parameter, in a function that is being built."""
        return self._buffers[self._number[param.var]]

    def layout(self, param: Param) -> Layout:
        """How a parameter lies in memory."""
        return self.layouts.params[self._number[param.var]]

    def reader(self, param: Param) -> Reader:
        """Reads an operand of the anchor at physical indices, as numbers that the anchor computes with."""
        return reader(self.group, self.tensors, self.layouts.params, param)

    def decode(self, param: Param, stored: Any, place: Sequence[Any]) -> Any:
        """The number that an element of an operand stands for.

        Args:
            stored: what is stored.
            place: its logical index.
        """
        return decoder(self.group, self.tensors, self.layouts.params, param)(stored, lambda: place)

    def decoded(self, param: Param) -> Any:
        """An operand whose elements are read many times: a stage "decoded" in its own layout, or as it is."""
        if not param.decode:
            return self.tensor(param)
        read = self.reader(param)
        return te.compute(self.layout(param).physical_shape(param.shape), lambda *i: read(*i), name="decoded")

    def kernel(self, anchor: Callable[..., Any]) -> tirx.PrimFunc:
        """The kernel of one stage "out", of the result's physical shape, over those that `anchor` reads.

        Args:
            anchor: physical index of the result -> the anchor's value there.
        """
        output = self.layouts.output

        def value(*index: Any) -> Any:
            return self.epilogue(output.logical(index), anchor(*index))

        return self.function(te.compute(output.physical_shape(self.group.shape), value, name="out"))

    def function(self, out: te.Tensor) -> tirx.PrimFunc:
        """The kernel that computes `out` of the placeholders."""
        return te.create_prim_func([*self.tensors, out])


def placeholders(group: Group, layouts: Sequence[Layout]) -> list[te.Tensor]:
    """One TE placeholder for each parameter of the group, in physical shape; "p0", "p1", ... by their position."""
    return [
        te.placeholder(layout.physical_shape(p.shape), dtype=layout.element_type(p.dtype), name=f"p{i}")
        for i, (p, layout) in enumerate(zip(group.params, layouts, strict=True))
    ]


@contextmanager
def building(group: Group, layouts: Layouts) -> Iterator[tuple[IRBuilder, Arguments, Any]]:
    """A function that is being built, for kernels whose loops stand already.

    Yields:
        The builder, whose `get()` is the function once this is closed; its arguments, which are buffers; and the buffer
        of the result, in physical shape.
    """
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("main")
        T.func_attr({"tirx.noalias": True})
        shapes = zip(group.params, layouts.params, strict=True)
        buffers = [
            T.arg(f"p{i}", T.buffer(layout.physical_shape(p.shape), layout.element_type(p.dtype)))
            for i, (p, layout) in enumerate(shapes)
        ]
        out = T.arg("out", T.buffer(layouts.output.physical_shape(group.shape), group.dtype))
        yield builder, Arguments(group, layouts, buffers), out
