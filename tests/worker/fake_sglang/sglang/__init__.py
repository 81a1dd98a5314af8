"""FakeSglang, which sleeps where the real one cannot: the names that the launcher uses, and its routes for memory."""
