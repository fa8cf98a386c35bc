"""All own converters: each module of this folder makes its own known when it is imported."""

import importlib
import pathlib
import pkgutil

from .base import CONVERTERS as CONVERTERS
from .base import FOREIGN as FOREIGN
from .base import ML as ML

for _module in pkgutil.walk_packages([str(pathlib.Path(__file__).parent)], f"{__package__}."):
    importlib.import_module(_module.name)
