"""`--freeze`: numbers or a file, for every verb that compiles."""

import numpy as np
import pytest


def test_numbers_and_files_reach_the_compiler(cli, fake, model, tmp_path):
    np.save(tmp_path / "pads.npy", np.array([[1, 2]]))
    cli("compile", model, "--freeze", "axes=0,-2", "--freeze", "k=3", "--freeze", "scales=1,0.5", "--freeze",
        f"pads={tmp_path}/pads.npy")  # fmt: skip
    frozen = fake.calls[-1][1]["freeze"]
    assert frozen["axes"] == [0, -2] and frozen["k"] == 3 and frozen["scales"] == [1, 0.5]
    np.testing.assert_array_equal(frozen["pads"], [[1, 2]])


@pytest.mark.parametrize("text", ["axes", "=1", "axes=", "axes=1,x", "axes=a.txt"])
def test_what_is_no_value_is_a_usage_error(refused, fake, model, text):
    assert "--freeze" in refused("compile", model, "--freeze", text) and not fake.calls
