"""Makes the log of MobileNetV2 for this machine: python tuning_logs/tune_mobilenet_v2.py [MINUTES]."""

from _tune import main

main("mobilenet_v2")
