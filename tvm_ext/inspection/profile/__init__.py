"""Profiles: time of every kernel in the model, against what the machine can do; traces, rooflines, comparisons."""

from .compare import Change, Comparison, compare
from .profile import Profile
from .roofline import Roofline
from .run import profile_model
from .text import profile_text

__all__ = ["Change", "Comparison", "Profile", "Roofline", "compare", "profile_model", "profile_text"]
