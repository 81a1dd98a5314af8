"""What a ledger costs: samples a second of a reward with and without one, in turn."""
