"""Recipes of weights of few bits in blocks, which stay packed in memory."""
