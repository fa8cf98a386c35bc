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


def test_one_name_may_stand_alone() -> None:
    assert QuantizeSettings(exclude="conv1").exclude == ("conv1",)


def test_operators_that_cannot_be_quantized() -> None:
    check_operators(("Conv", "Softmax"))
    with pytest.raises(OptionError, match="did you mean 'Conv'"):
        check_operators(("Conf",))
