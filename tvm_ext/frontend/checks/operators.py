"""Which ONNX versions, domains and operators can be imported; what cannot is named before anything is converted."""

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from onnx import defs
from tvm.relax.frontend.onnx import onnx_frontend

from ...core.errors import ModelError, UnsupportedError
from ...ops.table import operators
from ...runtime.table import few
from ..control_flow.functions import has_definition
from ..control_flow.sequences import SEQUENCES
from ..converters import FOREIGN, own_converter
from ..fallback.node import is_region
from ..naming import node_label
from ..reading.walk import with_branches
from .refusal import FIX

#: The oldest opset whose operators are read: before it, Add and its kin broadcast by attributes. Of an older model the
#: operators that are the same there are read.
OLDEST_OPSET = 7
OLDEST_IR = 3
#: Versions are of 32 bits in onnx's schemas.
_MOST_VERSION = 1 << 31
_DEFAULT = ("", "ai.onnx")
#: Of onnxruntime, written in the standard domain, and unknown to ONNX.
INTERNAL = ("SimplifiedLayerNormalization",)
#: Operators that become nodes of the graph around them.
CONTROL_FLOW = ("If", "Loop", "Scan")
#: Operators of whose versions the own converter reads more than the stock one.
_ALL_VERSIONS = ("BatchNormalization", "Resize", "Slice", "Upsample")
#: Operators of which a version was withdrawn that models have all the same, and whose meaning is clear.
_WITHDRAWN = ("GroupNormalization",)
#: Operators whose stock converter knows too little of them.
BY_DEFINITION = ("Attention",)


def check_versions(proto: onnx.ModelProto, model: str) -> int:
    """The opset of the standard operators, when it and the IR version can be read.

    Raises:
        UnsupportedError: a version that is too old or too new; says which range works.
        ModelError: no version of the standard operators is stated, or two of one domain.
    """
    if not OLDEST_IR <= proto.ir_version <= onnx.IR_VERSION:
        fix = "export the model again" if proto.ir_version < OLDEST_IR else "upgrade the onnx package"
        wrong = f"{model}: ONNX IR version {proto.ir_version}; {OLDEST_IR} to {onnx.IR_VERSION} work"
        raise UnsupportedError(wrong, fix=fix)
    newest = onnx.defs.onnx_opset_version()
    stated = {("" if o.domain in _DEFAULT else o.domain, o.version) for o in proto.opset_import}
    if len({domain for domain, _ in stated}) < len(stated) or any(not 0 <= v < _MOST_VERSION for _, v in stated):
        listed = ", ".join(f"{domain or 'ai.onnx'!r} {version}" for domain, version in sorted(stated))
        raise ModelError(f"{model}: states opsets {listed[:200]}: one of each domain is needed", fix="export it again")
    versions = [o.version for o in proto.opset_import if o.domain in _DEFAULT]
    if not versions:
        if any(node.domain in _DEFAULT for node in proto.graph.node):
            raise ModelError(f"{model}: states no opset of the standard operators", fix="export the model again")
        return newest  # for none of its nodes; what they are is for check_operators to say
    if not 1 <= versions[0] <= newest:
        fix = "export with an opset in that range, or onnx.version_converter.convert_version(model, 17)"
        raise UnsupportedError(f"{model}: opset {versions[0]}; 1 to {newest} work", fix=fix)
    return versions[0]


def opsets_of(proto: onnx.ModelProto) -> dict[str, int]:
    """Domain -> version that the model states; the standard domain is ""."""
    return {"" if o.domain in _DEFAULT else o.domain: o.version for o in proto.opset_import}


def lacks_converter(node: onnx.NodeProto) -> bool:
    """Whether a node can be imported by ONNX's definition of its operator only."""
    if node.domain not in _DEFAULT:
        return not _is_foreign(node)
    return node.op_type in BY_DEFINITION or not is_converted(node.op_type)


def check_operators(nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int], model: str) -> None:
    """Every node that always runs, also in bodies of loops, has a converter that understands its version.

    Of nodes in branches only the schema is looked at: a known condition may leave them out.

    Raises:
        ModelError: an operator that the stated opset does not have.
        UnsupportedError: names a node of every operator that cannot be converted, with its domain and the reason.
    """
    wrong: dict[tuple[str, str, str], list[str]] = {}
    for node, always in with_branches(nodes):
        reason = refusal(node, opsets) if always else _absence(node, opsets)
        if reason:
            wrong.setdefault((node.op_type, node.domain, reason), []).append(node_label(node))
    if not wrong:
        return
    lines = []
    for (op_type, domain, reason), labels in wrong.items():
        what = f"operator {op_type!r} (domain {domain or 'ai.onnx'!r}) {reason}"
        lines.append(f"node {few([*map(repr, labels)], 1)}: {what}")
    kind = ModelError if all(key[2].startswith(_TOO_NEW) for key in wrong) else UnsupportedError
    raise kind(f"{model}: " + "\n  ".join(lines), fix=FIX)


