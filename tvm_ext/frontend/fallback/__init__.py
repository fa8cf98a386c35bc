"""Regions of nodes that no converter takes, for a back end that runs ONNX nodes."""
