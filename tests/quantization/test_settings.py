"""Options of `quantize`: what is refused, and what the message says."""

import pytest

from tvm_ext.core.errors import OptionError
from tvm_ext.quantization.settings import QuantizeSettings, check_operators


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "max"}, "choose one of 'minmax', 'entropy', 'percentile'"),
        ({"activations": "int4"}, "choose 'uint8' or 'int8'"),
        ({"percentile": 0}, "above 50, up to 100"), ({"percentile": True}, "above 50, up to 100"),
        ({"percentile": "99"}, "above 50, up to 100"),
        ({"per_channel": None}, "choose True or False"), ({"reduce_range": 1}, "choose True or False"),
        ({"method": [1]}, "choose one of"), ({"block": 64}, "block=64 counts for nothing.*\n.*weights="),
        ({"percentile": 99.0}, "percentile=99.0 counts for nothing.*\n.*method='percentile'"),
        ({"weights": "int4", "method": "entropy"}, "method='entropy' counts for nothing.*\n.*no weights="),
        ({"weights": "int8", "per_channel": False}, "per_channel=False counts for nothing"),
        ({"exclude": 3}, "a name or several"), ({"operators": [""]}, "a name or several"),
    ],
)  # fmt: skip
def test_bad_values_are_refused(settings: dict, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        QuantizeSettings(**settings)


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"percentile": 99.9}, "percentile"), ({"percentile": 99.9, "method": "entropy"}, "percentile"),
        ({"block": 64}, "block"), ({"block": 64, "method": "percentile"}, "block"),
        *(({"weights": "int4", name: value}, name) for name, value in (
            ("method", "entropy"), ("percentile", 99.0), ("per_channel", False), ("activations", "int8"),
            ("reduce_range", True))),
    ],
)  # fmt: skip
def test_what_nothing_reads_is_refused_by_name(settings: dict, option: str) -> None:
    with pytest.raises(OptionError, match=f"^{option}=.* counts for nothing"):
        QuantizeSettings(**settings)


def test_what_is_read_is_taken() -> None:
    assert QuantizeSettings(method="percentile", percentile=99.9).percentile == 99.9
    assert QuantizeSettings(weights="int8", block=64, exclude="fc").block == 64


def test_one_name_may_stand_alone() -> None:
    assert QuantizeSettings(exclude="conv1").exclude == ("conv1",)


def test_operators_that_cannot_be_quantized() -> None:
    check_operators(("Conv", "Softmax"))
    with pytest.raises(OptionError, match="did you mean 'Conv'"):
        check_operators(("Conf",))
