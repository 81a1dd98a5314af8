import sys

import pytest
from support.torchrun import run_job


@pytest.mark.skipif(sys.platform != "linux", reason="only there is it seen what gloo's threads do")
def test_a_job_that_ends_while_gloo_is_late_ends_well() -> None:
    ended = run_job("support.leaving_job", ranks=2, seconds=120, native_crashes=0)
    assert ended.returncode == 0, ended.stderr
