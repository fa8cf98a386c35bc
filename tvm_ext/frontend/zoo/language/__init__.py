"""Language models of the Llama family: as ONNX, of a GGUF file, or of seeded weights."""
