"""ONNX's own backend tests (`onnx.backend.test`, node cases) against this library, in processes that may crash."""
