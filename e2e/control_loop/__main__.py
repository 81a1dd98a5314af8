"""All of it on a cluster of its own: `make e2e-control-loop`, or `python -m control_loop [--only NAME]… [--list]`."""

import sys

from control_loop import election, namespaces, rollouts, sharing
from faults.__main__ import main

PLAYS = (*election.PLAYS, *namespaces.PLAYS, *rollouts.PLAYS, *sharing.PLAYS)

if __name__ == "__main__":
    sys.exit(
        main(PLAYS, name="control-loop", title="The controller's loop under load", program="python -m control_loop")
    )
