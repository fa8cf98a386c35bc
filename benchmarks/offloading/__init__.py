"""What offloading to the simulated accelerator must show."""
