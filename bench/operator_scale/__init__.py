"""`make bench-operator`: what the operator adds to Kubernetes' own work, for a thousand pools made at once."""
