"""Event loops and threads on which clients are open, one a loop or a process."""
