"""Pictures for open-nsfw: the same each time, none of them twice; and what int8 does to the scores."""

import numpy as np
import pytest

import tvm_ext
from benchmarks.common.rows import Unavailable
from benchmarks.models import nsfw_images as pictures
from benchmarks.models import pinned
from tvm_ext.verification.reference import onnxruntime_session


def test_shapes_are_seeded_pictures() -> None:
    one, again, other = pictures.shapes(3), pictures.shapes(3), pictures.shapes(4)
    assert one.shape == (224, 224, 3) and one.min() >= 0 and one.max() <= 255
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).mean() > 5


def test_views_are_seeded_parts_of_a_photograph() -> None:
    photograph = pictures.shapes(0).astype(np.uint8)[:200]
    one, again, other = (pictures.view(photograph, seed) for seed in (1, 1, 2))
    assert one.shape == (224, 224, 3) and one.min() >= 0 and one.max() <= 255
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).mean() > 5


def test_scores_of_lists_and_dicts_and_their_difference() -> None:
    images = [{pictures.INPUT: np.full((1, 2), value)} for value in (0.2, 0.6)]
    scores = pictures.scores(lambda x: [x[pictures.INPUT]], images)
    np.testing.assert_array_equal(scores, pictures.scores(lambda x: {"y": x[pictures.INPUT]}, images))
    one = pictures.difference(scores, np.array([0.3, 0.4]))
    assert (one.mean, one.largest) == pytest.approx((0.15, 0.2))
    assert (one.crossed, one.above, one.low, one.high) == (1, 1, 0.2, 0.6)


@pytest.fixture(scope="module")
def model() -> str:
    try:
        pictures.photographs()
        return str(pinned.OPEN_NSFW.file())
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def drawn(model: str) -> tuple[list[pictures.Inputs], list[pictures.Inputs]]:
    """Pictures to evaluate on, and to calibrate with."""
    pytest.importorskip("PIL")
    return pictures.evaluation(), pictures.calibration()


@pytest.mark.long
def test_no_picture_is_used_twice(drawn: tuple[list[pictures.Inputs], ...]) -> None:
    pixels = [image[pictures.INPUT].tobytes() for images in drawn for image in images]
    assert len(pixels) == 264 == len(set(pixels))


@pytest.mark.long
def test_int8_scores_are_near_those_of_float32(model: str, drawn: tuple[list[pictures.Inputs], ...]) -> None:
    """On every fifth of the 200 pictures a mean difference of 0.01; on another side of 0.5 is none of them, nor of the
    ten nearest to it, and no other is more likely to be. `benchmarks/precision.py` compares all."""
    options = {**pictures.QUANTIZE, "reduce_range": False}  # else of 7 bits on CPUs without VNNI
    images, calibration = drawn
    quantized = tvm_ext.quantize(model, calibration, **options).model
    floats, session = onnxruntime_session(model), onnxruntime_session(quantized, optimized=False)
    reference = pictures.scores(lambda x: floats.run(None, x), images)
    for chosen, mean in ((np.arange(0, len(images), 5), 0.01), (np.argsort(abs(reference - 0.5))[:10], np.inf)):
        scores = pictures.scores(lambda x: session.run(None, x), [images[at] for at in chosen])
        difference = pictures.difference(reference[chosen], scores)
        assert difference.mean <= mean and difference.crossed == 0, difference
    assert reference.max() > 0.6 and (reference > 0.5).sum() >= 2
