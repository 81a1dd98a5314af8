"""`make bench-autoscaler`: how soon the right size is asked for, on paper beside peers, on a node beside the HPA."""
