"""A pool's events and log lines."""
