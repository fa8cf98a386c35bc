"""How numbers are stored, rounded, converted and compared."""
