"""The config of `python -m rewardpool_train`: one YAML file, with errors that name a field by its path.

Relative paths in the file are relative to the file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from rewardpool._mistakes import Mistakes, validated
from rewardpool._rewards.config import parse_reward
from rewardpool.errors import ConfigError
from rewardpool_train.advantages import LEAST_MEMBERS
from rewardpool_train.config_part import ConfigPart, Count, Positive
from rewardpool_train.distillation_config import DistillationConfig
from rewardpool_train.pipeline.overlap import Overlap
from rewardpool_train.pipeline.schedule import SCHEDULES, Plan, ScheduleName
from rewardpool_train.update_config import UpdateConfig


class PolicyConfig(ConfigPart):
    """The model to train."""

    path: Path
    """Folder with a causal language model and its tokenizer, as transformers saves them."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype that the layers compute in. Weights and optimiser state are always float32."""


class DataConfig(ConfigPart):
    """The prompts."""

    prompts: Path
    """File with one JSON object per line: `prompt`, and for reward functions `data_source`, `ground_truth`,
    `extra_info`."""


class VllmConfig(ConfigPart):
    """The vLLM server that samples the policy: one that the job starts and stops, or one that is already running."""

    python: str | None = None
    """Interpreter that has vLLM 0.32 or newer. Default: $REWARDPOOL_SERVER_PYTHON, else the trainer's own."""
    args: tuple[str, ...] = ()
    """Further arguments of vLLM, such as `["--max-model-len", "4096"]`."""
    start_deadline_seconds: Positive = 600.0
    """Deadline for vLLM to load the policy and answer."""
    url: str | None = None
    """URL of a vLLM that is already running, with the arguments listed in docs/rollout-engines.md; the job then starts
    none."""
    key_file: Path | None = None
    """File with the API key of the vLLM at `url`."""
    served_name: Annotated[str, Field(min_length=1)] = "policy"
    """Name under which vLLM serves the policy."""
    weights_folder: Path = Path("/dev/shm")  # noqa: S108 - private folders are made in it
    """Folder that the trainer and vLLM both see; new weights pass through it. Memory is fast, a disk works too."""
    in_flight: Count = 256
    """Maximum number of responses requested at a time by one rank; vLLM queues what it cannot run."""
    response_deadline_seconds: Positive = 900.0
    """Deadline for one response, over all attempts."""
    attempts: Annotated[int, Field(ge=1, le=100)] = 3
    """Maximum number of attempts for one response, when the connection breaks or vLLM fails."""


