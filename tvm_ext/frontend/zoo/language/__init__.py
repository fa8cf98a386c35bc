"""Language models of the Llama family: as ONNX, of a GGUF file, or of seeded weights."""

from .gguf_file import gguf as gguf
from .llama import llama as llama
