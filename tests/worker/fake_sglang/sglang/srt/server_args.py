import argparse


def prepare_server_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("--model-path", "--revision", "--served-model-name", "--host", "--dtype", "--log-level-http"):
        parser.add_argument(flag)
    for flag in ("--port", "--tp-size", "--context-length"):
        parser.add_argument(flag, type=int)
    for flag in (
        "--is-embedding",
        "--skip-server-warmup",
        "--enable-metrics",
        "--disable-radix-cache",
        "--enable-memory-saver",
        "--enable-weights-cpu-backup",
    ):
        parser.add_argument(flag, action="store_true")
    return parser.parse_args(argv)
