"""The config of `python -m rewardpool_train`, one YAML file. Wrong fields are named by their path in it.

Relative paths in the file are relative to the file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from rewardpool.errors import ConfigError
from rewardpool.mistakes import Mistakes, validated
from rewardpool.rewards.config import parse_reward
from rewardpool_train.advantages import LEAST_MEMBERS
from rewardpool_train.config_part import ConfigPart, Count, Positive
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName
from rewardpool_train.update_config import UpdateConfig


class PolicyConfig(ConfigPart):
    """The model that is trained."""

    path: Path
    """Folder with a causal language model and its tokenizer, as transformers saves them."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What its layers compute in; weights and optimiser state are float32 either way."""


class DataConfig(ConfigPart):
    """What the policy is asked."""

    prompts: Path
    """File with one JSON object per line: `prompt`, and for reward functions `data_source`, `ground_truth`,
    `extra_info`."""


class VllmConfig(ConfigPart):
    """The vLLM that samples the policy: one that the job starts and ends, or one that runs already."""

    python: str | None = None
    """Interpreter that has vLLM 0.32 or newer. Default: $REWARDPOOL_SERVER_PYTHON, else the trainer's own."""
    args: tuple[str, ...] = ()
    """Further arguments for it, such as `["--max-model-len", "4096"]`."""
    start_deadline_seconds: Positive = 600.0
    """For it to load the policy and answer."""
    url: str | None = None
    """Of one that runs already, with the arguments that docs/rollout-engines.md lists; the job starts none then."""
    key_file: Path | None = None
    """File with that one's API key."""
    served_name: Annotated[str, Field(min_length=1)] = "policy"
    """Name that it serves the policy by."""
    weights_folder: Path = Path("/dev/shm")  # noqa: S108 - private folders are made in it
    """Folder that trainer and vLLM both see; new weights pass through it. Memory is fast, a disk works too."""
    in_flight: Count = 256
    """Responses asked for at a time on one rank; vLLM queues what it cannot hold."""
    response_deadline_seconds: Positive = 900.0
    """For one response, all attempts together."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """For one response, where the connection breaks or vLLM fails."""


class RolloutConfig(ConfigPart):
    """How the policy is sampled."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Who samples: `generate` of transformers on a second copy of the policy, or vLLM."""
    vllm: VllmConfig = VllmConfig()
    """Read where that is the engine."""
    prompts_per_step: Count = 8
    """Over all ranks."""
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    """Responses to each prompt; they are judged against each other, so there are at least two."""
    min_members: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Scored responses with which a group goes on without those that have no score; with fewer it is replaced by a
    group of a further prompt. Default: half of `group_size`, and at least 2."""
    replacement_rounds: Annotated[int, Field(ge=0, le=1000)] = 3
    """Rounds of a step, at most, in which such groups are replaced; one that is left over then has no influence on the
    update. Under `fully_async`, a mini-batch waits for so many times its groups. `update.dynamic_sampling_rounds`, if
    it is not 0, bounds both."""
    max_new_tokens: Count = 48
    """Length limit of a response, in tokens."""
    temperature: Positive = 1.0
    """Of the sampling."""

    @model_validator(mode="after")
    def _check_min_members(self) -> Self:
        if self.min_members is not None and self.min_members > self.group_size:
            raise ValueError(f"min_members is {self.min_members}, more than group_size, which is {self.group_size}")
        return self

    @property
    def least_members(self) -> int:
        """`min_members`, or its default."""
        return max(LEAST_MEMBERS, (self.group_size + 1) // 2) if self.min_members is None else self.min_members

    def with_paths_from(self, full: Callable[[Path], Path]) -> Self:
        """Return the config with every path put through `full`."""
        paths = {"weights_folder": full(self.vllm.weights_folder)}
        if self.vllm.key_file is not None:
            paths["key_file"] = full(self.vllm.key_file)
        return self.model_copy(update={"vllm": self.vllm.model_copy(update=paths)})


class CheckpointConfig(ConfigPart):
    """How often a job leaves a checkpoint that it can go on from, in the folder checkpoints/ of its output."""

    every_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Steps from one to the next; 0 leaves none."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """The newest that stay."""


class ColocatedConfig(ConfigPart):
    """The turns of the job and of reward models that sleep on the job's own GPUs; docs/colocated.md has all of it."""

    enabled: bool | None = None
    """Whether they take turns. By default they do where a pool of the reward has `spec.engine.sleep.enabled` and is on
    this machine; true refuses a reward without such a pool, and false leaves it to somebody else to wake them."""
    patience_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """For which the GPUs are free before the pools wake, and idle before they sleep."""
    longest_wait_seconds: Positive | None = None
    """After which a sample that waits for its score goes before the job's next operation; null for never."""


