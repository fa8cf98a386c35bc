"""Which decodes each reader computes for itself, and which are part of an epilogue.

q = quantize(conv(x)); d = dequantize(q); a = conv(d); b = add(d, r)
->   two readers of q, each with a dequantize of its own                   "copied"

q = quantize(conv(x)); d = dequantize(q); b = add(d, r)
->   one kernel, in which q is an intermediate value                       not copied
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tvm import relax
from tvm.ir import Call

from tvm_ext.core.numbers.storage import chain_of

Uses = Mapping[relax.Var, Sequence[relax.Var | None]]


class Decodes:
    """The decodes of a function.

    Args:
        bindings: of the function, in order.
        uses: variable -> its readers; None stands for the function's result.
        elementwise: whether a binding can join the group of its operand.
    """

    def __init__(
        self, bindings: Iterable[relax.VarBinding], uses: Uses, elementwise: Callable[[relax.VarBinding], bool]
    ) -> None:
        self._uses = uses
        self._by_var = {b.var: b for b in bindings}
        self._chains: dict[relax.Var, tuple[relax.VarBinding, ...]] = {}
        calls: dict[relax.Var, tuple[Call, ...]] = {}
        for binding in self._by_var.values():
            if (chain := chain_of(binding.value, calls)) is not None:
                calls[binding.var] = chain
                before = self._chains[binding.value.args[0]] if len(chain) > 1 else ()
                self._chains[binding.var] = (*before, binding)
        self._copied: set[relax.Var] = set()
        for var in self._chains:
            if not self._is_prefix(var) and not self._follows(var, elementwise):
                self._copied.update(b.var for b in self._chains[var])

    def chain(self, var: object) -> tuple[relax.VarBinding, ...]:
        """The decodes that make a variable of a stored tensor, in order; none if it is none of these."""
        return self._chains.get(var, ()) if isinstance(var, relax.Var) else ()

    def copied(self, var: object) -> bool:
        """Whether each reader decodes for itself."""
        return isinstance(var, relax.Var) and var in self._copied

    @property
    def all_copied(self) -> tuple[relax.Var, ...]:
        """What readers decode for themselves, without what only a longer chain of decodes reads."""
        return tuple(var for var in self._chains if var in self._copied and not self._is_prefix(var))

    def _is_prefix(self, var: relax.Var) -> bool:
        """Whether every reader is a decode that goes on from it."""
        readers = self._uses.get(var, ())
        return bool(readers) and all(var in (b.var for b in self.chain(reader)[:-1]) for reader in readers)

    def _follows(self, var: relax.Var, elementwise: Callable[[relax.VarBinding], bool]) -> bool:
        """Whether it is part of the kernel that stores the tensor, because nothing else reads that."""
        stored = self._chains[var][0].value.args[0]
        maker = self._by_var.get(stored) if isinstance(stored, relax.Var) else None
        if maker is None or len(self._uses.get(stored, ())) != 1:
            return False
        return all(reader is None or elementwise(self._by_var[reader]) for reader in self._uses.get(var, ()))
