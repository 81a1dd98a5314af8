"""The popular reward models, and how each is served: data alone. Every manifest is checked in a test against the CRD,
and its command line against the engine's own parser.

No model of this list was ever downloaded or run here: `run` says what a tiny one of the same class did, on a CPU.
"""

from typing import Any, Final

from rewardpool_cli.catalogue.entry import Entry

_TINY: Final = "vLLM and SGLang: a tiny one of the class equals transformers"
_TINY_GEMMA2: Final = f"{_TINY}, vLLM's build for CPUs within 0.0003"
_LAST: Final = (
    "The value of the last token. Its files bring code of their own, which neither engine needs: both have the class."
)
_GATED: Final = "transformers: a tiny checkpoint with a gated head of its own code"
_READ: Final = "Read its code before you trust it, and pin spec.model.revision to the commit that you read."
_JUDGES: Final = "vLLM and SGLang: a chat judge with structured output, by other models"


def _served(
    *, gpus: int = 1, max_model_len: int = 8192, kind: str = "Discriminative", head: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A spec without the source: weights in two bytes, on GPUs of 80 GB."""
    engine: dict[str, Any] = {"name": "vllm", "dtype": "bfloat16", "maxModelLen": max_model_len}
    if gpus > 1:
        engine["tensorParallelSize"] = gpus
    model = {"type": kind} | ({"head": head} if head is not None else {})
    return {"model": model, "engine": engine, "worker": {"gpus": gpus}}


def _by_its_own_code(*, max_model_len: int = 4096) -> dict[str, Any]:
    """A spec for the engine transformers, which runs the checkpoint's own code."""
    engine = {"name": "transformers", "dtype": "bfloat16", "maxModelLen": max_model_len}
    return {"model": {"type": "Discriminative", "trustRemoteCode": True}, "engine": engine, "worker": {"gpus": 1}}


ENTRIES: Final = (
    Entry(
        name="skywork-reward-v2-qwen3",
        repository="Skywork/Skywork-Reward-V2-Qwen3-8B",
        also=(
            "Skywork/Skywork-Reward-V2-Qwen3-0.6B",
            "Skywork/Skywork-Reward-V2-Qwen3-1.7B",
            "Skywork/Skywork-Reward-V2-Qwen3-4B",
        ),
        architecture="Qwen3ForSequenceClassification",
        kind="one label",
        spec=_served(max_model_len=16_384),
        also_on=("sglang",),
        run=_TINY,
        notes="On SGLang RewardPool's launcher zeroes a bias that its head has and the checkpoint lacks.",
    ),
    Entry(
        name="skywork-reward-v2-llama",
        repository="Skywork/Skywork-Reward-V2-Llama-3.1-8B",
        also=(
            "Skywork/Skywork-Reward-V2-Llama-3.1-8B-40M",
            "Skywork/Skywork-Reward-V2-Llama-3.2-1B",
            "Skywork/Skywork-Reward-V2-Llama-3.2-3B",
        ),
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(max_model_len=16_384),
        also_on=("sglang",),
        run=_TINY,
    ),
    Entry(
        name="skywork-reward-llama",
        repository="Skywork/Skywork-Reward-Llama-3.1-8B-v0.2",
        also=("Skywork/Skywork-Reward-Llama-3.1-8B",),
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(),
        also_on=("sglang",),
        run=_TINY,
    ),
    Entry(
        name="skywork-reward-gemma-2-27b",
        repository="Skywork/Skywork-Reward-Gemma-2-27B-v0.2",
        also=("Skywork/Skywork-Reward-Gemma-2-27B",),
        architecture="Gemma2ForSequenceClassification",
        kind="one label",
        spec=_served(max_model_len=4096),
        also_on=("sglang",),
        run=_TINY_GEMMA2,
        notes="54 GB of weights. Float16 overflows in this family.",
    ),
    Entry(
        name="offsetbias-rm",
        repository="NCSOFT/Llama-3-OffsetBias-RM-8B",
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(),
        also_on=("sglang",),
        run=_TINY,
    ),
    Entry(
        name="fsfairx-rm",
        repository="sfairXC/FsfairX-LLaMA3-RM-v0.1",
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(),
        also_on=("sglang",),
        run=_TINY,
    ),
    Entry(
        name="tulu-3-rm",
        repository="allenai/Llama-3.1-8B-Instruct-RM-RB2",
        also=("allenai/Llama-3.1-Tulu-3-8B-RM",),
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(max_model_len=4096),
        also_on=("sglang",),
        run=_TINY,
    ),
    Entry(
        name="grm-llama3",
        repository="Ray2333/GRM-Llama3.2-3B-rewardmodel-ft",
        also=("Ray2333/GRM-Llama3-8B-rewardmodel-ft",),
        architecture="LlamaForSequenceClassification",
        kind="one label",
        spec=_served(),
        also_on=("sglang",),
        run=_TINY,
        notes="Only those called rewardmodel-ft: sftreg and distill have a head of their own (grm-sftreg).",
    ),
    Entry(
        name="grm-gemma2",
        repository="Ray2333/GRM-gemma2-2B-rewardmodel-ft",
        architecture="Gemma2ForSequenceClassification",
        kind="one label",
        spec=_served(max_model_len=4096),
        also_on=("sglang",),
        run=_TINY_GEMMA2,
    ),
    Entry(
        name="rm-mistral",
        repository="weqweasdas/RM-Mistral-7B",
        architecture="MistralForSequenceClassification",
        kind="one label",
        spec=_served(),
        run="vLLM: a tiny one of the class equals transformers. SGLang: refused by name",
        notes="Not on SGLang 0.5.23, which lacks the class; a pool there is refused.",
    ),
    Entry(
        name="rm-gemma",
        repository="weqweasdas/RM-Gemma-7B",
        also=("weqweasdas/RM-Gemma-2B",),
        architecture="GemmaForSequenceClassification",
        kind="one label",
        spec=_served(),
        run=None,
        notes="Not on SGLang 0.5.23, which lacks the class; a pool there is refused.",
    ),
    Entry(
        name="rm-r1-qwen",
        repository="gaotang/RM-R1-Qwen2.5-Instruct-7B",
        also=("gaotang/RM-R1-DeepSeek-Distilled-Qwen-7B", "gaotang/RM-R1-Qwen2.5-Instruct-14B"),
        architecture="Qwen2ForCausalLM",
        kind="judge",
        spec=_served(kind="Generative", max_model_len=32_768),
        also_on=("sglang",),
        run=_JUDGES,
        notes="It reasons before its verdict: give the judge's prompt and its form in the reward's config.",
    ),
    Entry(
        name="deepseek-grm",
        repository="BBQGOD/DeepSeek-GRM-27B",
        architecture="Gemma2ForCausalLM",
        kind="judge",
        spec=_served(kind="Generative"),
        also_on=("sglang",),
        run=_JUDGES,
        notes="Give its form in the reward's config, and take votes as its authors do.",
    ),
    Entry(
        name="prometheus-2",
        repository="prometheus-eval/prometheus-7b-v2.0",
        architecture="MistralForCausalLM",
        kind="judge",
        spec=_served(kind="Generative", max_model_len=16_384),
        also_on=("sglang",),
        run=_JUDGES,
    ),
    Entry(
        name="nemotron-70b-reward",
        repository="nvidia/Llama-3.1-Nemotron-70B-Reward-HF",
        architecture="LlamaForCausalLM",
        kind="logit of a token in the language model's head",
        spec=_served(gpus=4, max_model_len=4096, head={"type": "LMHead", "token": "!"}),
        also_on=("sglang",),
        run=_TINY,
        notes="The logit of id 0, which Llama 3.1 spells `!`, after the conversation in its chat template.",
    ),
    Entry(
        name="qwen2-5-math-prm",
        repository="Qwen/Qwen2.5-Math-PRM-7B",
        also=("Qwen/Qwen2.5-Math-PRM-72B", "Qwen/Qwen2.5-Math-7B-PRM800K"),
        architecture="Qwen2ForProcessRewardModel",
        kind="a score for every step",
        spec=_served(max_model_len=4096, head={"type": "TokenLevel", "stepToken": "<extra_0>", "aggregate": "min"}),
        run="vLLM: a tiny one of the class equals transformers, step by step. SGLang has no such class",
        notes="Trainers put <extra_0> at each blank line of an answer. `min` is one choice of four: its worst step.",
    ),
    Entry(
        name="math-shepherd-prm",
        repository="peiyi9979/math-shepherd-mistral-7b-prm",
        architecture="MistralForCausalLM",
        kind="probability of + against - at every step, in the language model's head",
        spec=_served(
            max_model_len=4096,
            head={"type": "TokenLevel", "stepToken": "▁ки", "yesToken": "▁+", "noToken": "▁-", "aggregate": "min"},
        ),
        run="vLLM: a tiny one of the class equals transformers, step by step. SGLang: refused by its stepToken",
        notes="Its authors' code has the ids 12902, 648 and 387: these tokens in Mistral 7B's vocabulary, where `ки`"
        " without its blank is another one. It reads plain text with ` ки` before each newline: give the reward the"
        " separator and the chat_template of docs/rewards.md.",
    ),
    Entry(
        name="rlhflow-prm",
        repository="RLHFlow/Llama3.1-8B-PRM-Deepseek-Data",
        also=("RLHFlow/Llama3.1-8B-PRM-Mistral-Data",),
        architecture="LlamaForCausalLM",
        kind="log-odds of + against - for the last step, in the language model's head",
        spec=_served(head={"type": "LMHead", "yesToken": "+", "noToken": "-"}),
        also_on=("sglang",),
        run="vLLM and SGLang: a token's logit in a tiny one of the class, and yes against no in other classes, equal"
        " transformers",
        notes="One score a text: that of its last step. Its authors write each step as a user's turn that the assistant"
        " answers with +, so the text ends with the assistant's header; give the reward such a chat_template. Earlier"
        " steps are judged at a blank line's token, of which a text has others.",
    ),
    Entry(
        name="qwen2-5-math-rm",
        repository="Qwen/Qwen2.5-Math-RM-72B",
        architecture="Qwen2ForRewardModel",
        kind="a score for every token, the last one counts",
        spec=_served(gpus=4, max_model_len=4096, head={"type": "TokenLevel", "aggregate": "last"}),
        also_on=("sglang",),
        run=_TINY,
        notes=_LAST,
    ),
    Entry(
        name="worldpm",
        repository="Qwen/WorldPM-72B",
        also=("Qwen/WorldPM-72B-HelpSteer2", "Qwen/WorldPM-72B-UltraFeedback", "Qwen/WorldPM-72B-RLHFLow"),
        architecture="Qwen2ForRewardModel",
        kind="a score for every token, the last one counts",
        spec=_served(gpus=4, max_model_len=16_384, head={"type": "TokenLevel", "aggregate": "last"}),
        also_on=("sglang",),
        run=_TINY,
        notes=_LAST,
    ),
    Entry(
        name="internlm2-reward",
        repository="internlm/internlm2-7b-reward",
        also=("internlm/internlm2-1_8b-reward", "internlm/internlm2-20b-reward"),
        architecture="InternLM2ForRewardModel",
        kind="a score at a reward token",
        spec=_by_its_own_code(max_model_len=8192),
        run="transformers: a tiny checkpoint with a get_score of its own",
        notes=f"Its own code appends the reward token, one sample at a time. {_READ}",
    ),
    Entry(
        name="armorm",
        repository="RLHFlow/ArmoRM-Llama3-8B-v0.1",
        architecture="LlamaForRewardModelWithGating",
        kind="19 objectives, weighed by a gate",
        spec=_by_its_own_code(),
        run=_GATED,
        notes=f"vLLM and SGLang have no such head. {_READ}",
    ),
    Entry(
        name="qrm",
        repository="nicolinho/QRM-Llama3.1-8B-v2",
        also=("nicolinho/QRM-Gemma-2-27B",),
        architecture="LlamaForRewardModelWithGating",
        kind="quantiles of a distribution, weighed by a gate",
        spec=_by_its_own_code(),
        run=_GATED,
        notes=_READ,
    ),
    Entry(
        name="urm",
        repository="LxzGordon/URM-LLaMa-3.1-8B",
        also=("LxzGordon/URM-LLaMa-3-8B",),
        architecture="its own",
        kind="means and variances of attributes",
        spec=_by_its_own_code(),
        run=None,
        notes=_READ,
    ),
    Entry(
        name="inf-orm",
        repository="infly/INF-ORM-Llama3.1-70B",
        architecture="INFORMForSequenceClassification",
        kind="a head of two layers",
        spec=None,
        run=None,
        notes="The class is on its page, and not in its files.",
    ),
    Entry(
        name="grm-sftreg",
        repository="Ray2333/GRM-llama3-8B-sftreg",
        also=("Ray2333/GRM-llama3-8B-distill",),
        architecture="its own",
        kind="a head of two layers beside the language model's",
        spec=_by_its_own_code(),
        run=None,
        notes=_READ,
    ),
    Entry(
        name="starling-rm",
        repository="berkeley-nest/Starling-RM-7B-alpha",
        architecture="its own",
        kind="one value at the last token",
        spec=None,
        run=None,
        notes="The class is on its page, and not in its files.",
    ),
    Entry(
        name="ultrarm",
        repository="openbmb/UltraRM-13b",
        architecture="LlamaRewardModel",
        kind="one value at the last token",
        spec=None,
        run=None,
        notes="The class is on its page, and not in its files.",
    ),
    Entry(
        name="eurus-rm",
        repository="openbmb/Eurus-RM-7b",
        architecture="EurusRewardModel",
        kind="one value at the last token",
        spec=_by_its_own_code(max_model_len=2048),
        run=None,
        notes=_READ,
    ),
    Entry(
        name="pairrm",
        repository="llm-blender/PairRM",
        architecture="its own",
        kind="compares two answers",
        spec=None,
        run=None,
        notes="It scores pairs, by code of its own package. `judge.mode: pairwise` has a judge compare.",
    ),
)
"""By kind, then by how much they are used."""
