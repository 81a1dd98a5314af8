"""Starts SGLang's HTTP server with the score middleware: `python rewardpool_worker.zip sglang_launcher SGLANG-FLAGS…`.

SGLang has no flag for a middleware, and takes a key on its command line and into its log. So this launcher puts the
middleware around SGLang's application, and starts the server with the flags it was given, unchanged. Measured with
SGLang 0.5.23, it also prevents what would make a score wrong or open a way past the key:

- **No second door.** What starts another server next to the one with the middleware is refused.
- **The checkpoint's model, all of it.** An architecture that SGLang lacks would be served without its reward head, and
  a head's bias that the checkpoint lacks would be a random constant of each replica. The first is refused, the second
  set to zero, as transformers has it; any other weight that is not in the checkpoint, or is NaN there, ends the start.
  So does a weight of the checkpoint that SGLang would leave out, such as a second layer of its head.
- **A language model's reward.** SGLang scores by classifiers alone. Where `spec.model.head` is an LMHead, the model is
  made as a classifier whose head is the rows of the declared tokens in the language-model head.
- **Adapters as PEFT computes them.** See `sglang_adapters`.
- **Token ids of the vocabulary.** One beyond it, in a request or out of a tokenizer that does not belong to the model,
  would end the engine's process, and then the next worker's that the router tries.
- **The longest sample.** SGLang takes one token less than the context length it reports.
"""

import argparse
import json
import logging
import os
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rewardpool_api.names import (
    ENV_ADAPTERS,
    ENV_HEAD,
    ENV_KEY_FILE,
    ENV_MODEL_TYPE,
)
from rewardpool_worker.engine_side import lora_adapters, sglang_adapters, step_memory
from rewardpool_worker.engine_side.head_tokens import resolve_or_refuse
from rewardpool_worker.engine_side.middleware.score import ScoreMiddleware
from rewardpool_worker.engine_side.writable_home import make_home_writable

log = logging.getLogger("rewardpool.worker")

HEAD = "score"

FREEZE_SECONDS = 30.0

# Those that start a server without the middleware, with the one value of each that does not.
SECOND_SERVERS: Mapping[str, Any] = {
    "tokenizer_worker_num": 1,  # each would import the application anew, without the middleware
    "grpc_port": None,
    "grpc_mode": False,
    "smg_grpc_mode": False,
    "sidecar": None,
    "enable_http2": False,  # another server program than the one that was tested
    "use_ray": False,
    "encoder_only": False,
    "disaggregation_mode": "null",
    "remote_instance_weight_loader_start_seed_via_transfer_engine": False,
}
SECOND_SERVER_VARIABLES = ("SGLANG_GRPC_PORT", "SGLANG_RUST_SERVER", "SMG_SGLANG_ZMQ_HANDSHAKE")


class ModelRefusedError(RuntimeError):
    """A model whose answers would not be its scores; the text says why, and what to do."""


def main(argv: list[str]) -> int:
    """Run the server until it is told to stop; returns the exit code."""
    make_home_writable(os.environ)
    from sglang.srt.server_args import prepare_server_args

    if ENV_HEAD in os.environ:
        found = resolve_or_refuse(json.loads(os.environ[ENV_HEAD]), argv, tokenizer_flag="--tokenizer-path")
        if found is None:
            return 2
        head, checkpoint = found
        argv = [*argv, *head_flags(head, checkpoint.as_classifier, argv)]
        # For the middleware, and for the scheduler, which is a process of its own.
        os.environ[ENV_HEAD] = json.dumps(head)
    if ENV_ADAPTERS in os.environ:
        of_adapters = lora_adapters.adapters_or_refuse(argv, sglang_adapters.flags)
        if of_adapters is None:
            return 2
        argv = [*argv, *of_adapters]
    of_memory = step_memory.flags_or_refuse(step_memory.SGLANG, argv)
    if of_memory is None:
        return 2
    arguments = prepare_server_args([*argv, *of_memory])
    if way := way_past_the_key(arguments, os.environ):
        print(f"error: argument {way}: not supported, it starts a server that takes requests without a key", flush=True)
        return 2
    if wrong := wrong_scores(arguments):
        print(f"error: argument {wrong}", flush=True)
        return 2

    from sglang.srt.entrypoints import http_server
    from sglang.srt.utils import kill_process_tree

    http_server.app.add_middleware(ScoreMiddleware)
    # SGLang asks itself to, without the pool's key, and would be refused.
    http_server._freeze_gc_after_server_warmup = freeze_collectors
    try:
        http_server.launch_server(
            arguments, init_tokenizer_manager_func=make_tokenizer_manager, run_scheduler_process_func=run_scheduler
        )
    finally:
        # The scheduler and the detokeniser are processes of their own and outlive a server that fails.
        kill_process_tree(os.getpid(), include_parent=False)
    return 0


