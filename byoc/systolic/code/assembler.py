"""Assembler text: a program that people can read, write and change; `assemble(disassemble(p))` has the bytes of p.

::

    .accelerator rows=4 cols=4 dtype=int8 ... energy.dram_byte=244.0 'energy.source=...'
    .run rtl                                 ; on the hardware; without it, by the functional view
    .tensor x input int8 [3, 8]
    .tensor h scratch@4096 int8 [3, 8]      ; in the scratchpad
    .constant int8 [8, 4] base64:AAEC...     ; or sha256:..., with the values given to `assemble`
    .layer {"name": "fc", "begin": 0, "end": 4, "facts": {}}
    LOAD operand=a tensor=x dst=0 rows=3 cols=8 offset=0 row_stride=8 col_stride=1 push.next   ; 0
    GEMM dataflow=ws accumulate=0 a=0 b=64 c=0 m=3 k=8 n=4 pop.prev push.next                  ; 2
    FINISH

A comment goes from `;` to the end of the line. A field that has a default may be left out.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from ....core.errors import ProgramError
from ..config import RUNS, Accelerator
from .isa import CLASSES, FORMS, TOKEN_NAMES, Instruction, check_tokens, text_of
from .program import CONSTANT_DTYPES, Layer, Program, Tensor

_MNEMONICS = {kind.mnemonic: kind for kind in CLASSES.values()}
#: Fields that are real numbers; all others of numbers are whole.
_REAL = ("scale", "low")


def disassemble(program: Program, data: bool = True) -> str:
    """Text of a program.

    Args:
        program: any.
        data: whether constants are written out; if not, their SHA-256 is, and `assemble` wants them.
    """
    settings = (shlex.quote(f"{name}={value}") for name, value in _settings(program.accelerator))
    lines = [".accelerator " + " ".join(settings)]
    lines += [f".run {program.run}"] * (program.run != RUNS[0])
    lines += [f".tensor {t.name} {_role_text(t)} {t.dtype} {list(t.shape)}" for t in program.tensors]
    lines += [f".constant {c.dtype} {list(c.shape)} {_data_text(c, data)}" for c in program.constants]
    lines += [".layer " + json.dumps(vars(layer)) for layer in program.layers]
    begins = {layer.begin: layer for layer in program.layers}
    for index, instruction in enumerate(program.instructions):
        if index in begins:
            lines += ["", f"; {begins[index].name}"]
        lines.append(f"{_instruction_text(program, instruction)}  ; {index}")
    return "\n".join(lines) + "\n"


def assemble(text: str, constants: Sequence[np.ndarray] = ()) -> Program:
    """The program that the text describes.

    Args:
        text: see above.
        constants: values of those that the text has only a SHA-256 of, in any order.

    Raises:
        ProgramError: a line is not understood, with its number; or what it describes is no program.
    """
    state = _Assembly({_digest(values): values for values in constants})
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            state.add(line)
        except ProgramError as error:
            raise ProgramError(f"line {number} ({line.strip()[:120]}): {error.message}", fix=error.fix) from None
        except (ValueError, TypeError, KeyError, binascii.Error, OverflowError, RecursionError) as error:
            raise ProgramError(f"line {number} ({line.strip()[:120]}): {error}") from None
    return state.program()


class _Assembly:
    """A program while its text is read."""

    def __init__(self, constants: dict[str, np.ndarray]) -> None:
        self._values = constants
        self._accelerator = Accelerator()
        self._tensors: list[Tensor] = []
        self._constants: list[np.ndarray] = []
        self._layers: list[Layer] = []
        self._instructions: list[Instruction] = []
        self._run = RUNS[0]
        self._directives: dict[str, Callable[[str], None]] = {
            ".accelerator": self._read_accelerator, ".run": self._read_run, ".tensor": self._read_tensor,
            ".constant": self._read_constant, ".layer": self._read_layer,
        }  # fmt: skip

    def add(self, line: str) -> None:
        """Reads one line."""
        if not line.startswith(".layer"):  # its JSON may hold a semicolon
            line = line.split(";", 1)[0]
        word, _, rest = line.strip().partition(" ")
        if word in self._directives:
            self._directives[word](rest.strip())
        elif word:
            self._instructions.append(self._read_instruction(word, rest.split()))

    def program(self) -> Program:
        return Program(
            self._accelerator, tuple(self._tensors), tuple(self._constants), tuple(self._instructions),
            tuple(self._layers), self._run,
        )  # fmt: skip

    def _read_run(self, rest: str) -> None:
        self._run = rest

    def _read_accelerator(self, rest: str) -> None:
        settings: dict[str, Any] = {}
        for item in shlex.split(rest):
            name, value = _pair(item)
            table, _, key = name.rpartition(".")
            (settings.setdefault(table, {}) if table else settings)[key] = value if key == "source" else _value(value)
        self._accelerator = Accelerator.from_dict(settings)

    def _read_tensor(self, rest: str) -> None:
        name, role, dtype, shape = rest.split(None, 3)
        role, at, address = role.partition("@")
        self._tensors.append(Tensor(name, role, tuple(json.loads(shape)), dtype, int(address) if at else None))

    def _read_constant(self, rest: str) -> None:
        dtype, text = rest.split(None, 1)
        shape_text, _, content = text.rpartition(" ")
        kind, _, value = content.partition(":")
        if kind == "sha256":
            if value not in self._values:
                raise ProgramError("its values are not among the constants given", fix="assemble(text, constants=...)")
            self._constants.append(self._values[value])
        elif kind == "base64" and dtype in CONSTANT_DTYPES:
            shape = json.loads(shape_text)
            values = np.frombuffer(base64.b64decode(value, validate=True), dtype)
            if math.prod(shape) != values.size:
                raise ProgramError(f"{values.size} values for the shape {shape}")
            self._constants.append(values.reshape(shape))
        else:
            raise ProgramError(f"a constant is of {', '.join(CONSTANT_DTYPES)}, as base64:... or sha256:...")

    def _read_layer(self, rest: str) -> None:
        self._layers.append(Layer(**json.loads(rest)))

    def _read_instruction(self, mnemonic: str, items: list[str]) -> Instruction:
        kind = _MNEMONICS.get(mnemonic)
        if kind is None:
            raise ProgramError(f"no instruction {mnemonic!r}", fix=f"choose of {', '.join(_MNEMONICS)}")
        tokens = sum(TOKEN_NAMES[item] for item in set(items) & set(TOKEN_NAMES))
        texts = dict(_pair(item) for item in items if item not in TOKEN_NAMES)
        form = FORMS[kind]
        for name in texts:
            if name not in form.names:
                raise ProgramError(f"{mnemonic} has no field {name!r}", fix=f"choose of {', '.join(form.names)}")
        values = {
            name: self._field(name, texts[name], choices)
            for name, choices in zip(form.names, form.choices, strict=True)
            if name in texts
        }
        for field in fields(kind):
            if field.default is MISSING and field.name not in values:
                raise ProgramError(f"{mnemonic} needs {field.name}=")
        instruction: Instruction = kind(**values, tokens=tokens)
        check_tokens(len(self._instructions), instruction)
        return instruction

    def _field(self, name: str, text: str, choices: tuple[Any, ...]) -> Any:
        names = [tensor.name for tensor in self._tensors]
        if name == "tensor" and text in names:
            return names.index(text)
        if name in _REAL:
            with np.errstate(over="ignore"):
                number = float(np.float32(text))  # as the bytes have it
            if math.isinf(number) and not math.isinf(float(text)):
                raise ProgramError(f"{name}={text}: a number of float32 is needed")
            return number
        value = text if choices and isinstance(choices[0], str) else _value(text)
        if choices and value not in choices:
            raise ProgramError(f"{name}={text}: choose of {', '.join(map(str, choices))}")
        if isinstance(value, bool) or not isinstance(value, str if choices and isinstance(choices[0], str) else int):
            raise ProgramError(f"{name}={text}: a whole number is needed")
        return value


def _instruction_text(program: Program, instruction: Instruction) -> str:
    text = text_of(instruction)
    at = getattr(instruction, "tensor", None)
    return text if at is None else text.replace(f" tensor={at} ", f" tensor={program.tensors[at].name} ", 1)


def _role_text(tensor: Tensor) -> str:
    return tensor.role if tensor.address is None else f"{tensor.role}@{tensor.address}"


def _settings(accelerator: Accelerator) -> list[tuple[str, Any]]:
    values = accelerator.as_dict()
    energy = values.pop("energy")
    return [*values.items(), *((f"energy.{name}", value) for name, value in energy.items())]


def _data_text(values: np.ndarray, data: bool) -> str:
    return f"base64:{base64.b64encode(values.tobytes()).decode()}" if data else f"sha256:{_digest(values)}"


def _digest(values: np.ndarray) -> str:
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals:
        raise ProgramError(f"{item!r} is neither name=value nor one of {', '.join(TOKEN_NAMES)}")
    return name, value


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
