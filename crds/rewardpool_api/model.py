"""Which reward model: where it comes from, how it scores, and what it takes to download it."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rewardpool_api.adapters import MAX_ADAPTERS, AdapterSpec, are_distinct
from rewardpool_api.head import HeadSpec
from rewardpool_api.inference import INFERRED
from rewardpool_api.quantities import EntryName, ObjectName, ShortText
from rewardpool_api.rules import ApiModel, Rule
from rewardpool_api.source import FUNCTION_SCHEME, SOURCE_MESSAGE, SOURCE_PATTERN, is_function, is_source
from rewardpool_api.teacher_wire import DEFAULT_TOP_K, MOST_TOP_K

ModelType = Literal["Discriminative", "Generative", "Function", "Teacher"]
_FUNCTION_SOURCE = f"self.source.startsWith('{FUNCTION_SCHEME}')"
_DISCRIMINATIVE = f"(has(self.type) ? self.type == 'Discriminative' : !{_FUNCTION_SOURCE})"
"""In CEL, what `inference.py` infers in Python."""


class TokenSecretRef(ApiModel):
    """A Secret of the pool's namespace with a hub token."""

    name: ObjectName
    """Name of a Secret in the pool's namespace that holds the hub's token."""
    key: EntryName = "token"
    """Entry of the Secret that holds the token."""


class CredentialsSecretRef(ApiModel):
    """A Secret of the pool's namespace with the variables that S3 clients read."""

    name: ObjectName
    """Name of the Secret, with the entries AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, where needed, AWS_REGION and AWS_ENDPOINT_URL."""


class ModelCache(ApiModel):
    """A volume shared by the pool's workers, so that the model is downloaded once."""

    claim_name: ObjectName
    """PersistentVolumeClaim in the pool's namespace that stores the downloads, in the layout of the hub's own cache."""


class ModelSpec(ApiModel):
    """Which reward model."""

    source: Annotated[str, Field(max_length=1024)]
    """Location of the model: `hf://ORG/NAME`, `s3://BUCKET/PREFIX`, `pvc://CLAIM/PATH`, `file:///ABSOLUTE/PATH` (on the node or machine), or `python://MODULE:FUNCTION` for a Python function."""
    revision: ShortText = "main"
    """Branch, tag or commit of an `hf://` model to serve; other sources have none."""
    type: Annotated[ModelType, INFERRED] = "Discriminative"
    """Discriminative: a model that scores without writing, as `head` says. Generative: a judge that writes. Function: a user's Python function. Teacher: a language model that gives the log-probabilities of given tokens, for distillation. Default: Function for a `python://` source, Discriminative for any other."""
    head: HeadSpec | None = None
    """How the score of a Discriminative model is read. Default: the raw logit of its only label; a checkpoint with several labels needs this field."""
    adapters: Annotated[
        list[AdapterSpec],
        Field(
            max_length=MAX_ADAPTERS,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    """LoRA adapters over this reward model, on vLLM or SGLang. Each is a reward model of its own, which trainers select by name. The same replicas serve the base model and all adapters, and share the base's weights."""
    top_k: Annotated[int, Field(ge=1, le=MOST_TOP_K)] | None = None
    """Maximum number of most likely tokens that a Teacher returns for a position. Default: 64."""
    trust_remote_code: bool = False
    """Run the Python code that comes with the checkpoint (`auto_map` in its config.json), in the worker and with the worker's rights. False: a checkpoint that needs its own code is refused. Set it only for code that you have read, and pin spec.model.revision to the commit that you read."""
    token_secret_ref: TokenSecretRef | None = None
    """Secret with the hub's token, for a gated or private `hf://` model."""
    credentials_secret_ref: CredentialsSecretRef | None = None
    """Credentials for an `s3://` model. Default: those of the pod's ServiceAccount or node."""
    cache: ModelCache | None = None
    """Shared download cache for an `hf://` or `s3://` model. Without it, every worker downloads its own copy."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.source.matches('{SOURCE_PATTERN}') && !(self.source + '/').contains('/../')",
            message=SOURCE_MESSAGE,
            holds=lambda model: is_source(model.source),
        ),
        Rule(
            cel=f"!has(self.type) || (self.type == 'Function') == {_FUNCTION_SOURCE}",
            message="spec.model.type must be Function when spec.model.source is python://MODULE:FUNCTION, and only then: leave spec.model.type out, or give another source, such as python://rewards:score",
            holds=lambda model: (model.type == "Function") == is_function(model.source),
        ),
        Rule(
            cel="!has(self.credentialsSecretRef) || self.source.startsWith('s3://')",
            message="spec.model.credentialsSecretRef is for a spec.model.source s3://BUCKET/PREFIX, and only for that",
            holds=lambda model: model.credentials_secret_ref is None or model.source.startswith("s3://"),
        ),
        Rule(
            cel=f"!has(self.trustRemoteCode) || !self.trustRemoteCode || !{_FUNCTION_SOURCE}",
            message="spec.model.trustRemoteCode must be false when spec.model.type is Function: a function has no checkpoint",
            holds=lambda model: not model.trust_remote_code or model.type != "Function",
        ),
        Rule(
            cel="!has(self.topK) || (has(self.type) && self.type == 'Teacher')",
            message="spec.model.topK must not be set unless spec.model.type is Teacher: no other model gives log-probabilities of tokens",
            holds=lambda model: model.top_k is None or model.type == "Teacher",
        ),
        Rule(
            cel=f"!has(self.head) || {_DISCRIMINATIVE}",
            message="spec.model.head must not be set unless spec.model.type is Discriminative: judges write, functions return their score, and teachers give log-probabilities",
            holds=lambda model: model.head is None or model.type == "Discriminative",
        ),
        Rule(
            cel=f"!has(self.adapters) || size(self.adapters) == 0 || ({_DISCRIMINATIVE} && !has(self.head) && (!has(self.trustRemoteCode) || !self.trustRemoteCode))",
            message="spec.model.adapters must not be set unless spec.model.type is Discriminative, without spec.model.head and trustRemoteCode: adapters are for reward models with one label of a class that the engine has",
            holds=lambda model: (
                not model.adapters
                or (model.type == "Discriminative" and model.head is None and not model.trust_remote_code)
            ),
        ),
        Rule(
            cel="!has(self.adapters) || self.adapters.all(one, self.adapters.exists_one(other, other.name == one.name))",
            message="spec.model.adapters[].name must not be that of another adapter: a trainer chooses by the name",
            holds=lambda model: are_distinct(model.adapters),
        ),
    )

    @property
    def most_top_k(self) -> int:
        """`topK` of a Teacher, or its default."""
        return DEFAULT_TOP_K if self.top_k is None else self.top_k
