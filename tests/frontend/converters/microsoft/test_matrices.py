"""Matrix products, inverses, distances and spectra of com.microsoft against onnxruntime."""

import numpy as np
import pytest

from .cases import Known, agree, case, floats, rng_of


@pytest.mark.parametrize("turn_a", [0, 1])
@pytest.mark.parametrize("turn_b", [0, 1])
def test_transposed_operands(turn_a: int, turn_b: int) -> None:
    rng = rng_of(1, turn_a, turn_b)
    a, b = (7, 5) if turn_a else (5, 7), (11, 7) if turn_b else (7, 11)
    turns = {"transA": turn_a, "transB": turn_b}
    cases = [case(floats(rng, 2, 3, *a), floats(rng, 2, 3, *b), alpha=alpha, **turns) for alpha in (1.0, 0.125)]
    agree("FusedMatMul", *cases, case(floats(rng, *a), Known(floats(rng, *b)), **turns))
    agree("TransposeMatMul", case(floats(rng, *a), Known(floats(rng, *b)), **turns))
    moved = [(x[0], 2, 3, x[1]) for x in (a, b)]
    agree("FusedMatMul", case(*(floats(rng, *s) for s in moved), transBatchA=1, transBatchB=1, **turns))


def test_gemm_with_an_activation() -> None:
    """Each of them behind every form of operands in turn."""
    rng, cases = rng_of(2), []
    for number, (activation, alpha) in enumerate([
        ("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Sigmoid", {}), ("Tanh", {}), ("Softplus", {}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 0.7}),
        ("Softsign", {}), ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.1}),
        ("ThresholdedRelu", {"activation_alpha": 0.6}),
    ]):  # fmt: skip
        forms = [
            ([floats(rng, 5, 7), Known(floats(rng, 7, 11)), Known(floats(rng, 11))], {}),
            ([floats(rng, 7, 5), Known(floats(rng, 11, 7))], {"transA": 1, "transB": 1, "alpha": 0.5}),
            ([floats(rng, 5, 7), floats(rng, 7, 11), floats(rng, 5, 1)], {"beta": 0.25}),
        ]
        operands, attributes = forms[number % 3]
        cases.append(case(*operands, activation=activation, **attributes, **alpha))
    agree("FusedGemm", *cases)


@pytest.mark.parametrize("rows", [1, 2, 5, pytest.param(16, marks=pytest.mark.long)])
def test_inverse(rows: int) -> None:
    rng = rng_of(3, rows)
    x = floats(rng, 3, rows, rows) + 2 * np.eye(rows, dtype=np.float32)[rng.permutation(rows)]
    x[0] = np.eye(rows)[::-1]  # of which no pivot lies on the diagonal
    wanted = np.float32(np.linalg.inv(np.float64(x)))
    size = np.linalg.cond(x).max() * rows * np.finfo(np.float32).eps
    agree("Inverse", case(x), case(x[1]), wanted=[wanted, wanted[1]], rtol=size, atol=size * np.abs(wanted).max(),
          varied=rows > 1)  # fmt: skip
    half = np.float16(x)
    wanted = np.float16(np.linalg.inv(np.float64(half)))
    agree("Inverse", case(half), wanted=[wanted], rtol=2e-3, atol=size * np.abs(np.float64(wanted)).max(),
          varied=rows > 1)  # fmt: skip


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric: str) -> None:
    rng = rng_of(4)
    agree("CDist", case(floats(rng, 5, 7), floats(rng, 6, 7), metric=metric), rtol=2e-5)


def test_spectra() -> None:
    rng = rng_of(5)
    x = floats(rng, 3, 12)
    half = np.fft.rfft(x)
    pairs = np.float32(np.stack([half.real, half.imag], -1))
    agree("Rfft", case(x, onesided=1, normalized=0, signal_ndim=1), wanted=[pairs])
    agree("Irfft", case(pairs, onesided=1, normalized=0, signal_ndim=1), wanted=[x])


def test_complex_numbers() -> None:
    rng = rng_of(6)
    a, b = floats(rng, 3, 5, 2), floats(rng, 3, 5, 2)
    left, right = (x[..., 0] + 1j * x[..., 1] for x in (a, b))
    for operator, product in (("ComplexMul", left * right), ("ComplexMulConj", left * right.conj())):
        agree(operator, case(a, b), wanted=[np.float32(np.stack([product.real, product.imag], -1))])
