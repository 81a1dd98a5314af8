"""Everything that only a GPU can show, in one command with one report: `make gpu-check`.

    plan    which checks there are, and which of them this machine can do: pure
    run     each of them, by the project's own commands and client
    report  what came of them, as a table and as JSON

None of it was run on a GPU so far. `--on-cpu` runs what a CPU can do of it, so that the rest is known to work.
"""
