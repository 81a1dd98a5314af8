"""By vLLM's command line, a server of Python functions: an engine that starts in no time."""

import argparse
import sys

# The mounted zip is found first, and its rewardpool_worker is the part that runs beside engines.
sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]

from rewardpool_worker.function_server import main  # noqa: E402 - from what is installed

parser = argparse.ArgumentParser()
for flag in ("--served-model-name", "--host", "--port"):
    parser.add_argument(flag)
given, _ = parser.parse_known_args()
own = ["--served-name", given.served_model_name, "--host", given.host, "--port", given.port]
sys.exit(main(["--function", "reward_functions:compute_score", *own]))
