"""Starts SGLang's HTTP server with the score middleware: `python sglang_launcher.py SGLANG-FLAGS…`.

SGLang has no flag for a middleware, and takes a key on its command line and into its log. So this one file (nothing of
the project but the two middlewares beside it) is mounted into the stock image, puts the middleware around SGLang's
application, and starts the server with the flags it was given, unchanged.
"""

import os
import sys

SEVERAL_SERVERS = "--tokenizer-worker-num"
ENV_SLEEP_MAX_ABS_DIFF = "REWARDPOOL_SLEEP_MAX_ABS_DIFF"
"""Set where the engine can be put to sleep."""


def main(argv: list[str]) -> int:
    """Run the server until it is told to stop; returns the exit code."""
    if any(flag.split("=")[0] == SEVERAL_SERVERS for flag in argv):
        # Each of them would import the application anew, without the middleware: a worker that asks for no key.
        print(f"{SEVERAL_SERVERS} is not supported: its servers would take requests without a key", file=sys.stderr)
        return 2
    from score_middleware import ScoreMiddleware
    from sglang.srt.entrypoints import http_server
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    if ENV_SLEEP_MAX_ABS_DIFF in os.environ:
        from sleep_middleware import SleepMiddleware

        # First, so that the other one is around it and asks for the key.
        http_server.app.add_middleware(SleepMiddleware)
    http_server.app.add_middleware(ScoreMiddleware)
    try:
        http_server.launch_server(prepare_server_args(argv))
    finally:
        # The scheduler and the detokeniser are processes of their own and outlive a server that fails.
        kill_process_tree(os.getpid(), include_parent=False)
    return 0


# SGLang starts its processes by importing this file again.
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
