"""`make bench-autoscaler`: how soon the right size is asked for, simulated with peers and on a node with the HPA."""
