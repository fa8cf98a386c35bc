"""Inputs that make sense to trained models: pictures, text, speech, token ids, bytes of files; all of them seeded."""

import json
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Vocabulary:
    """Token ids: where words begin and end, and what stands before and after a sentence; padding is 0."""

    words: tuple[int, int]
    first: int | None
    last: int


BERT = Vocabulary((1000, 30522), 101, 102)
T5 = Vocabulary((3, 32100), None, 1)


def picture(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """RGB pixels [height, width, 3] in 0..255: a smooth background, some filled boxes with edges, some noise."""
    y, x = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [np.sin(2 * np.pi * (a * x + b * y + c)) for a, b, c in rng.uniform(0, 2, (3, 3))]
    pixels = 128 + 50 * np.stack(waves, -1)
    for _ in range(12):
        top, left = rng.integers(0, height), rng.integers(0, width)
        tall, wide = rng.integers(height // 8 + 1, height // 2 + 2), rng.integers(width // 8 + 1, width // 2 + 2)
        pixels[top : top + tall, left : left + wide] = rng.uniform(0, 255, 3)
    return np.clip(pixels + rng.normal(0, 4, pixels.shape), 0, 255)


def text_line(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Grey pixels [height, width] in 0..1: dark strokes of letters on a light ground."""
    pixels = np.full((height, width), 0.93)
    for left in range(4, width - 8, max(height // 3, 4)):
        for _ in range(3):
            if rng.integers(2):
                at = left + int(rng.integers(0, 6))
                pixels[height // 5 : height - height // 5, at : at + 3] = 0.1
            else:
                row = int(rng.integers(height // 5, height - height // 5))
                pixels[row : row + 3, left : left + height // 4] = 0.1
    return np.clip(pixels + rng.normal(0, 0.02, pixels.shape), 0, 1)


def speech(rng: np.random.Generator, samples: int, rate: int = 16_000) -> np.ndarray:
    """Samples in -1..1 that sound like a vowel: harmonics of a pitch that glides, louder and softer, some noise."""
    t = np.arange(samples) / rate
    phase = 2 * np.pi * (rng.uniform(90, 220) * t + 20 * t * t)
    loudness = 0.25 * (1 + np.sin(2 * np.pi * 4 * t))
    voice = sum(np.sin(k * phase) / k for k in range(1, 20)) * loudness
    return np.clip(voice + rng.normal(0, 0.01, samples), -1, 1)


def sentences(
    rng: np.random.Generator, count: int, length: int, vocabulary: Vocabulary = BERT
) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and their mask, int64 [count, length]: all sentences but the first one may end in padding."""
    ids = rng.integers(*vocabulary.words, (count, length))
    lengths = np.array([length, *rng.integers(3, length + 1, count - 1)])
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    if vocabulary.first is not None:
        ids[:, 0] = vocabulary.first
    ids[np.arange(count), lengths - 1] = vocabulary.last
    return ids * mask, mask


def head_and_tail(data: bytes, part: int = 1024, padding: int = 256) -> np.ndarray:
    """What magika sees of a file: its first and last bytes, int32 [2 * part], padded."""
    head, tail = data[:part], data[-part:]
    values = np.full(2 * part, padding, np.int32)
    values[: len(head)] = np.frombuffer(head, np.uint8)
    values[2 * part - len(tail) :] = np.frombuffer(tail, np.uint8)
    return values


def files(rng: np.random.Generator, count: int) -> np.ndarray:
    """Files of several kinds, as magika sees them, int32 [count, 2048]: Python, JSON, Markdown, noise, a short text."""
    numbers = rng.integers(0, 1000, 200).tolist()
    kinds = [
        "\n".join(f"def function_{i}(x, y=None):\n    return x * {i} + len(str(y))\n" for i in numbers[:60]).encode(),
        json.dumps({f"key {i}": [i, None, 1.5 * i] for i in numbers}).encode(),
        b"# Title\n\n" + b"".join(b"* item %d\n\n```bash\nmake test-%d\n```\n\n" % (i, i) for i in numbers[:50]),
        rng.bytes(5000), b"short text, %d" % numbers[0],
    ]  # fmt: skip
    first = int(rng.integers(len(kinds)))
    return np.stack([head_and_tail(kinds[(first + i) % len(kinds)]) for i in range(count)])
