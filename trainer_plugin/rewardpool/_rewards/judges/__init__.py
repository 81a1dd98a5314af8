"""Generative judges: one response, a pair of them, or a list, asked about in a question."""
