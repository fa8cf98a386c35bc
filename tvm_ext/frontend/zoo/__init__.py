"""Models built here, from seeded or stored weights, with no deep learning framework."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .encoder import bert as bert
    from .language.deferred import GGUFModel as GGUFModel
    from .language.dialogue import Dialogue as Dialogue
    from .language.gguf_file import gguf as gguf
    from .language.llama import llama as llama
    from .mobilenet import mobilenet_v2 as mobilenet_v2
    from .models import MODELS as MODELS
    from .models import save as save
    from .perceptron import mlp as mlp
    from .resnet import resnet18 as resnet18
    from .resnet import resnet34 as resnet34
    from .resnet import resnet50 as resnet50

#: Name -> its module, which is imported when it is asked for: a start from the cache builds no model. No module has the
#: name of what is in it, for as an attribute of this package it would hide that.
_MODULES = {
    "Dialogue": "language.dialogue", "GGUFModel": "language.deferred", "MODELS": "models", "bert": "encoder",
    "gguf": "language.gguf_file", "llama": "language.llama", "mlp": "perceptron", "mobilenet_v2": "mobilenet",
    "resnet18": "resnet", "resnet34": "resnet", "resnet50": "resnet", "save": "models",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
