"""Seeded inputs for a model, where verification looks for them."""

from ..core.sample_inputs import seeded_inputs as seeded_inputs
