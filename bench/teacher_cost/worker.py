"""The worker's own reading of vLLM's lists; its file imports those that are mounted beside it by their bare names."""

import sys

from rewardpool_api import teacher_wire

sys.modules.setdefault("teacher_wire", teacher_wire)

from rewardpool_worker.teacher_engines import of_vllm  # noqa: E402

__all__ = ["of_vllm"]
