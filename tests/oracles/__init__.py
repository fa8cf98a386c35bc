"""What suites against other programs share: workers that may crash, outcomes and tables, comparison, references.

Used by `tests/onnx_backend`, `tests/property`, `tests/fuzz` and `tests/real_models`.
"""
