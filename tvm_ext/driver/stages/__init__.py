"""Stages of a compile: what can be read, edited and gone on from."""
