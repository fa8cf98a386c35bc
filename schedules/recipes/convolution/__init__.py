"""Recipes of convolutions, one a file."""
