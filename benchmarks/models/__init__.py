"""The models that are timed: made by seed, or trained ones out of wheels."""
