"""Which shapes a program of any size takes, and which of its programs runs them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.errors import InputError
from ...core.options import Shapes
from ...runtime.model import CompiledModel
from ...runtime.sizes.symbols import Symbol, dimensions_of, named_sizes, sizes_text
from ...runtime.spec import Metadata, TensorSpec

#: Sets of shapes whose answer is remembered.
_REMEMBERED = 256


@dataclass(frozen=True)
class Bounds:
    """What a program of any size takes.

    Attributes:
        inputs: by name, those with a dimension of any size.
        symbols: the dimensions.
        metadata: of the program.
    """

    inputs: dict[str, TensorSpec]
    symbols: tuple[Symbol, ...]
    metadata: Metadata
    _known: dict[Shapes, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: CompiledModel) -> Bounds:
        """What a program takes."""
        symbolic = {spec.name: spec for spec in program.inputs if spec.batch_axis is not None}
        return cls(symbolic, dimensions_of(program.inputs, program.symbols), program.metadata)

    def why_not(self, shapes: Shapes) -> str:
        """Why the program takes no inputs of these shapes; "" if it does.

        Args:
            shapes: of the inputs with free dimensions.
        """
        return self._answer(shapes)[0]

    def fixed(self, shapes: Shapes) -> str:
        """The sizes that are fixed in the program which runs inputs of these shapes; "" where none is."""
        return self._answer(shapes)[1]

    def _answer(self, shapes: Shapes) -> tuple[str, str]:
        if (known := self._known.get(shapes)) is not None:
            return known
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        named = [(self.inputs[name], shape) for name, shape in shapes if name in self.inputs]
        try:
            sizes = named_sizes([spec for spec, _ in named], [shape for _, shape in named], self.symbols)  # type: ignore[misc]
            fixed = self.metadata.program_at(sizes).fixed if self.metadata.symbols else ()
            answer = "", sizes_text(dict(fixed))
        except InputError as error:
            answer = error.message, ""
        return self._known.setdefault(shapes, answer)
