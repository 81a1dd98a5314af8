"""Settings of whoever installs the operator, from its environment."""