def head_flags(head: Mapping[str, Any], as_classifier: str, given: Sequence[str]) -> list[str]:
    """The flags of SGLang for a head; pure.

    Args:
        head: as `head_tokens.resolve` returns it.
        as_classifier: what a language model's architecture is called as a classifier.
        given: SGLang's flags so far, of which --json-model-override-args are kept where the head says nothing.
    """
    if head["type"] != "LMHead":
        return []
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--json-model-override-args", type=json.loads, default={})
    own, _ = parser.parse_known_args(list(given))
    overrides = {"architectures": [as_classifier], "num_labels": len(head["tokenIds"])}
    return ["--json-model-override-args", json.dumps({**own.json_model_override_args, **overrides})]


def way_past_the_key(arguments: Any, environ: Mapping[str, str]) -> str | None:
    """The argument or variable that would start a second server, as it is written; None when there is none.

    Args:
        arguments: SGLang's, each an attribute; `vars` of them is empty.
        environ: the environment's variables.
    """
    for name, value in SECOND_SERVERS.items():
        if getattr(arguments, name, value) not in (value, None):
            return f"--{name.replace('_', '-')}"
    switched_on = (name for name in SECOND_SERVER_VARIABLES if environ.get(name, "0").lower() not in ("", "0", "false"))
    return next(switched_on, None)


def wrong_scores(arguments: Any) -> str | None:
    """The argument that would have the model score something else than the sample, and why; None without one."""
    if getattr(arguments, "allow_auto_truncate", False):
        return "--allow-auto-truncate: a sample that is too long would be scored without its end"
    if getattr(arguments, "load_format", None) == "dummy":
        return "--load-format dummy: the weights would be random"
    return None


def freeze_collectors(arguments: Any) -> None:
    """Let SGLang freeze its garbage collectors, which spares it long pauses; it works without that as well."""
    key_file = os.environ.get(ENV_KEY_FILE)
    headers = {"Authorization": f"Bearer {Path(key_file).read_text().strip()}"} if key_file else {}
    request = urllib.request.Request(arguments.url() + "/freeze_gc", headers=headers, method="POST")  # noqa: S310
    deadline = time.monotonic() + FREEZE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=FREEZE_SECONDS):  # noqa: S310 - this server's own address
                return
        except OSError as error:
            refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
            if not refused or time.monotonic() > deadline:
                log.warning("the garbage collectors are not frozen: %s", error)
                return
        time.sleep(0.2)


def make_tokenizer_manager(*args: Any, **kwargs: Any) -> Any:
    """Make SGLang's tokenizer manager, through which every request goes, with our two bounds on requests."""
    from sglang.srt.entrypoints import http_server
    from sglang.srt.entrypoints.engine import init_tokenizer_manager

    manager, templates = init_tokenizer_manager(*args, **kwargs)
    # Where the middleware finds it.
    http_server.app.state.vocabulary_size = manager.model_config.vocab_size
    http_server.app.state.shows_media = shows_media(manager.model_config.is_multimodal, templates)
    bound_requests(manager)
    return manager, templates


def shows_media(is_multimodal: bool, templates: Any) -> bool:
    """Return whether pictures in a conversation reach the model; else SGLang leaves them out without a word."""
    by_name = getattr(templates, "chat_template_name", None) is not None
    return is_multimodal and (by_name or templates.jinja_template_content_format == "openai")


def bound_requests(manager: Any) -> None:
    """Let a tokenizer manager refuse token ids beyond the vocabulary, and take samples as long as the context."""
    size = manager.model_config.vocab_size
    validate = manager._validate_one_request

    def validate_and_bound(request: Any, token_ids: list[int] | None) -> None:
        validate(request, token_ids)
        # Those of the request, or of its tokenised text. A ValueError becomes a 400.
        beyond = next((token for token in token_ids or () if not 0 <= token < size), None)
        if beyond is not None:
            raise ValueError(f"Token id {beyond} is out of vocabulary: the model has {size} tokens")

    manager._validate_one_request = validate_and_bound
    if not manager.is_generation:
        # SGLang keeps one position for a token to write, and a score writes none.
        manager.num_reserved_tokens -= 1


def run_scheduler(*args: Any, **kwargs: Any) -> None:
    """SGLang's scheduler, the process that has the model, with that model checked while it is loaded."""
    from sglang.srt.managers.scheduler import run_scheduler_process
    from sglang.srt.model_loader import loader

    if os.environ.get(ENV_MODEL_TYPE, "Discriminative") == "Discriminative":
        loader._initialize_model = checked(loader._initialize_model)
    if ENV_ADAPTERS in os.environ:
        from sglang.srt.utils import is_pin_memory_available

        if not is_pin_memory_available():
            sglang_adapters.without_pinned_memory()
        sglang_adapters.score_by_own_heads()
    run_scheduler_process(*args, **kwargs)


