"""AMX on a CPU without it: its instructions raise SIGILL, and a handler does what they would do.

    with emulated() as amx:
        kernel(x, w, out)              # machine code with tdpbf16ps and its kin
    amx.executed["tdpbf16ps"]

Everything else runs on the CPU itself, so code has to be compiled for its other instructions. The handler is a Python
function: machine code raises the signal where it holds no lock, and each thread that runs it has its own registers.
Only for tests: an instruction takes about 50 us.
"""

import collections
import ctypes
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .amx_state import Fault, TileState

#: Where `ucontext_t.uc_mcontext.gregs` stands on x86-64 Linux, and which of it is the instruction pointer.
_GREGS, _RIP = 40, 16
#: Number of a register in an instruction -> its place in `gregs`.
_PLACES = (13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7)
#: (mandatory prefix, opcode) of VEX.128.0F38.W0 -> name, where the operand is memory.
_MEMORY = {
    (0, 0x49): "ldtilecfg", (1, 0x49): "sttilecfg",
    (3, 0x4B): "tileloadd", (1, 0x4B): "tileloaddt1", (2, 0x4B): "tilestored",
}  # fmt: skip
#: The same, where operands are tile registers.
_REGISTERS = {
    (0, 0x49): "tilerelease", (3, 0x49): "tilezero", (2, 0x5C): "tdpbf16ps",
    (3, 0x5E): "tdpbssd", (2, 0x5E): "tdpbsud", (1, 0x5E): "tdpbusd", (0, 0x5E): "tdpbuud",
}  # fmt: skip
_SIGNED = {"tdpbssd": (True, True), "tdpbsud": (True, False), "tdpbusd": (False, True), "tdpbuud": (False, False)}


@dataclass(frozen=True)
class Instruction:
    """One decoded instruction.

    Attributes:
        name: its mnemonic.
        length: bytes.
        reg, rm, vvvv: the three register fields.
        base, index: numbers of address registers; None if there is none; a base of 16 is the address of
            the next instruction.
        scale: of the index.
        displacement: bytes.
    """

    name: str
    length: int
    reg: int
    rm: int
    vvvv: int
    base: int | None = None
    index: int | None = None
    scale: int = 1
    displacement: int = 0


def decode(code: bytes) -> Instruction | None:
    """The AMX instruction that begins here; None if none does.

    Args:
        code: at least 15 bytes, the longest instruction there is.
    """
    if code[0] != 0xC4 or code[1] & 0x1F != 2 or code[2] & 0x84:  # three-byte VEX, map 0F38, W0, 128 bits
        return None
    no_x, no_b = not code[1] & 0x40, not code[1] & 0x20
    prefix, vvvv = code[2] & 3, ~(code[2] >> 3) & 15
    modrm = code[4]
    mod, reg, rm = modrm >> 6, modrm >> 3 & 7, modrm & 7
    if mod == 3:
        name = _REGISTERS.get((prefix, code[3]))
        return Instruction(name, 5, reg, rm, vvvv) if name else None
    name = _MEMORY.get((prefix, code[3]))
    if name is None:
        return None
    at, base, index, scale = 5, rm + 8 * no_b, None, 1
    if rm == 4:
        sib, at = code[5], 6
        scale = 1 << (sib >> 6)
        number = (sib >> 3 & 7) + 8 * no_x
        index = None if number == 4 else number
        base = (sib & 7) + 8 * no_b
    size = {0: 0, 1: 1, 2: 4}[mod]
    if mod == 0 and (sib & 7 if rm == 4 else rm) == 5:  # no base, or that of the next instruction
        size, base = 4, (None if rm == 4 else 16)
    displacement = int.from_bytes(code[at : at + size], "little", signed=True)
    return Instruction(name, at + size, reg, rm, vvvv, base, index, scale, displacement)


