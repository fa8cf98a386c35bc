"""Checks of a model before and while it is imported; each names the node."""
