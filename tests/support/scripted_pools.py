"""Pools as a script has them, for the page: five of them in five states, one of which scales with a job's bursts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from rewardpool_api import RewardPool, dump_manifest
from rewardpool_page.access import Viewer
from rewardpool_page.history import MAX_SAMPLES, SAMPLE_SECONDS, History
from rewardpool_page.source import Counts, NotShownError, PageWorker, Seen

CYCLE_SECONDS = 600.0
"""From a burst of the job to the next."""
BURST_SECONDS = 240.0
WORKER_RATE = 14.0
"""Samples per second of a busy replica."""
JUDGE_RATE = 3.1
RULES_RATE = 212.0


def rfc3339(at: float) -> str:
    """The time of a status."""
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def condition(kind: str, status: str, reason: str, message: str = "", *, at: float = 0.0) -> dict[str, Any]:
    """As a status has it."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": rfc3339(at)}


def a_pool(key: str, *, source: str, status: dict[str, Any] | None = None, **spec: Any) -> RewardPool:
    """A pool of a manifest's own words."""
    namespace, _, name = key.partition("/")
    model = {"source": source, **spec.pop("model", {})}
    return RewardPool.model_validate(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"model": model, **spec},
            "status": status or {},
        }
    )


def serving(at: float, *, ready: int, message: str) -> list[dict[str, Any]]:
    """The conditions of a pool that is as its manifest says."""
    return [
        condition("Ready", "True", "Serving", message, at=at - 5400),
        condition("Serving", "True", "Serving", message, at=at - 5400),
        condition("WorkersReady", "True", "AllReady", f"{ready} replicas serve", at=at - 130),
        condition("RouterReady", "True", "AllReady", "1 routers hold the right workers", at=at - 5400),
        condition("ScalingActive", "True", "Fixed", "spec.replicas holds", at=at - 5400),
        condition("Progressing", "False", "Stable", "nothing is changing", at=at - 130),
        condition("Degraded", "False", "AsExpected", at=at - 5400),
    ]


def _after(counts: Counts | None, seconds: float, per_second: float) -> Counts | None:
    """What routers counted when so many seconds more went by at this rate."""
    if counts is None or not counts.answered:
        return counts
    grown = 1 + per_second * seconds / counts.answered
    within = {bound: int(grown * count) for bound, count in counts.within.items()}
    return Counts(answered=int(grown * counts.answered), seconds=grown * counts.seconds, within=within)


POD_ENDINGS = ("x7k2p", "q4mzn", "b9wlc", "t5hvd", "j2rfs", "n8gcx", "w6bqm", "k3zpt")
"""Of the pods' names, by the workers' numbers."""


