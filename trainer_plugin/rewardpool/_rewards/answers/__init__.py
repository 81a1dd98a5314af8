"""Answers of judges: their form, their scale, and how one is read. Pure."""
