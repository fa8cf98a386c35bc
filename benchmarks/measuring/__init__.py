"""Programs timed in processes of their own, and what a profile says of them."""
