"""Failures of a reward that are not the policy's: what they cost, what they change, and what is learnt from them."""
