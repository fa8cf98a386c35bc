"""Relax graphs: reading and rewriting them, provenance and ownership of ONNX nodes, call sites."""
