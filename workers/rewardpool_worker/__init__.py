"""The servers behind the router: how each engine is started, and what makes its answers RewardPool's.

`score_middleware`, `sglang_launcher` and `router_launcher` are single files that are mounted into stock images, so they
import nothing of the project; `mounted` reads them. `engines` builds command lines, `function_server` is the engine for
Python functions, and `diagnosis` reads what a dead engine left behind.
"""
