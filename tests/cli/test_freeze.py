"""`--freeze`: numbers or a file, for every verb that compiles."""

import numpy as np
import pytest


def frozen(fake):
    return fake.calls[-1][1]["freeze"]


def test_numbers_and_files_reach_the_compiler(cli, fake, model, tmp_path):
    np.save(tmp_path / "pads.npy", np.array([[1, 2]]))
    cli("compile", model, "--freeze", "axes=0,-2", "--freeze", "k=3", "--freeze", "scales=1,0.5", "--freeze",
        f"pads={tmp_path}/pads.npy")  # fmt: skip
    given = frozen(fake)
    assert given["axes"] == [0, -2] and given["k"] == 3 and given["scales"] == [1, 0.5]
    np.testing.assert_array_equal(given["pads"], [[1, 2]])


@pytest.mark.parametrize("text", ["axes", "=1", "axes=", "axes=1,x", "axes=a.txt"])
def test_what_is_no_value_is_a_usage_error(cli, fake, model, text):
    code, _, err = cli("compile", model, "--freeze", text)
    assert code == 2 and "--freeze" in err and not fake.calls