_TOO_NEW = "came with opset "
#: Operators that no converter is planned for -> why.
WHY = {name: ": its output is random, and a compiled program gives the same for the same inputs"
       for row in operators() if row.random for name in row.onnx}  # fmt: skip
_STRINGS = ": it works on strings or on files of images; do so before the model"
WHY |= dict.fromkeys(("ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"), _STRINGS)
_MAPS = ": it works on maps or on strings, which are no tensors; do so outside of the model (skl2onnx: zipmap=False)"
WHY |= dict.fromkeys(("CastMap", "CategoryMapper", "DictVectorizer", "ZipMap"), _MAPS)


def refusal(node: onnx.NodeProto, opsets: Mapping[str, int]) -> str:
    """Why a node cannot be imported; "" if it can."""
    if reason := _absence(node, opsets):
        return reason
    if is_region(node):
        return ""
    if lacks_converter(node):
        return "" if has_definition(node, opsets) else "has no converter" + WHY.get(node.op_type, "")
    if node.domain in _DEFAULT and (since := _changed(node, opsets[""])):
        return f"of opset {opsets['']} differs from that of {since}, and those from {OLDEST_OPSET} on are read"
    converter = onnx_frontend._get_convert_map().get(node.op_type)
    own = own_converter(node.op_type) is not None and (converter is None or node.op_type in _ALL_VERSIONS)
    if own or node.domain not in _DEFAULT or node.op_type in (*CONTROL_FLOW, *SEQUENCES):
        return ""
    return _version_refusal(node, opsets[""], converter)


def _changed(node: onnx.NodeProto, opset: int) -> int:
    """The version since which an operator is another one than in this opset, if that is too old; else 0."""
    if opset >= OLDEST_OPSET or not defs.has(node.op_type, OLDEST_OPSET):
        return 0
    since = int(defs.get_schema(node.op_type, OLDEST_OPSET).since_version)
    return since if since > opset else 0


def _absence(node: onnx.NodeProto, opsets: Mapping[str, int]) -> str:
    """Why a node cannot be what it says it is; "" if ONNX, or this library, knows its operator."""
    if is_region(node):
        return ""
    if node.domain not in _DEFAULT:
        known = _is_foreign(node) or has_definition(node, opsets)
        return "" if known else "is not a standard one" + WHY.get(node.op_type, "")
    opset = opsets.get("", defs.onnx_opset_version())
    if node.op_type in INTERNAL:
        return ""
    if not defs.has(node.op_type):
        return "does not exist in ONNX"
    if not defs.has(node.op_type, opset):
        every = (s for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (node.op_type, ""))
        first = min(schema.since_version for schema in every)
        return f"{_TOO_NEW}{first}, and the model states {opset}"
    gone = defs.get_schema(node.op_type, opset).deprecated and not is_withdrawn(node, opset)
    return f"is gone in opset {opset}" if gone else ""


def is_withdrawn(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX knows this version of a node's operator no more, and this library does."""
    known = node.domain in _DEFAULT and node.op_type in _WITHDRAWN and defs.has(node.op_type, opset)
    return known and bool(defs.get_schema(node.op_type, opset).deprecated)


def _is_foreign(node: onnx.NodeProto) -> bool:
    """Whether a node of another domain than the standard one has a converter."""
    return node.op_type in FOREIGN.get(node.domain, {})


def is_converted(op_type: str) -> bool:
    known = (*CONTROL_FLOW, *SEQUENCES, *onnx_frontend._get_convert_map())
    return op_type in known or own_converter(op_type) is not None


def _version_refusal(node: onnx.NodeProto, opset: int, converter: Any) -> str:
    """Stock TVM silently takes its oldest implementation for an older opset: see that the node reads the same there."""
    oldest = min(int(name[7:]) for name in dir(converter) if name.startswith("_impl_v"))
    if opset >= oldest or not defs.has(node.op_type, oldest):
        return ""
    ours, theirs = defs.get_schema(node.op_type, opset), defs.get_schema(node.op_type, oldest)
    if _same_meaning(node, ours, theirs):
        return ""
    return f"of opset {opset} differs from that of opset {oldest}, the oldest its converter reads"


def _same_meaning(node: onnx.NodeProto, ours: Any, theirs: Any) -> bool:
    used = {attribute.name for attribute in node.attribute}
    if not used <= set(theirs.attributes) or not theirs.min_input <= len(node.input) <= theirs.max_input:
        return False
    for name in set(ours.attributes) & set(theirs.attributes) - used:
        if ours.attributes[name].default_value != theirs.attributes[name].default_value:
            return False
    return _inputs_stand(_names(ours.inputs), _names(theirs.inputs), len(node.input))


def _names(inputs: Iterable[Any]) -> list[str]:
    return [value.name for value in inputs]


def _inputs_stand(ours: list[str], theirs: list[str], count: int) -> bool:
    """No input that the node uses stands at another place in the other version; a new name alone is no matter."""
    return all(name not in theirs or theirs.index(name) == i for i, name in enumerate(ours[:count]))
