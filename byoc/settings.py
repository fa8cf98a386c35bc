"""What `offload` and `offload_options` of a compile ask for: a back end, its own options, and which work it gets."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import OptionError, check_choice, check_switch, check_whole, names_of
from .backend import Backend
from .region import Composite, multiply_adds
from .registry import backend_named, register

#: Whether only what is estimated to be faster than on the CPU is offloaded, or everything the back end takes.
WHEN = ("pays", "always")


@dataclass(frozen=True)
class Offloading:
    """A back end with its options, and the choice of work for it.

    Attributes:
        backend, options: who gets the work.
        when: "pays": what its cost model says is faster there, transfers and launch included; "always": all it takes.
        skip: names of ONNX nodes, of ONNX operators ("Conv") and of TVM's ("nn.conv2d") that stay on the CPU.
        minimum_work: multiply-adds below which an anchor stays on the CPU.
        asynchronous: whether the CPU goes on while a region runs, up to what reads its results.
    """

    backend: Backend
    options: Any
    when: str = "pays"
    skip: tuple[str, ...] = ()
    minimum_work: int = 0
    asynchronous: bool = False

    def __post_init__(self) -> None:
        check_choice("offload option when", self.when, WHEN)
        object.__setattr__(self, "skip", names_of("offload option skip", self.skip))
        object.__setattr__(self, "minimum_work", check_whole("offload option minimum_work", self.minimum_work))
        check_switch("offload option asynchronous", self.asynchronous)

    def keeps_out(self, composite: Composite, types: Mapping[str, str]) -> str:
        """Why the user wants an anchor on the CPU; "" if it may go.

        Args:
            composite: whose anchor it is.
            types: ONNX node -> ONNX operator.
        """
        anchor, op = composite.anchor, composite.anchor.op
        names = {op, op.removeprefix("relax."), *anchor.nodes, *(types.get(node, "") for node in anchor.nodes)}
        skipped = next((name for name in self.skip if name in names), "")
        if skipped:
            return f"offload option skip has {skipped!r}"
        work = multiply_adds(anchor)
        return f"{work} multiply-adds; minimum_work is {self.minimum_work}" if work < self.minimum_work else ""


def offloading_of(
    offload: str | Backend | None, settings: Mapping[str, Any], precision: str | None = None
) -> Offloading | None:
    """What a compile is to offload; None if nothing.

    Args:
        offload: name of a back end, or one; a Backend that is given is registered.
        settings: `offload_options`.
        precision: of the compile, which has to allow the roundings of the programs; None for studies of hardware.

    Raises:
        OptionError: there is no such back end or option, a value does not fit, or the programs round as no other
            kernel of the compile does.
    """
    if offload is None:
        return None
    backend = register(offload) if isinstance(offload, Backend) else backend_named(offload)
    if backend.fallback:
        wrong = f"offload={backend.name!r}: it gets what no converter takes, not patterns of operators"
        raise OptionError(wrong, fix=f"fallback={backend.name!r}")
    general = {field.name for field in dataclasses.fields(Offloading)} - {"backend", "options"}
    own = {key: value for key, value in settings.items() if key not in general}
    rest = {key: value for key, value in settings.items() if key in general}
    options = backend.make_options(own)
    if precision is not None and (rounds := backend.precision(options)) not in ("float32", precision):
        wrong = (
            f"offload={backend.name!r} with these options rounds as precision={rounds!r}, and not {precision!r}, does"
        )
        raise OptionError(wrong, fix=f"compile with precision={rounds!r}, or give the back end other options")
    return Offloading(backend, options, **rest)
