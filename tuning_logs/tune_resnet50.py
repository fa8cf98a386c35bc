"""Makes the log of ResNet-50 for this machine: python tuning_logs/tune_resnet50.py [MINUTES]."""

from _tune import main

main("resnet50")
