"""The views of a program that must agree: functional, timing, and register by register."""
