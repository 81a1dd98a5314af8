"""The servers behind the router: how each engine is started, and what makes its answers RewardPool's.

`engine_side` and `router_launcher` run in stock images, where nothing of RewardPool is installed; `mounted` reads them.
`engines` builds command lines, `function_server` is the engine for
Python functions, and `diagnosis` reads what a dead engine left behind.
"""
