"""A user's module that cannot be imported, by no Exception."""

raise KeyboardInterrupt("no licence")
