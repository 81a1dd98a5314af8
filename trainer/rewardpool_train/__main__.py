"""`python -m rewardpool_train CONFIG.yaml`."""

import sys

from rewardpool_train.job import main

if __name__ == "__main__":
    sys.exit(main())
