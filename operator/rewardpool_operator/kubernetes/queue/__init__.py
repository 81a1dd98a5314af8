"""Order and pauses of the passes over pools."""
