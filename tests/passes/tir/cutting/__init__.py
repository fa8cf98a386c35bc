"""Tests of the steps of the pass `cut-loops`."""
