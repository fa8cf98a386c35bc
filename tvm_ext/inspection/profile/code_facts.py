"""Facts of a kernel's machine code, counted in its assembly: vector width, multiply-adds, loads, stores, stack slots.

    vfmadd231ps (%rax){1to16}, %zmm1, %zmm2    a multiply-add of 512 bits with a load
    vmovups     %zmm0, 192(%rsp)               a store to a slot of the stack
    vmovups     zmmword ptr [rsp + 192], zmm0  the same, in Intel's syntax

Counted are instructions as they stand there, not how often they run. x86 is read, in AT&T's or Intel's syntax.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...driver.machine_code import functions_of
from ...runtime.table import Plain

_ENTRY = "__tvm_ffi_"
_WIDTHS = {"x": 128, "y": 256, "z": 512}
_REGISTER = re.compile(r"%?\b([xyz])mm\d+")
_MULTIPLY_ADD = re.compile(r"v(?:fn?m(?:add|sub)\w*|pdp\w+|dpbf16ps|pmadd52\w+)$")
_SCALAR = re.compile(r"(?:ss|sd|sh)$")
#: A slot of the stack at a fixed offset: no index register, so no element of an array in a loop.
_SLOT = re.compile(r"(?:-?\w*\(%r(?P<att>[sb]p)\)|\[r(?P<intel>[sb]p)(?: *[+-] *\w+)?\])")
_FRAME = re.compile(r"\bmovq?\s+(?:%rsp, *%rbp|rbp, *rsp)\b")
#: What reads memory although it stands last, or writes none although its operand looks so.
_READS_LAST = re.compile(r"^(?:cmp|test|vu?comis|bt|push|call|jmp|idiv|div|imul|mul)")
_NO_ACCESS = re.compile(r"^(?:lea|prefetch|nop)")
_INSTRUCTION = re.compile(r"^\s+(?:(?:rep|lock)\s+)?([a-z][a-z0-9]*)(?:\s+(.*?))?\s*$")
_COMMENT = re.compile(r"\s*(?:#|//).*$")


@dataclass(frozen=True)
class CodeFacts(Plain):
    """Numbers of instructions of a kernel, its parallel loops included, the entry that unpacks arguments left out.

    Attributes:
        vector_bits: width of its multiply-adds, or of its other packed instructions; 0 if it has none.
        fma: fused multiply-adds and dot products, scalar ones too.
        loads, stores: instructions that read, and that write memory.
        spills, reloads: stores of vectors to fixed slots of the stack, and reads of such slots by vector instructions.
        instructions: all.
    """

    vector_bits: int
    fma: int
    loads: int
    stores: int
    spills: int
    reloads: int
    instructions: int

    def __str__(self) -> str:
        width = f"{self.vector_bits}-bit" if self.vector_bits else "scalar"
        stack = f", {self.spills} spills, {self.reloads} reloads" if self.spills or self.reloads else ", no spills"
        return f"{width}, {self.fma} FMA, {self.loads} loads, {self.stores} stores{stack}"


@dataclass(frozen=True)
class Instruction:
    """One line of assembly.

    Attributes:
        name: the mnemonic.
        operands: as text, the destination last.
    """

    name: str
    operands: tuple[str, ...]

    @property
    def width(self) -> int:
        """Of the widest vector register among the operands; 0 without one, and for scalar arithmetic in one."""
        if _SCALAR.search(self.name):
            return 0
        return max((_WIDTHS[letter] for letter in _REGISTER.findall(" ".join(self.operands))), default=0)

    @property
    def touches_vector(self) -> bool:
        return bool(_REGISTER.search(" ".join(self.operands)))

    def memory(self) -> tuple[str, str]:
        """The operand it reads from memory, and the one it writes there; "" for none."""
        places = [at for at, text in enumerate(self.operands) if ("(" in text and "%" in text) or "[" in text]
        if not places or _NO_ACCESS.match(self.name):
            return "", ""
        operand, last = self.operands[places[0]], places[0] == len(self.operands) - 1
        if not last or _READS_LAST.match(self.name):
            return operand, ""
        moves = self.name.startswith(("mov", "vmov", "vextract", "vpextr", "vpmov", "vcompress", "vpcompress", "set"))
        moves = moves or self.name.startswith(("vscatter", "vpscatter", "kmov", "vcvtps2ph", "pop", "bextr"))
        return ("" if moves else operand), operand


def facts_of(assembly: str) -> CodeFacts:
    """Count the instructions of one kernel.

    Args:
        assembly: what :func:`tvm_ext.driver.machine_code.machine_code` gave for it, or any x86 assembly.
    """
    functions = functions_of(assembly) or {"": assembly}
    bodies = [text for name, text in functions.items() if not name.startswith(_ENTRY)] or list(functions.values())
    frames = [(text, bool(_FRAME.search(text))) for text in bodies]
    return _counted([(instruction, frame) for text, frame in frames for instruction in instructions_of(text)])


def _counted(listed: list[tuple[Instruction, bool]]) -> CodeFacts:
    """The sums; the second value says whether %rbp points into the stack in that function."""
    every = [instruction for instruction, _ in listed]
    fma = [instruction for instruction in every if _MULTIPLY_ADD.match(instruction.name)]
    width = max((packed.width for packed in fma), default=0) or max((packed.width for packed in every), default=0)
    accesses = [(instruction, *instruction.memory(), frame) for instruction, frame in listed]
    return CodeFacts(
        vector_bits=width, fma=len(fma),
        loads=sum(bool(read) for _, read, _, _ in accesses), stores=sum(bool(write) for _, _, write, _ in accesses),
        spills=sum(instruction.touches_vector and _is_slot(write, frame) for instruction, _, write, frame in accesses),
        reloads=sum(instruction.touches_vector and _is_slot(read, frame) for instruction, read, _, frame in accesses),
        instructions=len(listed),
    )  # fmt: skip


def instructions_of(text: str) -> Iterator[Instruction]:
    """All instructions of assembly text; directives, labels and comments are passed over."""
    intel = "%" not in _without_comments(text)
    for line in text.splitlines():
        if (match := _INSTRUCTION.match(_COMMENT.sub("", line))) is not None:
            operands = _split(match[2] or "")
            yield Instruction(match[1], tuple(reversed(operands)) if intel else operands)


def _without_comments(text: str) -> str:
    lines = (_COMMENT.sub("", line) for line in text.splitlines())
    return "\n".join(line for line in lines if not line.strip().startswith("."))


def _split(operands: str) -> tuple[str, ...]:
    """Operands at commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in operands:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return tuple(part.strip() for part in parts if part.strip())


def _is_slot(operand: str, frame: bool) -> bool:
    match = _SLOT.search(operand) if operand else None
    return match is not None and (frame or (match["att"] or match["intel"]) == "sp")


def facts_of_kernels(code: Mapping[str, str], triple: str, isa: str) -> tuple[dict[str, CodeFacts], str]:
    """Kernel -> facts, and why there are none, if there are none.

    Args:
        code: kernel -> its assembly.
        triple, isa: of the machine it is for.
    """
    if triple.startswith(("aarch64", "arm")) or isa in ("neon", "sve"):
        return {}, f"machine code of {triple or isa} is not parsed: no static facts"
    return {name: facts_of(text) for name, text in code.items()}, ""
