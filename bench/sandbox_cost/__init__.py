"""What a sandbox costs, and what hostile code costs its neighbours."""
