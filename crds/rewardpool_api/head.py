"""Where a discriminative model's score is, for a checkpoint that does not simply have one label.

Reward models keep their score in one of three places: in several labels of a classification head, in the scores of some
tokens of the vocabulary, or in a value for each token of the text, of which those at the ends of steps count. The last
two meet in language models that judge each step by two tokens, without a head of their own (Math-Shepherd).
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rewardpool_api.rules import ApiModel, Rule

HeadType = Literal["Classifier", "LMHead", "TokenLevel"]
Aggregate = Literal["last", "min", "mean", "product"]
Weight = Annotated[float, Field(allow_inf_nan=False)]
TokenText = Annotated[str, Field(min_length=1, max_length=256)]


class HeadSpec(ApiModel):
    """Where the score is. Without it, the checkpoint must have exactly one label, and its raw logit is the score."""

    type: HeadType
    """Classifier: several labels, weighted. LMHead: the raw logit of a token after the text, or the difference of two tokens' logits. TokenLevel: a value per token; those at the ends of steps are aggregated (process reward models)."""
    weights: Annotated[list[Weight], Field(min_length=1, max_length=64)] | None = None
    """For a Classifier: one number per label, in the checkpoint's order. The score is the sum of weight times raw logit."""
    labels: Annotated[list[TokenText], Field(min_length=1, max_length=64)] | None = None
    """For a Classifier: the labels that `weights` apply to, in order. A checkpoint whose config.json has other labels is refused."""
    token: TokenText | None = None
    """For an LMHead: the token whose raw logit after the text is the score, as the tokenizer's vocabulary spells it, or a text that is one token."""
    yes_token: TokenText | None = None
    """For an LMHead: the token of a judge's yes. The score is its raw logit minus that of `noToken`: the log-odds of yes against no. For a TokenLevel head with a `stepToken`: the same question at each step of a language model, and the value of a step is the probability of yes against no."""
    no_token: TokenText | None = None
    """Token of a judge's no; set it together with `yesToken`."""
    step_token: TokenText | None = None
    """For a TokenLevel head: the token that ends each step. Without it the last token of a text is its only step."""
    aggregate: Aggregate | None = None
    """For a TokenLevel head: how the values of the steps make one score. The value of a step is the probability of the second of two labels, or of `yesToken`, or the raw logit of a single label; `product` takes probabilities only."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.type == 'Classifier') == has(self.weights)",
            message="spec.model.head.weights must be set when spec.model.head.type is Classifier, and only then",
            holds=lambda head: (head.type == "Classifier") == (head.weights is not None),
        ),
        Rule(
            cel="!has(self.labels) || (has(self.weights) && size(self.labels) == size(self.weights))",
            message="spec.model.head.labels must name one label for each of spec.model.head.weights",
            holds=lambda head: (
                head.labels is None or (head.weights is not None and len(head.labels) == len(head.weights))
            ),
        ),
        Rule(
            cel="self.type == 'LMHead' ? has(self.token) != has(self.yesToken) : !has(self.token)",
            message="spec.model.head must have either token, or yesToken and noToken, when spec.model.head.type is LMHead, and token only then",
            holds=lambda head: (
                (head.token is not None) != (head.yes_token is not None)
                if head.type == "LMHead"
                else head.token is None
            ),
        ),
        Rule(
            cel="has(self.yesToken) == has(self.noToken)",
            message="spec.model.head.yesToken and spec.model.head.noToken must be set together",
            holds=lambda head: (head.yes_token is None) == (head.no_token is None),
        ),
        Rule(
            cel="!has(self.yesToken) || self.type == 'LMHead' || (self.type == 'TokenLevel' && has(self.stepToken))",
            message="spec.model.head.yesToken must not be set unless spec.model.head.type is LMHead, or TokenLevel with a stepToken: after the whole text an LMHead needs it",
            holds=lambda head: (
                head.yes_token is None
                or head.type == "LMHead"
                or (head.type == "TokenLevel" and head.step_token is not None)
            ),
        ),
        Rule(
            cel="!has(self.yesToken) || !has(self.noToken) || self.yesToken != self.noToken",
            message="spec.model.head.yesToken and spec.model.head.noToken must be two tokens: the score is the difference of their logits",
            holds=lambda head: head.yes_token is None or head.yes_token != head.no_token,
        ),
        Rule(
            cel="(self.type == 'TokenLevel') == has(self.aggregate)",
            message="spec.model.head.aggregate must be set when spec.model.head.type is TokenLevel, and only then",
            holds=lambda head: (head.type == "TokenLevel") == (head.aggregate is not None),
        ),
        Rule(
            cel="!has(self.stepToken) || self.type == 'TokenLevel'",
            message="spec.model.head.stepToken must not be set unless spec.model.head.type is TokenLevel",
            holds=lambda head: head.step_token is None or head.type == "TokenLevel",
        ),
        Rule(
            cel="!has(self.aggregate) || self.aggregate == 'last' || has(self.stepToken)",
            message="spec.model.head.stepToken must be set unless spec.model.head.aggregate is last: without it the last token is the only step",
            holds=lambda head: head.aggregate in (None, "last") or head.step_token is not None,
        ),
    )