class TrainConfig(ConfigPart):
    """A whole training job."""

    policy: PolicyConfig
    data: DataConfig
    reward: str | dict[str, Any]
    """What rates the responses: `pool: namespace/name`, or anything else that docs/rewards.md has."""
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    schedule: ScheduleName = "minibatch"
    """How rollout, reward and update overlap; docs/pipelines.md has the five."""
    max_staleness: Annotated[int, Field(ge=0, le=1000)] = 2
    """Under `fully_async`: updates that the policy may be ahead of the one that a group was begun with."""
    publish_every: Annotated[int, Field(ge=1, le=1001)] = 1
    """Under `fully_async`: updates from one handing-over of weights to the next, at most `max_staleness` + 1. Under the
    other schedules they are handed over after each step."""
    colocated: ColocatedConfig = ColocatedConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    resume: Literal["auto", "never"] = "auto"
    """`auto` goes on from the newest checkpoint in the output folder, where there is one; `never` starts anew."""
    tensorboard: bool = False
    """Whether curves are written, to the folder tensorboard/ of the output."""
    steps: Count = 100
    """Rounds of rollout, reward and update."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Decides the order of the prompts and every sampled token."""
    step_deadline_seconds: Positive = 900.0
    """For the scores of one step, and for any exchange between the ranks."""
    output: Path
    """Folder for metrics.jsonl (a line per step), metrics.json (the totals) and policy/ (the trained model)."""

    def with_paths_from(self, folder: Path) -> Self:
        """Return the config with relative paths taken from `folder`."""

        def full(path: Path) -> Path:
            return folder / path.expanduser()

        return self.model_copy(
            update={
                "policy": self.policy.model_copy(update={"path": full(self.policy.path)}),
                "data": self.data.model_copy(update={"prompts": full(self.data.prompts)}),
                "rollout": self.rollout.with_paths_from(full),
                "output": full(self.output),
            }
        )

    def overlap(self) -> Overlap:
        """Return how rollout, reward and update overlap.

        Raises:
            ConfigError: Weights would be handed over too seldom for the staleness that is allowed.
        """
        if self.publish_every > self.max_staleness + 1:
            most = self.max_staleness + 1
            raise ConfigError("publish_every", f"must be at most max_staleness + 1, which is {most}")
        return Overlap(
            schedule=self.schedule,
            order=self.update.order,
            max_staleness=self.max_staleness,
            publish_every=self.publish_every,
            # vLLM takes new groups in while others run; transformers samples batch by batch.
            rollouts_at_once=self.max_staleness + 1 if self.rollout.engine == "vllm" else 1,
        )

    def has_step_rewards(self) -> bool:
        """Return whether each step of a response has a reward of its own.

        Raises:
            ConfigError: The reward is wrong, or the update cannot go by steps.
        """
        if parse_reward(self.reward, path="reward").process_field is None:
            return False
        if self.update.ratio == "sequence":
            raise ConfigError(
                "update.ratio",
                "must be token with reward.supervision process: a ratio of the whole response moves all of its tokens"
                f" by one amount, whatever their steps (algorithm {self.update.algorithm} may mean another); set it",
            )
        if self.update.dynamic_sampling_rounds:
            raise ConfigError(
                "update.dynamic_sampling_rounds",
                "must be 0 with reward.supervision process: it replaces groups of equal scores, whose steps may differ"
                f" (algorithm {self.update.algorithm} may mean another number); set it",
            )
        return True

    def has_inexact_rollouts(self) -> bool:
        """Return whether a rollout's log-probabilities differ from the trainer's own by more than float32's rounding.

        Generation computes token by token and the trainer whole sequences. In bfloat16 that moves the mean over a
        response by some 1e-3, which is more than GSPO's clip allows an update.
        """
        return self.rollout.engine != "transformers" or self.policy.dtype != "float32"

    def check_shares_gpu(self) -> None:
        """See to it that the schedule lets reward models have the job's GPUs in between.

        Raises:
            ConfigError: It never does.
        """
        if SCHEDULES[self.schedule].disaggregated:
            raise ConfigError(
                "schedule",
                f"{self.schedule} keeps the GPUs busy all the time, so no reward model that sleeps on them could wake;"
                " set it to one of the others, or give the pool GPUs of its own",
            )

    def plan(self, ranks: int) -> Plan:
        """Return how much each of the ranks has to do; see `check_ranks`."""
        return Plan(
            steps=self.steps,
            groups_per_step=self.rollout.prompts_per_step // ranks,
            groups_per_minibatch=self.update.groups_per_minibatch // ranks,
            group_size=self.rollout.group_size,
        )

    def check_ranks(self, ranks: int) -> None:
        """See to it that the work can be shared evenly, because FSDP's ranks move in step, and that it can overlap so.

        Raises:
            ConfigError: It cannot; the message has the number to be a multiple of, or what `overlap` says. Or groups
                are to be replaced where they are of no step.
        """
        self.overlap()
        if self.update.dynamic_sampling_rounds and SCHEDULES[self.schedule].disaggregated:
            raise ConfigError(
                "update.dynamic_sampling_rounds",
                f"must be 0 under {self.schedule}, where groups are of no step that could be filled up; set it to 0 "
                f"(algorithm {self.update.algorithm} may mean another number), or choose another schedule",
            )
        if self.update.groups_per_minibatch % ranks:
            raise ConfigError("update.groups_per_minibatch", f"must be a multiple of the {ranks} ranks")
        if self.rollout.prompts_per_step % self.update.groups_per_minibatch:
            multiple = self.update.groups_per_minibatch
            raise ConfigError(
                "rollout.prompts_per_step", f"must be a multiple of update.groups_per_minibatch, which is {multiple}"
            )


def load_train_config(path: Path) -> TrainConfig:
    """Read a config file.

    Raises:
        ConfigError: It cannot be read, is not YAML, or fields of it are wrong; names every wrong field by its path.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"is not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(str(path), "must be a mapping with policy, data, reward and output")
    mistakes = Mistakes()
    with mistakes.gather():
        config = validated(TrainConfig, raw, path="")
    if mistakes:  # then what is wrong with the reward is reported with it
        with mistakes.gather():
            parse_reward(raw.get("reward", {}))
    mistakes.check()
    with mistakes.gather():
        config.has_step_rewards()
    if config.colocated.enabled:
        with mistakes.gather():
            config.check_shares_gpu()
    config = config.with_paths_from(path.resolve().parent)
    if not config.policy.path.is_dir():
        mistakes.add("policy.path", f"there is no folder {config.policy.path}")
    mistakes.check()
    return config
