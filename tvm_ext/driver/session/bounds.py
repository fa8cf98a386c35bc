"""Which shapes a program of any size takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.errors import InputError
from ...core.options import Shapes
from ...runtime.model import CompiledModel
from ...runtime.sizes.symbols import Symbol, dimensions_of, named_sizes
from ...runtime.spec import TensorSpec

#: Sets of shapes whose answer is remembered.
_REMEMBERED = 256


@dataclass(frozen=True)
class Bounds:
    """What a program of any size takes.

    Attributes:
        inputs: by name, those with a dimension of any size.
        symbols: the dimensions.
    """

    inputs: dict[str, TensorSpec]
    symbols: tuple[Symbol, ...]
    _known: dict[Shapes, str] = field(default_factory=dict)

    @classmethod
    def of(cls, program: CompiledModel) -> Bounds:
        """What a program takes."""
        symbolic = {spec.name: spec for spec in program.inputs if spec.batch_axis is not None}
        return cls(symbolic, dimensions_of(program.inputs, program.symbols))

    def why_not(self, shapes: Shapes) -> str:
        """Why the program takes no inputs of these shapes; "" if it does.

        Args:
            shapes: of the inputs with free dimensions.
        """
        if (known := self._known.get(shapes)) is not None:
            return known
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(shapes, self._why_not(shapes))

    def _why_not(self, shapes: Shapes) -> str:
        named = [(self.inputs[name], shape) for name, shape in shapes if name in self.inputs]
        try:
            named_sizes([spec for spec, _ in named], [shape for _, shape in named], self.symbols)  # type: ignore[misc]
        except InputError as error:
            return error.message
        return ""
