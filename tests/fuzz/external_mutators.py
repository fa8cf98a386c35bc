"""Mutations of external data: locations that leave the folder, links, devices, pipes, offsets and lengths.

Each changes a ModelProto and the entries of its folder in place.
"""

from collections.abc import Callable
from random import Random

import onnx

from .graph_mutators import NothingToChange, some
from .tensor_mutators import tensors_of

#: What a file outside the folder holds; none of it may get into a model.
SECRET = b"tvm-ext: no model may read this. " * 64

Entries = dict[str, tuple[str, bytes]]
"""Path in the model's folder -> (kind, content): "file", "link" (content: where to), "pipe", "folder"."""

_LOCATIONS = (
    "../secret.bin", "more/../../secret.bin", "/etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/mem",
    "..\\secret.bin", "./weights.bin", "weights.bin/", "weights.bin\0", "", ".", "..", "more", "~/x",
    "file:///etc/passwd", "a" * 5000, "more/../weights.bin", "//etc/passwd", "\u2024\u2024/secret.bin", "WEIGHTS.BIN",
    "model.onnx", "/proc/self/environ",
)  # fmt: skip
_NUMBERS = (
    "-1", "0", "1", "7", "4096", "99999999999999999999", "-9223372036854775808", "9223372036854775807", "x", "", "1e3",
    "0x10", " 4", "1_0", "4.0", "9" * 5000, "\u0663",
)  # fmt: skip


def location(model: onnx.ModelProto, entries: Entries, rng: Random) -> None:
    """A tensor lies somewhere else."""
    _set(_tensor(model, rng), "location", rng.choice(_LOCATIONS))


def place(model: onnx.ModelProto, entries: Entries, rng: Random) -> None:
    """Offset or length of a tensor is another."""
    _set(_tensor(model, rng), rng.choice(("offset", "length")), rng.choice(_NUMBERS))


def link(model: onnx.ModelProto, entries: Entries, rng: Random) -> None:
    """A data file, or its folder, is a link: out of the folder, to a device, to itself, or within."""
    targets = (
        "../secret.bin", "/dev/zero", "weights.bin", "model.onnx", "/etc/passwd", "/proc/self/mem", "/dev/stdin", "..",
    )  # fmt: skip
    name = some(rng, entries)
    entries[name] = ("link", rng.choice(targets).encode())
    if rng.random() < 0.3:  # and what it links to is a link again
        entries["hop"] = ("link", b"../secret.bin")
        entries[name] = ("link", b"hop")
    if rng.random() < 0.3:
        entries["out"] = ("link", b"..")
        _set(_tensor(model, rng), "location", "out/secret.bin")


def special(model: onnx.ModelProto, entries: Entries, rng: Random) -> None:
    """A data file is a pipe that nobody writes to, a folder, empty, short, or missing."""
    name = some(rng, entries)
    kind = rng.choice(("pipe", "folder", "empty", "short", "missing"))
    if kind == "missing":
        del entries[name]
    elif kind in ("empty", "short"):
        entries[name] = ("file", entries[name][1][: 0 if kind == "empty" else 9])
    else:
        entries[name] = (kind, b"")


def keys(model: onnx.ModelProto, entries: Entries, rng: Random) -> None:
    """Entries of a tensor's external data are missing, doubled or unknown, or the tensor has data inside as well."""
    tensor, how = _tensor(model, rng), rng.randrange(5)
    if how == 0 and tensor.external_data:
        del tensor.external_data[rng.randrange(len(tensor.external_data))]
    elif how == 1:
        tensor.external_data.add(key="location", value=rng.choice(_LOCATIONS))
    elif how == 2:
        tensor.external_data.add(key=rng.choice(("checksum", "basepath", "")), value="/etc")
    elif how == 3:
        tensor.raw_data = b"\0" * 8
    else:
        tensor.data_location = onnx.TensorProto.DEFAULT


def _tensor(model: onnx.ModelProto, rng: Random) -> onnx.TensorProto:
    return some(rng, [t for t in tensors_of(model) if t.external_data])


def _set(tensor: onnx.TensorProto, key: str, value: str) -> None:
    for entry in tensor.external_data:
        if entry.key == key:
            entry.value = value
            return
    raise NothingToChange


MUTATORS: tuple[Callable[[onnx.ModelProto, Entries, Random], None], ...] = (
    location, location, place, place, link, link, special, keys,
)  # fmt: skip
