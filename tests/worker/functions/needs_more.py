"""A user's module that needs what is not installed."""

import nowhere_at_all

f = nowhere_at_all.f
