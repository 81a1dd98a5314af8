"""Where the cluster tools keep things: everything lies in the repository's ignored working folder.

`CACHE` survives from run to run (binaries, base images) and may be deleted at any time. `STATE` holds what is running
now; each run takes its own folder in it, so that two runs never meet.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".rewardpool" / "cache"
STATE = REPOSITORY / ".rewardpool" / "e2e"
