"""Linear models and support vectors against onnxruntime."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.converters.microsoft.cases import agree, case, floats, rng_of

ML = "ai.onnx.ml"
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


def listed(rng: np.random.Generator, *shape: int) -> list[float]:
    return floats(rng, *shape).reshape(-1).tolist()


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_regressors(transform: str) -> None:
    rng, more = rng_of(1), {"post_transform": transform}
    agree(
        "LinearRegressor",
        case(floats(rng, 5, 7), coefficients=listed(rng, 3, 7), intercepts=listed(rng, 3), targets=3, **more),
        case(floats(rng, 5, 7), coefficients=listed(rng, 7), **more),
        domain=ML,
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_classifiers(transform: str) -> None:
    rng = rng_of(2)

    def of(classes: int, rows: int = 11) -> dict[str, Any]:
        return {"coefficients": listed(rng, rows, 7), "intercepts": listed(rng, rows),
                "classlabels_ints": [5, 3, 9, 11][:classes], "post_transform": transform}  # fmt: skip

    agree(
        "LinearClassifier",
        case(floats(rng, 40, 7), outputs=2, **of(4, 4)),
        case(floats(rng, 40, 7), outputs=2, **of(2, 2)),
        case(floats(rng, 40, 7), outputs=2, **of(2, 1)),
        case(rng.integers(-4, 5, (40, 7)), outputs=2, **of(4, 4)),
        domain=ML, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_support_vectors(kind: str, one_class: int) -> None:
    rng = rng_of(3)
    parts = {"coefficients": listed(rng, 6), "support_vectors": listed(rng, 6, 7), "n_supports": 6, "rho": [0.3],
             "kernel_type": kind, "kernel_params": [0.1, 0.5, 2.0], "one_class": one_class}  # fmt: skip
    agree("SVMRegressor", case(floats(rng, 20, 7), **parts), domain=ML, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_classes_by_support_vectors(classes: int) -> None:
    """By scores of pairs, by probabilities of classes, and by a linear model of either sign; each transform in turn."""
    rng, sizes = rng_of(5, classes), [3, 2, 4, 1][:classes]
    total, pairs = sum(sizes), classes * (classes - 1) // 2
    common = {"classlabels_ints": [5, 3, 9, 11][:classes], "kernel_params": [0.1, 0.5, 2.0], "outputs": 2}
    vectors = {**common, "vectors_per_class": sizes, "support_vectors": listed(rng, total, 7),
               "coefficients": listed(rng, classes - 1, total), "rho": listed(rng, pairs)}  # fmt: skip
    chances = {"prob_a": listed(rng, pairs), "prob_b": listed(rng, pairs)}
    weights = listed(rng, classes, 7)
    forms = [
        {**vectors, "kernel_type": "LINEAR"}, {**vectors, **chances, "kernel_type": "RBF"},
        {**common, "coefficients": weights, "rho": [0.3]},
        {**common, "coefficients": [abs(w) for w in weights], "rho": [-1.0]},
    ]  # fmt: skip
    cases = [
        case(floats(rng, 40, 7), **form, post_transform=transform)
        for number, form in enumerate(forms)
        for transform in ("NONE", TRANSFORMS[1 + (number + classes) % 3])
    ]
    agree("SVMClassifier", *cases, domain=ML, rtol=1e-4, atol=2e-5, varied=False)


def test_the_one_vector_of_a_linear_model() -> None:
    rng = rng_of(4)
    agree("SVMRegressor", case(floats(rng, 20, 7), coefficients=listed(rng, 7), rho=[0.3], kernel_type="LINEAR",
                               kernel_params=[0.0, 0.0, 0.0]), domain=ML, atol=1e-5)  # fmt: skip
