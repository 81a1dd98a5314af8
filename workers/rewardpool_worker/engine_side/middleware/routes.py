"""The routes of a worker: what it answers, what it hands on, and what it refuses."""

from rewardpool_api.contract import CHAT_PATH, SCORE_PATH
from rewardpool_api.names import READY_PATH
from rewardpool_api.teacher_wire import LOGPROBS_PATH

ANSWERED_PATH = {"Discriminative": SCORE_PATH, "Generative": CHAT_PATH, "Teacher": LOGPROBS_PATH}
# Answered without a key, to kubelets, routers and Prometheus; they say nothing about any sample.
OPEN_PATHS = frozenset({"/health", "/health_generate", READY_PATH, "/metrics"})
# The operator reads the list of models, and SGLang's launcher asks once for a frozen garbage collector.
ENGINE_PATHS = OPEN_PATHS | {"/v1/models", "/freeze_gc"}
ROUTED_PATHS = frozenset(
    {
        SCORE_PATH,
        CHAT_PATH,
        LOGPROBS_PATH,
        "/v1/responses",
        "/v1/completions",
        "/v1/classify",
        "/rerank",
        "/v1/rerank",
    }
)
"""Paths that the routers hand on, for each of which they would take another status than 200 for a worker that fails."""
