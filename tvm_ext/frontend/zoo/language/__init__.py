"""Language models of the Llama family: as ONNX, of a GGUF file, or of seeded weights."""

from .dialogue import Dialogue as Dialogue
from .gguf_file import gguf as gguf
from .llama import llama as llama
