"""A tiny reward model with a head of its own, as a checkpoint brings one: a mean of tokens, three gated objectives.

`config.kind` says what else it does as published models do, or does wrong.
"""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ModelOutput


class GatedConfig(PretrainedConfig):
    model_type = "tiny-gated"

    def __init__(self, kind: str = "gated", hidden_size: int = 8, **further: Any) -> None:
        self.kind = kind
        self.hidden_size = hidden_size
        super().__init__(**further)


@dataclass
class GatedOutput(ModelOutput):
    rewards: torch.Tensor | None = None
    score: torch.Tensor | None = None
    logits: torch.Tensor | None = None


class GatedRewardModel(PreTrainedModel):
    config_class = GatedConfig

    def __init__(self, config: GatedConfig) -> None:
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.objectives = torch.nn.Linear(config.hidden_size, 3, bias=False)
        self.gate = torch.nn.Linear(config.hidden_size, 3, bias=False)
        self.post_init()
        if config.kind == "own way":
            self.get_score = self._get_score

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embed

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> GatedOutput:
        mask = attention_mask.unsqueeze(-1).to(self.embed.weight.dtype)
        if self.config.kind == "deaf to padding":
            mask = torch.ones_like(mask)
        hidden = (self.embed(input_ids) * mask).cumsum(1) / mask.cumsum(1).clamp(min=1)
        if self.config.kind == "last position":
            pooled = hidden[:, -1] + self.embed(input_ids[:, -1])
        elif self.config.kind == "deaf to padding":
            pooled = hidden[:, -1]
        else:
            last = (attention_mask * torch.arange(input_ids.shape[1], device=input_ids.device)).argmax(1)
            pooled = hidden[torch.arange(len(last)), last]
        rewards = self.objectives(pooled)
        score = (rewards * self.gate(pooled).softmax(-1)).sum(-1)
        if self.config.kind == "several labels":
            return GatedOutput(logits=rewards)
        return GatedOutput(rewards=rewards, score=score, logits=rewards)

    def _get_score(self, tokenizer: Any, conversation: list[dict[str, str]]) -> float:
        text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=False)
        ids = tokenizer.encode(text, return_tensors="pt", add_special_tokens=False)
        ids = torch.cat([ids, torch.tensor([[self.config.reward_token_id]])], dim=1)
        return float(self(input_ids=ids, attention_mask=torch.ones_like(ids)).score.item())
