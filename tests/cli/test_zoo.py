"""`tvm-ext zoo`, and `zoo:NAME` where a model is expected."""

import onnx


def test_the_models_are_listed(cli, cli_json):
    code, out, _ = cli("zoo", "ls")
    assert code == 0 and "resnet18" in out and "mlp" in out
    code, plain = cli_json("zoo", "ls")
    assert code == 0 and all(plain["models"][name] for name in ("resnet18", "mlp"))


def test_a_model_is_written(cli_json, tmp_path):
    path = str(tmp_path / "m.onnx")
    code, plain = cli_json("zoo", "mlp", "-o", path, "--batch", "3", "--seed", "7")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    assert code == 0 and plain["path"] == path and plain["bytes"] > 1e6
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


def test_the_default_path_is_the_name(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "wrote mlp.onnx" in cli("zoo", "mlp")[1] and (tmp_path / "mlp.onnx").is_file()


def test_unknown_models_exit_2_with_the_choices(refused):
    for argv in (["zoo", "vgg"], ["compile", "zoo:vgg"]):
        said = refused(*argv)
        assert "'vgg'" in said and "mlp, mobilenet_v2, resnet18" in said


def test_a_zoo_model_is_compiled_without_a_file(cli, fake):
    code, out, _ = cli("compile", "zoo:mlp")
    assert code == 0 and out.startswith("zoo:mlp")
    assert isinstance(fake.calls[0][0], onnx.ModelProto)
