"""Verbs of accelerators."""
