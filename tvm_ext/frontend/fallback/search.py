"""What no converter takes: one dry import finds these nodes, and regions of them become nodes of onnxruntime.

y = Relu(x); s = Cast(y, STRING); n = LabelEncoder(s); z = Mul(n, 2)
->  y = Relu(x); n = Region(y) {s = Cast(y, STRING); n = LabelEncoder(s)}; z = Mul(n, 2)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...core.errors import ArtifactError, ProgramError, UnsupportedError
from ...core.machine import machine_for
from ...core.options import CompileOptions
from ..checks.attributes import check_attributes
from ..checks.checker import Checked, check_model, inlined
from ..checks.graph_order import reads_of, sorted_nodes
from ..checks.inference import dims_known, static_type
from ..naming import node_label
from ..reading.reader import Source
from ..reading.shapes import NO_NUMBERS, text_of, type_name
from ..surveyor import Surveyor
from .node import DOMAIN, region_node
from .regions import Regions

#: dtypes of numpy's own, in which onnxruntime takes and gives arrays.
_SIGNED = ("int8", "int16", "int32", "int64")
_DTYPES = frozenset(["bool", "float16", "float32", "float64", *_SIGNED, *(f"u{name}" for name in _SIGNED)])


def with_regions(source: Source, options: CompileOptions, error: UnsupportedError) -> Source:
    """The model with a node for each region of nodes that no converter takes.

    Args:
        source: the model, its inputs frozen.
        options: `shapes` binds free dimensions of inputs; regions get the threads of the compile.
        error: why it cannot be imported as it is.

    Raises:
        UnsupportedError: `error`, where it is about no node that onnxruntime could run; or an output is no tensor of
            known shape, or onnxruntime does not take a region.
        ModelError: a node is not valid.
    """
    source = source.with_proto(inlined(source.proto, source.name))
    checked = check_model(source, dict(options.shapes), operators=False)
    check_attributes(checked.nodes, source.name)
    surveyor = Surveyor(checked, source.name, source.proto)
    surveyor.trace_graph()
    graph = _Graph(source, checked, surveyor, error)
    return graph.rewritten(machine_for(options).threads)


class _Graph:
    """A graph of which some nodes cannot be converted."""

    def __init__(self, source: Source, checked: Checked, surveyor: Surveyor, error: UnsupportedError) -> None:
        self._source, self._checked, self._surveyor, self._error = source, checked, surveyor, error
        self._nodes, self._labels = checked.nodes, surveyor.labels
        self._held = {tensor.name: tensor for tensor in checked.graph.initializer}
        self._outputs = {value.name for value in checked.graph.output}
        self._makers = {name: at for at, node in enumerate(self._nodes) for name in node.output if name}
        self._reads = [list(dict.fromkeys(reads_of(node))) for node in self._nodes]
        self._known = {name: value for name in self._makers if surveyor.has(name)
                       and (value := surveyor.known(name)) is not None and value.dtype.name in _DTYPES}  # fmt: skip
        self._why = {entry.node: entry.reason for entry in surveyor.refused}
        self._why |= {label: self._unreadable(name) for label, name in surveyor.unseen.items()}

    def rewritten(self, threads: int) -> Source:
        """The model with regions, which onnxruntime takes."""
        live = self._live()
        apart = [at for at in live if self._labels[at] in self._why and not self._is_constant(at)]
        if not apart:
            raise self._error
        reads = [[name for name in names if self._is_computed(name)] for names in self._reads]
        members = Regions(reads, self._makers, self._crosses, apart).members()
        for name in self._outputs:
            if self._label_of(name) in self._why and not self._crosses(name):
                self._refuse(f"output {name!r} of node {self._label_of(name)!r} {self._nature(name)}")
        gone = {at for region in members for at in region}
        gone |= {at for at, label in enumerate(self._labels) if label in self._why}
        kept = [self._named(at) for at in range(len(self._nodes)) if at not in gone]
        regions = [self._region(f"onnxruntime_region_{i}", region, threads) for i, region in enumerate(members)]
        return self._with_nodes([*kept, *regions])

    # ------------------------------------------------------------ values
    def _is_constant(self, at: int) -> bool:
        """Whether a node holds a value, which each region that reads it gets a copy of."""
        return self._nodes[at].op_type == "Constant" and self._nodes[at].domain in ("", "ai.onnx")

    def _is_computed(self, name: str) -> bool:
        """Whether a node makes a value while the program runs."""
        return name in self._makers and name not in self._known and not self._is_constant(self._makers[name])

    def _crosses(self, name: str) -> bool:
        """Whether a value is a tensor that our kernels and onnxruntime can hand to each other."""
        kind = self._surveyor.kind(name)
        static = static_type(kind) if kind is not None else None
        return static is not None and static[1] in _DTYPES

    def _nature(self, name: str) -> str:
        """What a value is that cannot cross, in words."""
        kind = self._surveyor.kind(name)
        if kind is None:
            return "has a type that nobody knows"
        if kind.WhichOneof("value") != "tensor_type":
            return f"is a {str(kind.WhichOneof('value')).removesuffix('_type')}, not a tensor"
        if static_type(kind) is None and self._has_numbers(name):
            dims = dims_known(kind)
            shape = "" if dims is None else f" {text_of(dims)}"
            return f"has a shape that is only known at run time{shape}"
        return f"has elements of type {type_name(kind.tensor_type.elem_type)}"

    def _unreadable(self, name: str) -> str:
        return f"it reads {name!r}, which {self._nature(name)}"

    def _label_of(self, name: str) -> str:
        return self._labels[self._makers[name]] if name in self._makers else ""

    def _live(self) -> list[int]:
        """Nodes that an output needs."""
        seen, left = set[int](), [self._makers[name] for name in self._outputs if name in self._makers]
        while left:
            if (at := left.pop()) not in seen:
                seen.add(at)
                left += [self._makers[name] for name in self._reads[at] if name in self._makers]
        return sorted(seen)

    def _refuse(self, what: str) -> NoReturn:
        fix = "between nodes that onnxruntime runs such values are fine, but an output must be a tensor of numbers of "
        fix += "known shape: if it is the same in every run, state it in the model; else take another value as output"
        wrong = f"{self._error.message}; with fallback='onnxruntime', {what}, and cannot leave it"
        raise UnsupportedError(wrong, fix=fix) from self._error

    # ------------------------------------------------------------ a region as one node
    def _region(self, name: str, members: Sequence[int], threads: int) -> onnx.NodeProto:
        values = [value for at in members for value in self._nodes[at].output if value]
        inside, outside = set(values), {*self._outputs}
        outside |= {value for at, reads in enumerate(self._reads) if at not in members for value in reads}
        reads = list(dict.fromkeys(value for at in members for value in self._reads[at] if value not in inside))
        held = [self._held[value] for value in reads if value in self._held]
        constants = [at for at in sorted({self._makers[value] for value in reads if value in self._makers})
                     if self._is_constant(at)]  # fmt: skip
        inputs = [value for value in reads
                  if value not in self._held and (value not in self._makers or self._is_computed(value))]  # fmt: skip
        outputs = [value for value in values if value in outside]
        graph = helper.make_graph(
            [self._named(at) for at in (*constants, *members)], name,
            [self._stated(value) for value in inputs], [self._stated(value) for value in outputs],
            [*held, *self._tensors(reads)],
        )  # fmt: skip
        listed = [*(at for at in constants if self._labels[at] in self._why), *members]
        labels = {self._labels[at]: (self._nodes[at].op_type, self._reason(at)) for at in listed}
        program = self._program(name, graph, {label: why for label, (_, why) in labels.items()}, threads)
        types = {value: (self._label_of(value), self._stated(value).type) for value in outputs}
        return region_node(name, program, inputs, types, labels)

    def _tensors(self, names: Iterable[str]) -> list[onnx.TensorProto]:
        """Values known by now."""
        wanted: dict[str, np.ndarray] = {name: self._known[name] for name in names if name in self._known
                                         and not self._is_constant(self._makers[name])}  # fmt: skip
        return [numpy_helper.from_array(value, name) for name, value in wanted.items()]

    def _stated(self, name: str) -> onnx.ValueInfoProto:
        kind = self._surveyor.kind(name)
        if kind is None or not self._crosses(name):
            self._refuse(f"input {name!r} {self._nature(name)}")
        return helper.make_value_info(name, kind)

    def _reason(self, at: int) -> str:
        """Why a node is in a region: it is refused, makes or reads what cannot leave one, or stands between others."""
        refused = self._why.get(self._labels[at], "")
        captive = [name for name in self._nodes[at].output if name and not self._crosses(name)]
        numbers = [name for name in captive if self._has_numbers(name)]
        if captive and not numbers:
            return f"it makes {captive[0]!r}, which {self._nature(captive[0])}"
        alien = [name for name in self._reads[at] if self._is_computed(name) and not self._crosses(name)]
        return refused or (self._unreadable(alien[0]) if alien else "it stands between nodes that run there")

    def _has_numbers(self, name: str) -> bool:
        """Whether a value may be a tensor of numbers."""
        kind = self._surveyor.kind(name)
        code = kind.tensor_type.elem_type if kind is not None else 0
        return kind is None or (kind.WhichOneof("value") == "tensor_type" and type_name(code) not in NO_NUMBERS)

    def _program(self, name: str, graph: onnx.GraphProto, reasons: Mapping[str, str], threads: int) -> bytes:
        """The region's program.

        Raises:
            UnsupportedError: onnxruntime does not take it.
        """
        from ...byoc.onnxruntime.backend import BACKEND, OnnxruntimeOptions
        from ...byoc.region import NodeRegion
        from ...byoc.registry import register

        proto = self._source.proto
        model = helper.make_model(graph, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)
        try:
            region = NodeRegion(name, model.SerializeToString(), reasons)
            return register(BACKEND).lowered(region, OnnxruntimeOptions(threads)).program
        except (ArtifactError, ProgramError, ValueError) as error:  # protobuf: more than 2 GiB
            wrong = f"{self._error.message}; fallback='onnxruntime': {getattr(error, 'message', error)}"
            raise UnsupportedError(wrong, fix=self._error.fix) from error

    # ------------------------------------------------------------ the whole
    def _named(self, at: int) -> onnx.NodeProto:
        """A node that stays; of a name that others had too, its label becomes its name."""
        node = self._nodes[at]
        if node_label(node) == self._labels[at]:
            return node
        named = type(node)()
        named.CopyFrom(node)
        named.name = self._labels[at]
        return named

    def _with_nodes(self, nodes: Sequence[onnx.NodeProto]) -> Source:
        """The model with other nodes, and the weights that they read."""
        source = self._source.proto
        proto = type(source)(ir_version=source.ir_version)
        proto.opset_import.extend(source.opset_import)
        proto.opset_import.add(domain=DOMAIN, version=1)
        graph, old = proto.graph, self._checked.graph
        graph.name = old.name
        graph.output.extend(old.output)
        read = {name for node in nodes for name in reads_of(node)} | self._outputs
        graph.initializer.extend(tensor for tensor in old.initializer if tensor.name in read)
        graph.input.extend(value for value in old.input if value.name not in self._held or value.name in read)
        graph.node.extend(nodes)
        ordered = [type(node).FromString(node.SerializeToString()) for node in sorted_nodes(graph, self._source.name)]
        del graph.node[:]
        graph.node.extend(ordered)
        return self._source.with_proto(proto)
