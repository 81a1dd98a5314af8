"""Everything that only a GPU can show, in one command with one report: `make gpu-check`.

    plan    which checks there are, and which of them this machine can do: pure
    run     each of them, by the project's own commands and client
    report  what came of them, as a table and as JSON

Three checks were run on a GPU: docs/benchmarks.md has them. `--on-cpu` runs what a CPU can do.
"""
