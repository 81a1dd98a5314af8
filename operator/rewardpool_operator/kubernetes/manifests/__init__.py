"""Objects as JSON: merged, compared with a live one, their owners and their nulls. Pure."""
