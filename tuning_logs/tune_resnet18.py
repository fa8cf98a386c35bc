"""Makes the log of ResNet-18 for this machine: python tuning_logs/tune_resnet18.py [MINUTES]."""

from _tune import main

main("resnet18")