class ScriptedSource:
    """Those pools, at any time: what they are is a function of it."""

    where = "on this machine"
    starts_by = "rewardpool up -f pool.yaml"

    def __init__(self, end: float, *, clock: Callable[[], float] | None = None) -> None:
        """As of this Unix time, 90 s into a burst; with a clock the routers go on counting, and nothing else moves."""
        self._end = end
        self._clock = clock or (lambda: end)

    async def observe(self, *, counted: bool) -> Sequence[Seen]:
        """The pools at the end of the script."""
        seconds = self._clock() - self._end
        return [
            replace(seen, counts=_after(seen.counts, seconds, per_second))
            for seen, per_second in zip(
                self.at(self._end), (6 * WORKER_RATE, JUDGE_RATE, RULES_RATE, 0.0, 0.0), strict=True
            )
        ]

    async def manifest(self, pool: str, viewer: Viewer) -> Mapping[str, Any]:
        """The pool's object."""
        return next(dump_manifest(seen.pool) for seen in self.at(self._end) if seen.pool.key == pool)

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The log of a worker."""
        if not name.startswith("worker-"):
            raise NotShownError(f"{pool} has no log {name}")
        lines = [
            "INFO 10:12:04 [api_server.py:1287] vLLM API server version 0.32.0",
            "INFO 10:12:31 [gpu_model_runner.py:2338] Model loading took 14.98 GiB and 9.41 seconds",
            "INFO 10:12:58 [launcher.py:36] Route: /v1/embeddings, Methods: POST",
            "INFO 10:13:02 [loggers.py:118] Engine 000: running 96 reqs, waiting 31 reqs, KV cache usage 41.3%",
            "INFO 10:13:12 [loggers.py:118] Engine 000: running 104 reqs, waiting 22 reqs, KV cache usage 44.9%",
            "INFO 10:13:22 [loggers.py:118] Engine 000: running 98 reqs, waiting 17 reqs, KV cache usage 42.0%",
        ]
        return "\n".join(lines) + "\n"

    def history(self) -> History:
        """The hour before the end."""
        history = History()
        for step in range(MAX_SAMPLES, 0, -1):
            at = self._end - step * SAMPLE_SECONDS
            history.record(self.at(at), now=at)
        history.record(self.at(self._end), now=self._end)
        return history

    def at(self, now: float) -> list[Seen]:
        """All pools at this Unix time."""
        return [self._helpfulness(now), self._judge(now), self._rules(now), self._safety(now), self._process(now)]

    def _phase(self, now: float) -> float:
        """Seconds since the present burst began."""
        return (now - self._end + 90.0) % CYCLE_SECONDS

    def _sizes(self, now: float) -> tuple[int, int]:
        """Desired and ready replicas."""
        phase = self._phase(now)
        if phase < BURST_SECONDS:
            desired = 6 if phase < 40 else 8
            return desired, min(desired, 2 + int(phase // 20))
        desired = 8 if phase < BURST_SECONDS + 60 else 4 if phase < BURST_SECONDS + 150 else 2
        return desired, desired

    def _decisions(self, now: float) -> list[dict[str, Any]]:
        """The last changes of the desired size."""
        words = {
            6: ("Demand: grpo-7 announces 2048 samples in 20 s, worth 6 replicas", None),
            8: ("DrainTime: 860 requests drain within 10 s by 9 replicas", "MaxReplicas"),
            4: ("Demand: no burst of grpo-7 for 4 minutes", "Step"),
            2: ("minReplicas", "MinReplicas"),
        }
        begun = now - self._phase(now)
        found = []
        for cycle in (2, 1, 0):
            at = begun - cycle * CYCLE_SECONDS
            for after, size in ((0.0, 6), (40.0, 8), (BURST_SECONDS + 60, 4), (BURST_SECONDS + 150, 2)):
                if at + after <= now:
                    reason, limit = words[size]
                    found.append({"time": rfc3339(at + after), "replicas": size, "reason": reason, "limit": limit})
        return found[-10:]

    def _answered(self, now: float) -> Counts:
        """Counted since some bursts before the hour began; a sum over what each worker did, second by second."""
        cycles, phase = divmod(now - self._end + 90.0 + 100 * CYCLE_SECONDS, CYCLE_SECONDS)
        busy = sum(min(8, 2 + second // 20) for second in range(int(min(phase, BURST_SECONDS))))
        whole = sum(min(8, 2 + second // 20) for second in range(int(BURST_SECONDS)))
        answered = int(WORKER_RATE * (busy + cycles * whole))
        bounds = {0.25: 0.02, 0.5: 0.2, 1.0: 0.55, 2.5: 0.93, 5.0: 0.99, float("inf"): 1.0}
        within = {bound: int(share * answered) for bound, share in bounds.items()}
        return Counts(answered=answered, seconds=1.13 * answered, within=within)

    def _scores(self, now: float, *, learned: float, after: float = 0.0, lost_at: float = -100.0) -> dict[str, Any]:
        """Totals of a job over two hours: it learns, some responses are too long, and once a worker is lost."""
        scored, policy, infra, retries = [], 0, 0, 0
        for second in range(0, int(now - self._end) + 7200, 10):
            if (second + 90.0 + after) % CYCLE_SECONDS < BURST_SECONDS:
                progress = 1.0 - math.exp(-second / 3600)
                scored.append((-2.0 + learned * progress + 0.5 * math.sin(second), 5.0 - 2.0 * progress))
                policy += second % 60 == 0
                retries += 24 if abs(second - lost_at) < 30 else second % 120 == 0
                infra += 3 if abs(second - lost_at) < 20 else 0
        mean = sum(score for score, _ in scored) / len(scored)
        variance = sum((score - mean) ** 2 + spread**2 for score, spread in scored) / len(scored)
        return {
            "count": 280 * len(scored),
            "mean": mean,
            "standardDeviation": math.sqrt(variance),
            "failures": {"policy": policy, "infra": infra},
            "retries": retries,
        }

    def _helpfulness(self, now: float) -> Seen:
        desired, ready = self._sizes(now)
        bursting = self._phase(now) < BURST_SECONDS
        in_flight = 96 * ready if bursting else 0
        waiting = max(0, 700 - int(5 * self._phase(now))) if bursting else 0
        message = f"{ready} of {desired} replicas serve"
        conditions = serving(now, ready=ready, message=message)
        if ready < desired:
            conditions[2] = condition("WorkersReady", "False", "Starting", f"{desired - ready} start", at=now - 50)
            conditions[5] = condition(
                "Progressing", "True", "Scaling", f"from {ready} to {desired} replicas", at=now - 50
            )
        conditions[4] = condition("ScalingActive", "True", "Combined", "Demand and DrainTime", at=now - 5400)
        status = {
            "observedGeneration": 3,
            "url": "http://127.0.0.1:41775",
            "replicas": desired,
            "readyReplicas": ready,
            "currentRevision": "7f3b91c2",
            "model": {"type": "Discriminative", "servedName": "helpfulness", "maxModelLen": 16384},
            "load": {"inFlight": in_flight, "waiting": waiting},
            "conditions": conditions,
            "scaling": {
                "desired": desired,
                "reason": "DrainTime: 860 requests drain within 10 s by 9 replicas; maxReplicas is 8",
                "recommendedReplicas": 9,
                "limit": "MaxReplicas",
                "serviceRate": {"perReplica": WORKER_RATE, "inFlight": 64, "time": rfc3339(now - 4)},
                "starts": [{"worker": "worker-6", "seconds": 52.4}, {"worker": "worker-5", "seconds": 48.1}],
                "history": self._decisions(now),
            },
            "demands": [
                {
                    "job": "grpo-7",
                    "state": "Live",
                    "phase": "Rollout",
                    "samples": 2048,
                    "replicas": 6,
                    "scoreWait": 0.31,
                    "scores": self._scores(now, learned=9.0),
                    "nextBurst": rfc3339(now - 90),
                },
                {
                    "job": "rloo-ablation-3",
                    "state": "Live",
                    "phase": "Update",
                    "samples": 512,
                    "replicas": 2,
                    "nextBurst": rfc3339(now + 140),
                    "scores": self._scores(now, learned=4.0, after=300.0, lost_at=5200.0),
                },
                {"job": "grpo-6", "state": "Lapsed", "message": "not renewed for 45 s"},
            ],
            "costs": {
                "since": rfc3339(now - 36 * 3600),
                "until": rfc3339(now),
                "gpus": desired,
                "jobs": [
                    {"job": "grpo-6", "gpuSeconds": 151_200.0, "samples": 688_128},
                    {"job": "grpo-7", "gpuSeconds": 243_720.0, "samples": 1_110_016},
                    {"job": "rloo-ablation-3", "gpuSeconds": 49_680.0, "samples": 225_280},
                ],
                "otherGpuSeconds": 2_160.0,
                "idleGpuSeconds": 88_200.0,
            },
            "rollout": {"targetRevision": "7f3b91c2", "stableRevision": "7f3b91c2"},
        }
        workers = [
            PageWorker(
                name=f"worker-{number}",
                phase="Ready" if number <= ready else "Starting",
                place=f"pid {30200 + 117 * number}",
                revision="7f3b91c2",
                restarts=1 if number == 3 else 0,
                in_flight=in_flight // ready + number % 3 * 4 - 4 if bursting and number <= ready else 0,
            )
            for number in range(1, desired + 1)
        ]
        spec = {
            "engine": {"name": "vllm"},
            "worker": {"gpus": 1},
            "autoscaling": {
                "minReplicas": 2,
                "maxReplicas": 8,
                "policies": [
                    {"type": "Demand", "demand": {}},
                    {"type": "DrainTime", "drainTime": {"targetSeconds": 10}},
                ],
            },
        }
        pool = a_pool("rl/helpfulness", source="hf://Skywork/Skywork-Reward-V2-Llama-3.1-8B", status=status, **spec)
        logs = [worker.name for worker in workers] + ["router"]
        return Seen(pool=pool, workers=workers, counts=self._answered(now), logs=logs)

    def _judge(self, now: float) -> Seen:
        status = {
            "url": "http://127.0.0.1:42011",
            "replicas": 2,
            "readyReplicas": 2,
            "currentRevision": "1c90ab44",
            "load": {"inFlight": 37, "waiting": 0},
            "conditions": serving(now, ready=2, message="2 of 2 replicas serve"),
            "scaling": {"desired": 2, "reason": "spec.replicas"},
        }
        pool = a_pool(
            "rl/judge",
            source="hf://Qwen/Qwen3-14B",
            status=status,
            model={"type": "Generative"},
            engine={"name": "sglang"},
            replicas=2,
        )
        answered = int(JUDGE_RATE * (now - 1e9))
        counts = Counts(answered=answered, seconds=9.7 * answered, within={})
        workers = [PageWorker(name=f"worker-{n}", phase="Ready", in_flight=18 + n, revision="1c90ab44") for n in (1, 2)]
        return Seen(pool=pool, workers=workers, counts=counts, logs=["worker-1", "worker-2", "router"])

    def _rules(self, now: float) -> Seen:
        status = {
            "url": "http://127.0.0.1:43990",
            "replicas": 4,
            "readyReplicas": 4,
            "load": {"inFlight": 5, "waiting": 0},
            "conditions": serving(now, ready=4, message="4 of 4 replicas serve"),
            "scaling": {"desired": 4, "reason": "spec.replicas"},
        }
        pool = a_pool("rl/math-rules", source="python://rewards:compute_score", status=status, replicas=4)
        answered = int(RULES_RATE * (now - 1e9))
        counts = Counts(
            answered=answered, seconds=0.021 * answered, within={0.025: int(0.8 * answered), 0.05: answered}
        )
        return Seen(
            pool=pool, workers=[PageWorker(name=f"worker-{n}", phase="Ready") for n in range(1, 5)], counts=counts
        )

    def _safety(self, now: float) -> Seen:
        said = "no request for 10 minutes; the next one starts a replica"
        status = {
            "url": "http://127.0.0.1:44120",
            "load": {"inFlight": 0, "waiting": 0},
            "conditions": [
                condition("Ready", "True", "AtZero", said, at=now - 1900),
                condition("Serving", "False", "AtZero", said, at=now - 1900),
            ],
            "scaling": {"desired": 0, "reason": said, "limit": "CooldownSeconds", "idleSince": rfc3339(now - 2500)},
        }
        scaling = {"minReplicas": 0, "maxReplicas": 3, "policy": {"queueDepth": {"targetPerReplica": 32}}}
        pool = a_pool(
            "eval/safety",
            source="hf://allenai/wildguard",
            model={"type": "Generative"},
            status=status,
            autoscaling=scaling,
            engine={"name": "vllm"},
        )
        return Seen(pool=pool, workers=[])

    def _process(self, now: float) -> Seen:
        said = (
            "worker-1: the worker does not fit into the memory of its GPU: torch.OutOfMemoryError: CUDA out of memory."
            " <b>Tried</b> to allocate 1.96 GiB"
        )
        status = {
            "replicas": 1,
            "conditions": [
                condition("Ready", "False", "OutOfMemory", "no worker answers", at=now - 340),
                condition("Serving", "False", "OutOfMemory", "no worker answers", at=now - 340),
                condition("Degraded", "True", "OutOfMemory", said, at=now - 300),
            ],
            "scaling": {"desired": 1, "reason": "spec.replicas"},
        }
        pool = a_pool("rl/process", source="hf://Qwen/Qwen2.5-Math-PRM-72B", status=status, engine={"name": "vllm"})
        return Seen(pool=pool, workers=[PageWorker(name="worker-1", phase="Waiting", restarts=3)], logs=["worker-1"])


class ScriptedCluster(ScriptedSource):
    """The same pools in a cluster: workers are pods on nodes."""

    where = "in this cluster"
    starts_by = "kubectl apply -f pool.yaml"

    async def log(self, pool: str, name: str, viewer: Viewer) -> str:
        """The log of a worker's pod."""
        if "-worker-" not in name:
            raise NotShownError(f"{pool} has no log {name}")
        return await super().log(pool, "worker-1", viewer)

    def at(self, now: float) -> list[Seen]:
        """All pools at this Unix time."""
        return [_in_cluster(seen) for seen in super().at(now)]


def _in_cluster(seen: Seen) -> Seen:
    metadata, status = seen.pool.metadata, seen.pool.status
    url = f"http://{metadata.name}-router.{metadata.namespace}.svc:8080" if status.url else None
    pool = seen.pool.model_copy(update={"status": status.model_copy(update={"url": url})})
    workers = [_pod(metadata.name, worker) for worker in seen.workers]
    routers = [f"{metadata.name}-router-6d9f7c-h5v8q"] if "router" in seen.logs else []
    return replace(seen, pool=pool, workers=workers, logs=[*(worker.name for worker in workers), *routers])


def _pod(pool: str, worker: PageWorker) -> PageWorker:
    number = int(worker.name.rpartition("-")[2])
    name = f"{pool}-worker-{worker.revision or '5ac0'}-{POD_ENDINGS[number - 1]}"
    return replace(worker, name=name, place=f"gpu-{1 + number // 4}")
