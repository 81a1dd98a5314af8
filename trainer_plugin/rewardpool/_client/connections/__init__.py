"""Connections to routers, and one HTTP exchange over one of them."""
