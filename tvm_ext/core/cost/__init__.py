"""What a kernel costs: operations and bytes, where weights lie, sharing among threads, seconds."""