class Emulator:
    """What the handler keeps.

    Attributes:
        executed: name -> how many such instructions ran.
        faults: what hardware would have refused; the instruction is skipped.
        threads: the registers of each thread that used them.
    """

    def __init__(self) -> None:
        self.executed: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self.threads: dict[int, TileState] = collections.defaultdict(TileState)
        self._counting = threading.Lock()

    def step(self, registers: Any) -> bool:
        """Execute the instruction at the instruction pointer, and advance it; False if it is none of AMX."""
        at = registers[_RIP]
        one = decode(ctypes.string_at(at, 15))
        if one is None:
            return False
        with self._counting:  # several threads may be here
            self.executed[one.name] += 1
        try:
            self._execute(one, registers, self.threads[threading.get_ident()])
        except Fault as fault:
            self.faults.append(str(fault))
        registers[_RIP] = at + one.length
        return True

    def _execute(self, instruction: Instruction, registers: Any, state: TileState) -> None:
        if instruction.name == "tilerelease":
            state.release()
        elif instruction.name == "tilezero":
            state.zero(instruction.reg)
        elif instruction.name == "tdpbf16ps":
            state.dot_bf16(instruction.reg, instruction.rm, instruction.vvvv)
        elif instruction.name in _SIGNED:
            state.dot_int8(instruction.reg, instruction.rm, instruction.vvvv, _SIGNED[instruction.name])
        else:
            self._move(instruction, registers, state)

    def _move(self, instruction: Instruction, registers: Any, state: TileState) -> None:
        """What reads or writes memory: an index register holds the stride of the rows."""
        address = instruction.displacement
        if instruction.base is not None:
            address += (
                registers[_RIP] + instruction.length if instruction.base == 16 else registers[_PLACES[instruction.base]]
            )
        stride = registers[_PLACES[instruction.index]] * instruction.scale if instruction.index is not None else 0
        if instruction.name == "ldtilecfg":
            state.configure(ctypes.string_at(address + stride, 64))
        elif instruction.name == "sttilecfg":
            ctypes.memmove(address + stride, state.configuration(), 64)
        elif instruction.name == "tilestored":
            state.store(instruction.reg, lambda to, data: _put(to, data), address, stride)
        else:
            state.load(instruction.reg, ctypes.string_at, address, stride)


def _put(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


class _SigAction(ctypes.Structure):
    _fields_ = (("handler", ctypes.c_void_p), ("mask", ctypes.c_ubyte * 128), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p))  # fmt: skip


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SA_SIGINFO, _SA_NODEFER = 4, 0x40000000


@contextmanager
def emulated() -> Iterator[Emulator]:
    """While this is open, AMX instructions of all threads are executed by an :class:`Emulator`.

    Raises:
        AssertionError: at the end, if an instruction would have faulted, or left a configuration behind.
    """
    emulator = Emulator()
    libc = ctypes.CDLL(None)
    before = _SigAction()

    @_HANDLER
    def handle(number: int, info: int, context: int) -> None:
        registers = (ctypes.c_int64 * 23).from_address(context + _GREGS)
        if not emulator.step(registers):  # another instruction that this CPU lacks: end as without an emulator
            libc.sigaction(signal.SIGILL, ctypes.byref(before), None)

    action = _SigAction(ctypes.cast(handle, ctypes.c_void_p), flags=_SA_SIGINFO | _SA_NODEFER)
    libc.sigaction(signal.SIGILL, ctypes.byref(action), ctypes.byref(before))
    try:
        yield emulator
    finally:
        libc.sigaction(signal.SIGILL, ctypes.byref(before), None)
    assert not emulator.faults, emulator.faults[:3]
    assert all(state.shapes is None for state in emulator.threads.values()), "a thread kept its tile configuration"


def assemble(name: str, reg: int = 0, rm: int = 0, vvvv: int = 0) -> bytes:
    """The bytes of an instruction between registers, for tests of this emulator."""
    (prefix, opcode) = next(key for key, value in _REGISTERS.items() if value == name)
    return struct.pack("5B", 0xC4, 0xE2, (~vvvv & 15) << 3 | prefix, opcode, 0xC0 | reg << 3 | rm)
