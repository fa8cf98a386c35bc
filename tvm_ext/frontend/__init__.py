"""ONNX models in: reading, checks, import to Relax with provenance, and the model zoo."""

from . import zoo as zoo
from .importer import Imported as Imported
from .importer import import_model as import_model
from .reader import Source as Source
from .reader import fingerprint as fingerprint
from .reader import read_model as read_model
