"""Tuners: they choose what is measured next."""

from .base import Tuner
from .registry import TUNERS, make_tuner

__all__ = ["TUNERS", "Tuner", "make_tuner"]
