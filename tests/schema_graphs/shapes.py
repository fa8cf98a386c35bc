"""Shapes of operators' inputs as patterns: letters are sizes drawn once a graph, so that operands fit each other."""

import math
import random
from dataclasses import dataclass, field

Shape = tuple[int, ...]
#: Sizes at which kernels have edges: none, one, primes, and what no vector divides.
_SIZES = (1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5, 7, 7, 8, 8, 13, 13, 16, 17, 31, 33, 64)
#: How often a size is 0, by graph.
_NONE = (0.0, 0.0, 0.03, 0.03, 0.03, 0.25)
#: Elements of the largest operand: larger ones are drawn again.
_LARGEST = 6000

#: Operator -> shapes of its inputs, "|" between them. A letter or a product ("g.c") is a dimension; S stands for one to
#: three spatial dimensions, K for as many of a window, B for leading dimensions of a batch; "any", "one" (rank 1 and
#: more) and "two" are whole shapes, "same" is the first one, "in" has no dimension beyond it, "bc" broadcasts to it.
#: Choices are parted by "or". Inputs beyond the pattern, and operators without one, are "any", then "bc".
PATTERNS = {
    "Conv": "n g.c S | g.o c K | g.o", "ConvInteger": "n g.c S | g.o c K | 0 | 0",
    "QLinearConv": "n g.c S | 0 | 0 | g.o c K | 0 | 0 | 0 | 0 | g.o or n c S | 0 | 0 | o c K | o | o | 0 | 0 | o",
    "ConvTranspose": "n g.c S | g.c o K | g.o", "DeformConv": "n c h w | o c 1 1 | n 2 h w | o | n 1 h w",
    "MatMul": "B m k | B k n or k | k n or m k | k or B m k | k n or m k | B k n",
    "MatMulInteger": "B m k | B k n | 0 | 0 or m k | k n | 0 | n",
    "QLinearMatMul": "B m k | 0 | 0 | B k n | 0 | 0 | 0 | 0",
    "Gemm": "m k | k n | n or m k | k n | m n or k m | k n | m 1 or m k | n k | 0",
    "BatchNormalization": "n c S | c | c | c | c", "InstanceNormalization": "n c S | c | c",
    "GroupNormalization": "n g.c S | g.c | g.c or n g.c S | g | g",
    "LayerNormalization": "m n k | k | k or n k | 1 | 1", "RMSNormalization": "m n k | k or n k | k", "LRN": "n c S",
    "MaxPool": "n c S", "AveragePool": "n c S", "LpPool": "n c S", "GlobalAveragePool": "n c S",
    "GlobalMaxPool": "n c S", "GlobalLpPool": "n c S", "MaxUnpool": "n c S | n c S", "MaxRoiPool": "n c h w | r 5",
    "RoiAlign": "n c h w | r 4 | r", "DepthToSpace": "n b.b.c h w", "SpaceToDepth": "n c b.h b.w",
    "GridSample": "n c h w | n p q 2 or n c d h w | n p q r 3", "AffineGrid": "n 2 3 or n 3 4", "Col2Im": "n c.k.p l",
    "Det": "B m m", "Trilu": "B m n", "EyeLike": "m n", "Einsum": "m k | k n or m k | m k or B m", "PRelu": "any | bc",
    "Celu": "any", "LSTM": "t n i | D 4.h i | D 4.h h | D 8.h | n | D n h | D n h | D 3.h",
    "GRU": "t n i | D 3.h i | D 3.h h | D 6.h | n | D n h", "RNN": "t n i | D h i | D h h | D 2.h | n | D n h",
    "Gather": "one | any or one | v", "GatherElements": "one | in", "GatherND": "two | m 1 or two | m 2",
    "ScatterElements": "one | in | in", "Scatter": "one | in | in", "ScatterND": "m n | k 1 | k n or m n | k 2 | k",
    "TensorScatter": "n c s d | n c 1 d | n", "OneHot": "any | 0 | 2", "Compress": "one | v",
    "ReverseSequence": "l n k | n", "NonMaxSuppression": "n s 4 | n c s",
    "Attention": "n h l d | n h s d | n h s e | l s | n h t d | n h t e or n l h.d | n s h.d | n s h.e | l s",
    "RotaryEmbedding": "n h l 2.d | l d | l d | n l",
    "NegativeLogLikelihoodLoss": "n c S | n S | c", "SoftmaxCrossEntropyLoss": "n c S | n S | c",
    "Dropout": "any | 0 | 0", "Clip": "any | 0 | 0", "Range": "0 | 0 | 0", "MelWeightMatrix": "0 | 0 | 0 | 0 | 0",
    "HannWindow": "0", "HammingWindow": "0", "BlackmanWindow": "0", "DFT": "n l 1 or n l 2 or n l k 2",
    "STFT": "n l 1 | 0 | w | 0", "CumSum": "one | 0", "CumProd": "one | 0", "Flatten": "any",
    "Concat": "one | same | same", "Where": "any | bc | bc", "Upsample": "n c S", "TfIdfVectorizer": "n l or l",
    "DequantizeLinear": "any | 0 | 0", "QuantizeLinear": "any | 0 | 0", "DynamicQuantizeLinear": "any",
    "Adagrad": "0 | 0 | same | same", "LinearClassifier": "n c", "LinearRegressor": "n c", "Scaler": "n c",
    "Normalizer": "n c", "Imputer": "n c", "ArrayFeatureExtractor": "n c | v", "FeatureVectorizer": "n c | n d",
    "CausalConvWithState": "n c l | c 1 k | c | n c s", "LinearAttention": "n l h.d | n l h.d | n l h.e",
    "SwiGLU": "one", "CenterCropPad": "one",
    **{f"microsoft.{name}": pattern for names, pattern in (
        ("QLinearAdd QLinearMul", "any | 0 | 0 | bc | 0 | 0 | 0 | 0"), ("CDist", "m k | n k"),
        ("QLinearSigmoid QLinearLeakyRelu", "any | 0 | 0 | 0 | 0"), ("QLinearSoftmax", "one | 0 | 0 | 0 | 0"),
        ("QLinearGlobalAveragePool QLinearAveragePool", "n c S | 0 | 0 | 0 | 0"), ("Trilu", "B m n | 0"),
        ("MatMulIntegerToFloat", "m k | k n | 0 | 0 | 0 | 0 | n"), ("DynamicQuantizeMatMul", "m k | k n | 0 | 0 | n"),
        ("QGemm", "m k | 0 | 0 | k n | 0 | 0 | n | 0 | 0"), ("FusedGemm", "m k | k n | n"), ("Inverse", "B m m"),
        ("FusedMatMul TransposeMatMul", "B m k | B k n or k m | k n"), ("FusedConv", "n g.c S | g.o c K | g.o"),
        ("SkipLayerNormalization", "n l k | n l k | k | k | k"), ("FastGelu BiasGelu", "n l k | k"),
        ("SkipSimplifiedLayerNormalization", "n l k | n l k | k | k"), ("Gelu QuickGelu ExpandDims", "any"),
        ("GridSample", "n c h w | n p q 2"), ("QuantizeLinear DequantizeLinear", "any | 0 | 0"),
        ("MultiHeadAttention", "n l h.d | n s h.d | n s h.d"), ("Attention", "n l i | i 3.h.d | 3.h.d"),
        ("RotaryEmbedding", "n h l 2.d | n l | 31 d | 31 d"), ("GatherND", "two | m 1"), ("NhwcMaxPool", "n h w c"),
        ("QLinearWhere", "any | bc | 0 | 0 | bc | 0 | 0 | 0 | 0"), ("ScaledSiLU", "any | 0"),
        ("QAttention", "n l i | i 3.h.d | 3.h.d | 0 | 0 | n | 0 | 0 or n l i | i 3.h.d | 3.h.d | 0 | 0 | n l | 0 | 0"),
        ("QLinearConv", "n g.c S | 0 | 0 | g.o c K | 0 | 0 | 0 | 0 | g.o or n c S | 0 | 0 | o c K | o | o | 0 | 0 | o"
         " or n S g.c | 0 | 0 | g.o c K | 0 | 0 | 0 | 0 | g.o"),
        ("MatMulInteger16", "m k | k n"), ("GatedRMSNorm", "n l k | k | n l k"), ("UnfoldTensor", "one"),
        ("QLinearConcat", "0 | 0 | one | 0 | 0 | same | 0 | 0"), ("Range", "0 | 0 | 0"), ("Pad", "any | 0 | 0"),
        ("EmbedLayerNormalization", "n l | n l | v k | 64 k | s k | k | k | n l | n l"),
        ("MatMulNBits", "m 32.b | n b 16 | n.b or m 32.b | n b 16 | n b"),
        ("DynamicQuantizeLSTM", "t 1 i | D i 4.h | D h 4.h | D 8.h | 1 | D 1 h | D 1 h | D 3.h | D | D | D | D"),
    ) for name in names.split()},
}  # fmt: skip
#: Letters that are small, or stand for a number of directions.
_SMALL = {
    "t": (1, 2, 3, 5),
    "D": (1, 2),
    "g": (1, 1, 2, 3),
    "b": (1, 2, 3),
    "n": (1, 1, 2, 3),
    "o": (1, 2, 4, 8, 17),
    "h": (1, 2, 5, 8),
    "d": (1, 2, 4, 8),
}