class RolloutConfig(ConfigPart):
    """Sampling of the policy."""

    engine: Literal["transformers", "vllm"] = "transformers"
    """Engine that samples: `generate` of transformers on a second copy of the policy, or vLLM."""
    vllm: VllmConfig = VllmConfig()
    """Settings of vLLM; only read with `engine: vllm`."""
    prompts_per_step: Count = 8
    """Number of prompts per step, over all ranks."""
    group_size: Annotated[int, Field(ge=2, le=1024)] = 8
    """Responses to each prompt. They are compared with each other, so there are at least two."""
    min_members: Annotated[int, Field(ge=2, le=1024)] | None = None
    """Minimum number of scored responses in a group. A group with at least this many is trained on without its unscored
    responses; a group with fewer is replaced by one of another prompt. Default: half of `group_size`, and at least 2.
    """
    replacement_rounds: Annotated[int, Field(ge=0, le=1000)] = 3
    """Maximum number of rounds per step in which such groups are replaced; one that remains has no influence on the
    update. Under `fully_async`, the maximum number of replaced groups per mini-batch, in mini-batches. A
    `update.dynamic_sampling_rounds` above 0 is used for both instead."""
    max_new_tokens: Count = 48
    """Maximum length of a response, in tokens."""
    temperature: Positive = 1.0
    """Sampling temperature."""

    @model_validator(mode="after")
    def _check_min_members(self) -> Self:
        if self.min_members is not None and self.min_members > self.group_size:
            raise ValueError(f"min_members is {self.min_members}, more than group_size, which is {self.group_size}")
        return self

    @property
    def least_members(self) -> int:
        """`min_members`, or its default: half of the group, rounded up."""
        return max(LEAST_MEMBERS, (self.group_size + 1) // 2) if self.min_members is None else self.min_members

    def with_paths_from(self, full: Callable[[Path], Path]) -> Self:
        """Return the config with every path put through `full`."""
        paths = {"weights_folder": full(self.vllm.weights_folder)}
        if self.vllm.key_file is not None:
            paths["key_file"] = full(self.vllm.key_file)
        return self.model_copy(update={"vllm": self.vllm.model_copy(update=paths)})


class CheckpointConfig(ConfigPart):
    """Checkpoints to resume from, in the folder checkpoints/ of the output."""

    every_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Steps between two checkpoints; 0 writes none."""
    keep: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of checkpoints to keep; older ones are deleted."""


class ColocatedConfig(ConfigPart):
    """Turns of the job and of reward models and teachers that sleep on the job's GPUs; see docs/colocated.md."""

    enabled: bool | None = None
    """Take turns with the pools of reward and teachers. Default: if one of them has `spec.engine.sleep.enabled` and
    runs on this machine. `true` refuses a job without such a pool; `false` leaves it to another program to wake the
    pools."""
    patience_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """Time for which the GPUs must be free before the pools wake, and idle before they sleep."""
    longest_wait_seconds: Positive | None = None
    """Time after which a sample that waits for its score goes before the job's next operation. Default: no limit."""


class TrainConfig(ConfigPart):
    """A training job."""

    policy: PolicyConfig
    data: DataConfig
    reward: str | dict[str, Any] | None = None
    """The reward of the responses: `pool: namespace/name`, or anything else in docs/rewards.md. Only a job with
    `distillation` can be without."""
    distillation: DistillationConfig | None = None
    """Teachers of the policy; see docs/teachers.md."""
    rollout: RolloutConfig = RolloutConfig()
    update: UpdateConfig = UpdateConfig()
    schedule: ScheduleName = "minibatch"
    """Overlap of rollout, reward and update; docs/pipelines.md describes the five schedules."""
    max_staleness: Annotated[int, Field(ge=0, le=1000)] = 2
    """Under `fully_async`: maximum number of updates between the policy that began a group and the policy trained on
    it."""
    publish_every: Annotated[int, Field(ge=1, le=1001)] = 1
    """Under `fully_async`: updates between two transfers of weights to the rollout engine, at most `max_staleness` + 1.
    The other schedules transfer weights after each step."""
    colocated: ColocatedConfig = ColocatedConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    resume: Literal["auto", "never"] = "auto"
    """`auto` resumes from the newest checkpoint in the output folder, if there is one; `never` starts from the
    beginning."""
    tensorboard: bool = False
    """Write curves to the folder tensorboard/ of the output."""
    steps: Count = 100
    """Number of rounds of rollout, reward and update."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Random seed of the order of the prompts and of every sampled token."""
    step_deadline_seconds: Positive = 900.0
    """Deadline for the scores of one step, and for each exchange between the ranks."""
    output: Path
    """Folder for metrics.jsonl (a line per step), metrics.json (the totals) and policy/ (the trained model)."""

    def with_paths_from(self, folder: Path) -> Self:
        """Return the config with its relative paths resolved against `folder`."""

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
        """Return the schedule and its settings.

        Raises:
            ConfigError: `publish_every` is too large for `max_staleness`.
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
        """Return whether each step of a response has its own reward.

        Raises:
            ConfigError: The reward is invalid, or the update does not support rewards of steps.
        """
        if self.reward is None or parse_reward(self.reward, path="reward").process_field is None:
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

    def check_distillation(self) -> None:
        """Check that the job has a reward or a teacher, and that teachers fit the other settings.

        Raises:
            ConfigError: They do not; it names every field.
        """
        mistakes = Mistakes()
        if self.distillation is None:
            if self.reward is None:
                mistakes.add("reward", "is missing: name a pool, such as rl/skywork, or set distillation.teacher")
        else:
            with mistakes.gather():
                self.distillation.pools()
            if self.rollout.temperature != 1:
                mistakes.add("rollout.temperature", "must be 1 with distillation: a teacher's answers have no other")
            also = f" (algorithm {self.update.algorithm} may mean another value); set it"
            if self.update.ratio != "token":
                mistakes.add("update.ratio", f"must be token with distillation: each token has its own part{also}")
            equal = "groups of equal scores learn from their teacher, too"
            if self.update.only_informative:
                mistakes.add("update.only_informative", f"must be false with distillation: {equal}{also}")
            if self.update.dynamic_sampling_rounds:
                mistakes.add("update.dynamic_sampling_rounds", f"must be 0 with distillation: {equal}{also}")
        mistakes.check()

    def has_inexact_rollouts(self) -> bool:
        """Return whether an engine's log-probabilities differ from the trainer's own by more than float32's rounding.

        Generation computes token by token and the trainer whole sequences. In bfloat16 that moves the mean over a
        response by some 1e-3, which is more than GSPO's clip allows an update.
        """
        return self.rollout.engine != "transformers" or self.policy.dtype != "float32"

    def check_shares_gpu(self) -> None:
        """Check that the schedule leaves the GPUs to reward models between operations.

        Raises:
            ConfigError: The schedule keeps the GPUs busy all the time.
        """
        if SCHEDULES[self.schedule].disaggregated:
            raise ConfigError(
                "schedule",
                f"{self.schedule} keeps the GPUs busy all the time, so no reward model that sleeps on them could wake;"
                " set it to one of the others, or give the pool GPUs of its own",
            )

    def plan(self, ranks: int) -> Plan:
        """Return the work of one rank; `check_ranks` says whether it can be divided."""
        return Plan(
            steps=self.steps,
            groups_per_step=self.rollout.prompts_per_step // ranks,
            groups_per_minibatch=self.update.groups_per_minibatch // ranks,
            group_size=self.rollout.group_size,
        )

    def check_ranks(self, ranks: int) -> None:
        """Check that the work can be divided evenly by the ranks, because FSDP's ranks move in step, and can overlap
        so.

        Raises:
            ConfigError: A number is not a multiple of another, as the message says; or see `overlap`; or groups would
                be replaced under a schedule without steps.
        """
        self.overlap()
        if self.update.dynamic_sampling_rounds and SCHEDULES[self.schedule].disaggregated:
            raise ConfigError(
                "update.dynamic_sampling_rounds",
                f"must be 0 under {self.schedule}, where groups belong to no step that could be filled; set it to 0 "
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
        ConfigError: The file cannot be read, is not YAML, or has invalid fields; all are named by their paths.
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
    if mistakes and raw.get("reward") is not None:  # report what is wrong with the reward in the same error
        with mistakes.gather():
            parse_reward(raw["reward"])
    mistakes.check()
    with mistakes.gather():
        config.check_distillation()
    with mistakes.gather():
        config.has_step_rewards()
    if config.colocated.enabled:
        with mistakes.gather():
            config.check_shares_gpu()
    config = config.with_paths_from(path.resolve().parent)
    if not config.policy.path.is_dir():
        mistakes.add("policy.path", f"folder {config.policy.path} not found")
    mistakes.check()
    return config
