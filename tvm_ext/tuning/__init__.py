"""Tuning: configuration spaces, tuners, measuring, logs; over the same recipes that a compile without tuning uses."""
