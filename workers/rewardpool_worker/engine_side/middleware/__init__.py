"""The ASGI applications around an engine: `score`, and `sleep` between that and an engine that sleeps."""
