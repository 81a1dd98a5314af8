"""How published judges answer, in words of our own, and the config that reads each; None where no form reads it."""

from dataclasses import dataclass
from typing import Any, Final

TO_FIVE: Final = {"range": (1, 5)}
PAIR: Final = {"mode": "pairwise"}
BOXED: Final = "\\boxed{{answer}}"


@dataclass(frozen=True)
class Style:
    """One answer of a judge; `config` is without `output: text`, `verdict` as the scale has it."""

    name: str
    config: dict[str, Any]
    words: str
    verdict: Any
    count: int = 0
    """Of a list: its responses."""


STYLES: Final = (
    Style(
        "Prometheus 2, a grade",
        {**TO_FIVE, "form": "[RESULT] {answer}"},
        "Feedback: The steps are right, though the unit is missing. So the overall score is 4. [RESULT] 4",
        4,
    ),
    Style(
        "Prometheus 2, a pair",
        {**PAIR, "form": "[RESULT] {answer}"},
        "Feedback: Both reach 42, but Response B says why. Therefore Response B is better. [RESULT] B",
        0.0,
    ),
    Style("Skywork-Critic", {**PAIR, "form": "[[{answer}]]"}, "[[A]]", 1.0),
    Style(
        "MT-Bench's prompt, a pair",
        {**PAIR, "labels": {"A": 1, "B": 0, "C": 0.5}, "form": "[[{answer}]]"},
        "Assistant A is short. Assistant B is wrong about [[1, 2]].\n\nMy final verdict is: [[C]]",
        0.5,
    ),
    Style(
        "MT-Bench's prompt, a grade",
        {"form": "[[{answer}]]"},
        "The answer is clear, and leaves one case out.\n\nRating: [[7]]",
        7,
    ),
    Style(
        "Arena-Hard's prompt",
        {**PAIR, "labels": {"A>>B": 1, "A>B": 0.75, "A=B": 0.5, "B>A": 0.25, "B>>A": 0}, "form": "[[{answer}]]"},
        "Assistant A's code runs; that of B does not.\n\nMy final verdict is that A is better: [[A>B]]",
        0.75,
    ),
    Style(
        "Auto-J, a grade",
        {"form": "[[{answer}]]"},
        "The reply names two of three causes. ***\nAfter all of this, my final rating is: Rating: [[5]]",
        5,
    ),
    Style(
        "Auto-J, a pair",
        {**PAIR, "labels": {"1": 1, "2": 0}, "form": "So, the final decision is Response {answer}"},
        "1. Both are polite.\n2. Response 1 is longer.\n3. Response 2 keeps to the question.\n"
        "So, the final decision is Response 2.",
        0.0,
    ),
    Style(
        "CompassJudger",
        {**PAIR, "form": "\u9009\u62e9\uff1a{answer}"},
        "Assistant A answers in one sentence and is right; B repeats the question.\n\u9009\u62e9\uff1aA",
        1.0,
    ),
    Style(
        "RM-R1, a chat",
        {**PAIR, "form": "<answer>[[{answer}]]</answer>"},
        "<type>Chat</type>\n<rubric>\nAccuracy (60%), clarity (40%).\n<justify>[[A]] or [[B]].</justify>\n</rubric>\n"
        "<eval>\n<quote_A>4</quote_A> <quote_B>5</quote_B>\n<summary>Chatbot B's answer: B.</summary>\n</eval>\n"
        "<answer>[[B]]</answer>",
        0.0,
    ),
    Style(
        "RM-R1, reasoning",
        {**PAIR, "form": "<answer>[[{answer}]]</answer>"},
        "<think>The better response is B. No, wait.</think>\n<type>Reasoning</type>\n<solution>2 + 2 = 4</solution>\n"
        "<eval>Chatbot A's answer is the solution, so the winner is A</eval>\n<answer>[[A]]</answer>\n",
        1.0,
    ),
    Style(
        "RM-R1, reasoning that its template opens",
        {**PAIR, "form": "<answer>[[{answer}]]</answer>", "reasoning": {"prompt_opens": True}},
        "B, I think: <answer>[[B]]</answer>? No.\n</think>\n\n<answer>[[A]]</answer>",
        1.0,
    ),
    Style(
        "DeepSeek-GRM",
        {"mode": "listwise", "form": BOXED},
        "Specific Criteria: accuracy (2), clarity (1).\nAnalysis: Response 1 is right; Response 2 is not.\n"
        "Scores: \\boxed{8, 3}",
        (8, 3),
        count=2,
    ),
    Style(
        "Reward Reasoning Model",
        {**PAIR, "labels": {"Assistant 1": 1, "Assistant 2": 0}, "form": BOXED},
        "<think>\nThe first one has \\boxed{41}, the second \\boxed{42}.\n</think>\n\n\\boxed{Assistant 2}",
        0.0,
    ),
    Style(
        "Nemotron GenRM",
        {"range": (1, 6), "form": "[The Begin of Ranking Score] \\boxed{{answer}} [The End of Ranking Score]"},
        "[The Begin of Individual Scores]\n\\boxed{4, 2}\n[The End of Individual Scores]\n"
        "[The Begin of Ranking Score]\n\\boxed{2}\n[The End of Ranking Score]",
        2,
    ),
    Style(
        "Selene",
        {**TO_FIVE, "form": "Result: {answer}"},
        "**Reasoning:** The answer meets the rubric but for its tone.\n\n**Result:** 4",
        4,
    ),
    Style(
        "Flow-Judge",
        {**TO_FIVE, "form": "<score>{answer}</score>"},
        "<feedback>\nThe summary leaves the date out.\n</feedback>\n<score>\n3\n</score>",
        3,
    ),
    Style(
        "GLIDER",
        {"range": (0, 1), "form": "<score>{answer}</score>"},
        "<reasoning>\n- It cites the text.\n</reasoning>\n<highlight>\n['text']\n</highlight>\n<score>\n1\n</score>",
        1,
    ),
    Style(
        "UltraCM",
        {"form": "Overall Score: {answer}"},
        "### Feedback\nThe plan is sound. Add a budget.\nOverall Score: 7",
        7,
    ),
    Style(
        "a cookbook's prompt",
        {"form": "Total rating: {answer}"},
        "Feedback:::\nEvaluation: It helps, and gives 3 sources of 10.\nTotal rating: 8",
        8,
    ),
    Style("JudgeLM", PAIR, "8 7\nAssistant 1 gives more detail than Assistant 2, whose list has 3 items.", None),
    Style("PandaLM", PAIR, "2\n\n### Reason: Response 2 is complete.\n\n### Reference: It is 42.", None),
    Style("J1", PAIR, "<think>Hm.</think>\n<score_A>8</score_A>\n<score_B>5</score_B>", None),
    Style("JudgeLRM", PAIR, "<think>The first is right.</think><answer><score_1>9</score_1> 2</answer>", None),
    Style("Con-J", PAIR, '{"reason": "The second is complete.", "better answer": 2}', None),
)