@dataclass
class Sizes:
    """Sizes of a graph, drawn as they are asked for."""

    rng: random.Random
    letters: dict[str, Shape] = field(default_factory=dict)
    none: float = 0.0

    def __post_init__(self) -> None:
        self.none = self.rng.choice(_NONE)

    def of(self, letter: str) -> int:
        """The size that a letter stands for; a digit stands for itself."""
        if letter.isdigit():
            return int(letter)
        if letter not in self.letters:
            drawn = self.rng.choice(_SMALL.get(letter, _SIZES))
            self.letters[letter] = (0 if self.rng.random() < self.none and letter not in "Dgb" else drawn,)
        return self.letters[letter][0]

    def block(self, letter: str) -> Shape:
        """Several dimensions: S of an image, K of a window, B of a batch."""
        if letter not in self.letters:
            rank = (
                len(self.block("S"))
                if letter == "K"
                else self.rng.randint(1, 3)
                if letter == "S"
                else self.rng.randint(0, 3)
            )
            most = {1: 31, 2: 13, 3: 6}.get(rank, 5) if letter == "S" else 3
            drawn = [self.rng.choice([d for d in _SIZES if d <= most]) for _ in range(rank)]
            self.letters[letter] = tuple(0 if self.rng.random() < self.none and letter != "K" else d for d in drawn)
        return self.letters[letter]

    def shape(self, pattern: str, first: Shape) -> Shape:
        """One input's shape."""
        words = pattern.split()
        if len(words) == 1 and words[0] in _WHOLE:
            return _WHOLE[words[0]](self, first)
        if words == ["0"]:
            return ()
        dims: list[int] = []
        for word in words:
            dims += self.block(word) if word in "SKB" else (math.prod(map(self.of, word.split("."))),)
        return tuple(dims)

    def ranked(self, low: int, high: int = 5) -> Shape:
        """A shape of a rank between these."""
        while True:
            dims = [self.rng.choice(_SIZES) for _ in range(self.rng.randint(low, high))]
            shape = tuple(0 if self.rng.random() < self.none else d for d in dims)
            if math.prod(shape) <= _LARGEST:
                return shape

    def inner(self, first: Shape) -> Shape:
        """A shape within the first one, the same for all operands."""
        return self.letters.setdefault("in", tuple(self.rng.randint(min(d, 1), d) for d in first))

    def broadcast(self, first: Shape) -> Shape:
        """A shape that broadcasts to the first one: often the same."""
        if self.rng.random() < 0.4:
            return first
        return tuple(d if self.rng.random() < 0.6 else 1 for d in first[self.rng.randint(0, len(first)) :])


_WHOLE = {
    "any": lambda sizes, first: sizes.ranked(0), "one": lambda sizes, first: sizes.ranked(1),
    "two": lambda sizes, first: sizes.ranked(2, 4), "same": lambda sizes, first: first,
    "in": lambda sizes, first: sizes.inner(first),
    "bc": lambda sizes, first: sizes.broadcast(first), "v": lambda sizes, first: (sizes.rng.choice((1, 2, 3, 7)),),
}  # fmt: skip


def shapes_of(operator: str, count: int, rng: random.Random) -> tuple[list[Shape], Sizes]:
    """Shapes of so many inputs of an operator, and the sizes that they share."""
    while True:
        sizes, shapes = Sizes(rng), []
        patterns = [p.strip() for p in rng.choice(PATTERNS.get(operator, "any").split(" or ")).split("|")]
        for i in range(count):
            shapes.append(sizes.shape(patterns[i] if i < len(patterns) else "bc", shapes[0] if shapes else ()))
        if all(math.prod(shape) <= _LARGEST for shape in shapes):
            return shapes, sizes
