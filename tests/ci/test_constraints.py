"""The lists of packages in `constraints/`."""

import re
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[2] / "constraints"
CUDA = re.compile(r"^((?:nvidia-|cuda-)[\w-]+|triton)==", re.MULTILINE)


def test_what_is_left_out_without_a_gpu_is_all_that_is_for_gpus_in_the_demos_environments() -> None:
    listed = set((CONSTRAINTS / "cuda.txt").read_text().splitlines()[1:])
    pinned = {name for file in ("server.txt", "trainer.txt") for name in CUDA.findall((CONSTRAINTS / file).read_text())}
    assert listed == pinned
