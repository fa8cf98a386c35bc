"""Names of the tuners, for signatures and command lines; imports nothing."""

#: TVM's own search over the same kernels; the other names are those of `tuners.TUNERS`.
METASCHEDULE = "metaschedule"
NAMES = ("beam", "xgb", "ga", "random", "grid", METASCHEDULE)
#: Needs no further package, and tunes ResNet-18 further than "xgb" in as many trials.
DEFAULT = "beam"
