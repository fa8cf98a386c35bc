"""What an artifact says of its offloaded regions: where nodes run and why, and host and back ends at once."""
