"""Searches: the frozen table, templates, sessions that are killed."""
