"""What the trainer's client makes of faults: each is played to thousands of samples, and every score is checked.

    a network of its own -> for each fault: a fresh fleet, traffic, the fault in its midst -> tally -> table

Router, workers and client are real. The faults that a real worker cannot be asked for (HTTP 500, invalid responses) are
played by a stand-in behind the same router. The faults of the cluster around them are played by `e2e/faults`.
"""
