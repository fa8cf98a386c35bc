"""Why a row misses its bar: what the profile shows. By the rows' keys; printed only where it does."""

REASONS: dict[str, str] = {}
