"""Instructions that multiply narrow numbers: dot products of words, and products of tile registers, by LLVM's names.

    vpdpbusd     acc[j] += u8 * s8 + u8 * s8 + u8 * s8 + u8 * s8        int32, wraps
    vpmaddwd     s16 * s16 + s16 * s16                                  int32, no accumulator
    vdpbf16ps    acc[j] += bf16 * bf16 + bf16 * bf16                    float32
    tdpb..d      acc[m, n] += the same over the words of a row of a     int32, each operand signed or not
    tdpbf16ps    acc[m, n] += the same over the words of a row of a     float32

What they are, for the recipes that use them and for the loops that measure them; nothing here is a rate. Source: Intel
64 and IA-32 Architectures Software Developer's Manual, volume 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

#: Lanes of the accumulator of a dot product that adds to it.
LANES = 16
#: Rows of a tile register, bytes of a row, columns of 32 bits.
ROWS, ROW_BYTES, COLUMNS = 16, 64, 16
#: LLVM's intrinsic takes vectors of bfloat16, which TVM has no LLVM type for. This function takes words; what calls it
#: brings it along, and LLVM inlines it.
BF16 = "tvm_ext_vdpbf16ps"
BF16_SOURCE = f"""
define <16 x float> @{BF16}(<16 x float> %acc, <16 x i32> %x, <16 x i32> %w) alwaysinline nounwind readnone {{
  %a = bitcast <16 x i32> %x to <32 x bfloat>
  %b = bitcast <16 x i32> %w to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %acc, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %r
}}
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
"""


@dataclass(frozen=True)
class Product:
    """An instruction that multiplies vectors or tiles.

    Attributes:
        instruction: LLVM's name, the mnemonic.
        feature: the CPU feature that has it.
        left, right: dtypes of the operands.
        result: dtype of the accumulator.
        group: elements in 32 bits.
    """

    instruction: str
    feature: str
    left: str
    right: str
    result: str
    group: int

    @property
    def lanes(self) -> int:
        """Elements of a vector, or of a row of a tile."""
        return COLUMNS * self.group

    @property
    def tiles(self) -> bool:
        """Whether it multiplies tile registers."""
        return self.feature.startswith("amx")

    def features(self, lanes: int = LANES) -> frozenset[str]:
        """All that a CPU must have to run it on vectors of so many words."""
        if self.instruction == "vpmaddwd" and lanes == LANES:
            return frozenset({"avx512bw"})
        return frozenset({self.feature, "amx-tile"} if self.tiles else {self.feature})

    @property
    def rate(self) -> str:
        """The field of :class:`.Rates` that it runs at."""
        numbers = {"bfloat16": "bf16", "int16": "int16"}.get(self.left, "int8")
        return f"{'tile' if self.tiles else 'dot'}_{numbers}"

    def fits(self, lanes: int) -> bool:
        """Whether it takes whole vectors of so many words."""
        return self.tiles or lanes == LANES or (self.instruction == "vpmaddwd" and lanes == LANES // 2)


#: dtypes of activations and weights -> their product of tiles.
PRODUCTS: Mapping[tuple[str, str], Product] = {
    ("bfloat16", "bfloat16"): Product("tdpbf16ps", "amx-bf16", "bfloat16", "bfloat16", "float32", 2),
    **{
        (left, right): Product(f"tdpb{left[0]}{right[0]}d".replace("i", "s"), "amx-int8", left, right, "int32", 4)
        for left in ("int8", "uint8")
        for right in ("int8", "uint8")
    },
}
#: Mnemonic -> product, of vectors and of tiles.
INSTRUCTIONS: Mapping[str, Product] = {
    product.instruction: product
    for product in (
        Product("vpdpbusd", "avx512vnni", "uint8", "int8", "int32", 4),
        Product("vpmaddwd", "avx2", "int16", "int16", "int32", 2),
        Product("vdpbf16ps", "avx512bf16", "bfloat16", "bfloat16", "float32", 2),
        *PRODUCTS.values(),
    )
}


def vpdpbusd(acc: Any, x: Any, w: Any) -> Any:
    """int32x16 sums after the products of bytes in the words x (unsigned) and w (signed), int32x16 or int8x64 each."""
    x, w = (tirx.reinterpret(f"int8x{4 * LANES}", words) for words in (x, w))
    return tirx.call_llvm_pure_intrin(f"int32x{LANES}", "llvm.x86.avx512.vpdpbusd.512", acc, x, w)


def vpmaddwd(x: Any, w: Any, lanes: int) -> Any:
    """int32 sums of the products of pairs of 16-bit numbers in the words x and w: vectors of 8 words, or of 16."""
    x, w = (tirx.reinterpret(f"int16x{2 * lanes}", pairs) for pairs in (x, w))
    name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", name, x, w)


def vdpbf16ps(acc: Any, x: Any, w: Any) -> Any:
    """float32x16 sums after the products of bfloat16 in the words x and w, int32x16 each; calls :data:`BF16`."""
    return tirx.call_pure_extern(f"float32x{LANES}", BF16, acc, x, w)


def tile_instruction(name: str, *args: Any) -> None:
    """Adds an instruction on tile registers to the function that is being built.

    Args:
        name: LLVM's, such as "tileloadd64".
        args: numbers of registers; expressions as they are.
    """
    operands = [tirx.const(arg, "uint8") if isinstance(arg, int) else arg for arg in args]
    T.evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))


def tile_configuration(shapes: Iterable[tuple[int, int]]) -> bytes:
    """The 64 bytes that `ldtilecfg` takes, of registers of so many (rows, bytes a row)."""
    config = bytearray(64)
    config[0] = 1  # palette
    for tile, (rows, row_bytes) in enumerate(shapes):
        config[16 + 2 * tile], config[48 + tile] = row_bytes, rows
    return bytes(config)
