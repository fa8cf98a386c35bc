"""Converters of operators that pick, place, order or count elements by index."""
