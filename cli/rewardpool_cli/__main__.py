"""`python -m rewardpool_cli`: the command line of this very interpreter."""

from rewardpool_cli import main

main()
