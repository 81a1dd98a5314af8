"""What the calls of a pool's function may use and reach."""

from typing import Literal

Network = Literal["Pod", "None"]
OnMissing = Literal["Refuse", "Weaken"]
