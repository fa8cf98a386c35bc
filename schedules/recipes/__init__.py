"""Recipes: one a file; those of convolutions in a folder of their own."""