def checked(initialize: Callable[..., Any]) -> Callable[..., Any]:
    """SGLang's function that makes a model, for reward models: what it makes is the checkpoint's, and is loaded whole.

    Raises:
        ModelRefusedError: SGLang made another model than the checkpoint's, or one without a reward head.
    """

    def initialize_checked(model_config: Any, load_config: Any, quant_config: Any = None) -> Any:
        model = initialize(model_config, load_config, quant_config)
        if refusal := headless(type(model).__name__, model_config.hf_config.architectures or []):
            raise ModelRefusedError(refusal)
        load = model.load_weights

        def load_weights(weights: Iterable[tuple[str, Any]]) -> Any:
            # The first time alone: what is loaded later may be some of the weights.
            del model.load_weights
            if token_ids := json.loads(os.environ.get(ENV_HEAD, "{}")).get("tokenIds"):
                tied = model_config.hf_config.tie_word_embeddings
                weights = with_rows_as_head(weights, token_ids, "model.embed_tokens" if tied else "lm_head")
            return load_whole(model, load, weights, quantised=quant_config is not None)

        model.load_weights = load_weights
        return model

    return initialize_checked


def headless(served: str, architectures: list[str]) -> str | None:
    """Reason why a model's answers would be hidden states instead of scores; None when it has its reward head.

    Args:
        served: the class that SGLang made.
        architectures: what the checkpoint's config.json says.
    """
    named = ", ".join(architectures) or "no architecture"
    if served not in architectures:
        return (
            f"SGLang has no class for {named} and would serve {served}, which has no reward head: "
            "serve this model with spec.engine.name vllm"
        )
    if "SequenceClassification" not in served and "RewardModel" not in served:
        return (
            f"{served} has no reward head: declare in spec.model.head where its score is, serve a checkpoint of a "
            "sequence classification model, or set spec.model.type Generative for a judge"
        )
    return None


def with_rows_as_head(
    weights: Iterable[tuple[str, Any]], token_ids: Sequence[int], head: str
) -> Iterable[tuple[str, Any]]:
    """A language model's weights as those of a classifier, a label per token.

    Args:
        weights: names and tensors; those of the language-model head are (tokens, hidden size).
        token_ids: the rows that become the classifier's, in this order.
        head: where the language-model head is: its own, or the embeddings that are tied to it.
    """
    for name, values in weights:
        if name == f"{head}.weight":
            yield "score.weight", values[list(token_ids)]
        if not name.startswith("lm_head."):
            yield name, values


def load_whole(
    model: Any, load: Callable[[Iterable[tuple[str, Any]]], Any], weights: Iterable[tuple[str, Any]], *, quantised: bool
) -> Any:
    """Load a checkpoint's weights into a new model, and see that each of the model's own has got its values.

    Raises:
        ModelRefusedError: a weight is not in the checkpoint, or NaN there; or the checkpoint has one too many.
    """
    import torch

    present: set[str] = set()

    def noted() -> Iterable[tuple[str, Any]]:
        for name, values in weights:
            present.add(name)
            yield name, values

    expected = {
        f"{path}.{name}".removeprefix("."): (module, parameter)
        for path, module in model.named_modules()
        # Quantised layers have parameters of their own making. Those of torch start with random values.
        if not quantised or type(module).__module__.startswith("torch.nn.")
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    }
    with torch.no_grad():
        for _, parameter in expected.values():
            parameter.fill_(torch.nan)
        loaded = load(noted())
        without = {name: made for name, made in expected.items() if made[1].isnan().any()}
        for name, (module, parameter) in list(without.items()):
            # SGLang's Qwen heads have a bias where transformers' have none.
            if isinstance(module, torch.nn.Linear) and name.endswith("bias") and name not in present:
                parameter.zero_()
                log.warning("the checkpoint has no %s: it is zero", name)
                del without[name]
    if without:
        some = ", ".join(sorted(without)[:5])
        raise ModelRefusedError(
            f"the checkpoint lacks {len(without)} of the model's weights, or has NaN in them ({some}): "
            "a score would be of random weights; check the files of spec.model.source"
        )
    if beyond := left_out(model, present):
        raise ModelRefusedError(
            f"SGLang's {type(model).__name__} has no place for {len(beyond)} of the checkpoint's weights "
            f"({', '.join(beyond[:5])}) and would score without them: serve this model by its own code, "
            "with spec.engine.name transformers"
        )
    return loaded


def left_out(model: Any, present: Iterable[str]) -> list[str]:
    """The sorted weights of a checkpoint that a model has no place for; SGLang leaves them out, or warns of them."""
    # Some checkpoints name the body's parts without the body.
    parts = {name for part in (model, getattr(model, "model", model)) for name, _ in part.named_children()}
    own = {name for name, _ in model.named_parameters()}

    def has_place(name: str) -> bool:
        part = name.partition(".")[0]
        # A classifier needs no language-model head; within the body SGLang has names of its own.
        return part == "lm_head" or (name in own if part == HEAD else part in parts)

    return sorted(name for name in present if not has_place(name))
