"""How many replicas: pure functions of observations, policy and the state kept in the pool's status."""
