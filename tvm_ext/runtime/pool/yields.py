"""Threads of TVM's pool that wait for one another keep their cores: they yield them rarely.

The caller that waits for the workers of a kernel, and a worker that waits for the next kernel, spin, and call
sched_yield in every turn. On a core that other programs want too, each call gives a time slice of milliseconds away:
with three programs of the lowest priority beside it on two cores ResNet-18 took 88 ms instead of 7 (a Xeon;
onnxruntime 13). TVM has no setting for that. So the runtime library's calls of sched_yield go to a few instructions,
which pause, and yield by the clock: once in some 50 microseconds, which most waits do not reach.

Where the threads of all running calls are more than the cores, whoever spins takes the core of one that works: there
each turn yields, as in TVM. Source: System V ABI, AMD64 supplement, 5.2 (the relocations of a jump slot).
"""

import ctypes
import functools
import mmap
import platform
import struct
import sys
import time
from collections.abc import Iterator

from ..tvm_runtime import runtime_symbols

_LIBRARY, _NAME = "/libtvm_runtime.so", b"sched_yield"
#: Bits of the clock's cycles which are all zero for 256 of 131072: a turn is shorter than 256 cycles.
_SELDOM = 0x1FF00
_PAGE, _SIZE = mmap.PAGESIZE, ctypes.c_size_t
#: Turns that one call of the measuring loop takes, and where it stands in the page.
_TURNS, _LOOP_AT = 1000, 64
_PT_DYNAMIC, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_JMPREL, _R_X86_64_JUMP_SLOT = 2, 2, 5, 6, 23, 7


class Turn:
    """Instructions in the place of sched_yield: a page of code, and one with a word that makes every turn yield.

    Args:
        real: address of what yields; None for the C library's sched_yield.

    Raises:
        OSError: the system gives no memory that may become code.
    """

    def __init__(self, real: int | None = None) -> None:
        libc, private = ctypes.CDLL(None), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        # of nobody: workers still spin while the interpreter ends
        libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, _SIZE, *[ctypes.c_int] * 3, _SIZE]
        libc.mprotect.argtypes = [ctypes.c_void_p, _SIZE, ctypes.c_int]
        self.address = libc.mmap(None, 2 * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, private, -1, 0)
        if self.address in (None, ctypes.c_void_p(-1).value):
            raise OSError("no memory for code")
        real = real or ctypes.cast(libc.sched_yield, ctypes.c_void_p).value or 0
        for code, place in ((_turn(real), 0), (_LOOP, _LOOP_AT)):
            ctypes.memmove(self.address + place, code, len(code))
        if libc.mprotect(self.address, _PAGE, mmap.PROT_READ | mmap.PROT_EXEC):
            raise OSError("memory cannot be made executable")
        self._always = ctypes.c_uint32.from_address(self.address + _PAGE)
        self._loop = ctypes.CFUNCTYPE(None)(self.address + _LOOP_AT)

    def seconds(self) -> float:
        """Seconds of one turn: the least of a few loops."""

        def loop() -> float:
            start = time.perf_counter()
            self._loop()
            return (time.perf_counter() - start) / _TURNS

        return min(loop() for _ in range(5))

    def yield_always(self, always: bool) -> None:
        """Whether every turn yields, from now on."""
        if bool(self._always.value) != always:
            self._always.value = always


def _turn(real: int) -> bytes:
    """int turn(void): pause; if (!always && (rdtsc & _SELDOM)) return 0; return real()."""
    start = b"\xf3\x0f\x1e\xfa" + b"\xf3\x90"  # endbr64; pause
    start += b"\x83\x3d" + struct.pack("<iB", _PAGE - len(start) - 7, 0)  # cmp dword [always], 0
    clock = b"\x0f\x31" + b"\xa9" + struct.pack("<I", _SELDOM) + b"\x74\x03"  # rdtsc; test eax, _SELDOM; jz real
    here = clock + b"\x31\xc0" + b"\xc3"  # xor eax, eax; ret
    return start + b"\x75" + bytes([len(here)]) + here + b"\xff\x25\0\0\0\0" + struct.pack("<Q", real)  # jnz; jmp real


#: void loop(void): calls the turn at the beginning of its page _TURNS times.
_LOOP = (
    b"\x53" + b"\xbb" + struct.pack("<I", _TURNS)  # push rbx; mov ebx, _TURNS
    + b"\xe8" + struct.pack("<i", -_LOOP_AT - 11) + b"\xff\xcb" + b"\x75\xf7" + b"\x5b\xc3"  # call; dec; jnz; pop; ret
)  # fmt: skip


@functools.cache
def turn() -> Turn | None:
    """That of this process; None on another processor or system, or where no memory may become code."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        return Turn()
    except (OSError, ValueError, AttributeError):
        return None


@functools.cache
def install() -> Turn | None:
    """Let the loaded runtime call it; None if there is none, or if the library has no slot that can be written."""
    runtime_symbols()
    try:
        own, slot = turn(), _slot()
    except (OSError, KeyError):  # no /proc; a library that is linked otherwise
        return None
    if own is None or slot is None:
        return None
    ctypes.c_uint64.from_address(slot).value = own.address
    return own


def yield_always(always: bool) -> None:
    """Whether every turn of the threads of this process yields."""
    if (own := turn()) is not None:
        own.yield_always(always)


def _slot() -> int | None:
    """Address of the word through which the runtime library calls sched_yield."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = [line.split(maxsplit=5) for line in file]
    mine = [line for line in lines if line[-1].rstrip().endswith(_LIBRARY)]
    base = next((int(line[0].split("-")[0], 16) for line in mine if int(line[2], 16) == 0), None)
    slot = None if base is None else next(_jump_slots(base), None)
    writable = [line[0].split("-") for line in lines if "w" in line[1]]
    return slot if slot and any(int(first, 16) <= slot < int(last, 16) for first, last in writable) else None


def _jump_slots(base: int) -> Iterator[int]:
    """Addresses of the jump slots of sched_yield in the ELF image at `base`, read where it is loaded."""
    headers, size, count = struct.unpack("<32xQ14xHH4x", ctypes.string_at(base, 62))
    for header in range(base + headers, base + headers + size * count, size):
        kind, address, nbytes = struct.unpack("<I12xQ16xQ", ctypes.string_at(header, 48))
        if kind == _PT_DYNAMIC:
            break
    else:
        return
    entries = dict(struct.iter_unpack("<qQ", ctypes.string_at(base + address, nbytes)))
    at = {tag: value if value >= base else base + value for tag, value in entries.items()}  # glibc relocates them
    relocations = ctypes.string_at(at[_DT_JMPREL], entries[_DT_PLTRELSZ])
    for offset, info, _ in struct.iter_unpack("<QQq", relocations):
        (name,) = struct.unpack("<I", ctypes.string_at(at[_DT_SYMTAB] + 24 * (info >> 32), 4))
        if info & 0xFFFFFFFF == _R_X86_64_JUMP_SLOT and ctypes.string_at(at[_DT_STRTAB] + name) == _NAME:
            yield base + offset
