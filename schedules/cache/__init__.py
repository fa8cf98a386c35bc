"""Caches of keys and values: new rows in place, and attention up to the length in use."""
