"""ONNX models in: reading, checks, import to Relax with provenance, and the model zoo."""
