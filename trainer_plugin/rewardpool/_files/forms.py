"""The forms that a file's rows may have, each declared by its columns; a row in another one is refused by name.

A form is found by the columns of the file's first row, and every row must have it. No column is guessed at: one that
the form does not have is refused, unless the user says that it shall be ignored.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rewardpool._mistakes import did_you_mean
from rewardpool._rewards.episode import Episode, is_missing
from rewardpool._rewards.messages import text_or_messages
from rewardpool._rewards.rows import episode_of
from rewardpool.errors import InvalidSampleError
from rewardpool_runtime.json_values import described

RESPONSE: Final = "response"
CHOSEN: Final = "chosen"
REJECTED: Final = "rejected"
# Columns that every form takes, as fields of `Episode`.
KNOWN: Final = ("ground_truth", "data_source", "extra_info")
# Columns that are written as they were read.
CARRIED: Final = ("id", "subset")
_NOT_OF_A_COMPLETION: Final = ("developer", "system", "user")


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form.

    Attributes:
        prompt: Its column with the prompt; None where the answers are whole conversations.
        answers: Its columns with what is scored, by what the output calls each.
        further: Columns that it may have besides.
    """

    name: str
    prompt: str | None
    answers: Mapping[str, str]
    further: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        return (*((self.prompt,) if self.prompt else ()), *self.answers.values())

    @property
    def takes(self) -> tuple[str, ...]:
        """Columns that it may have besides."""
        return (*KNOWN, *CARRIED, *self.further)

    @property
    def is_pair(self) -> bool:
        return CHOSEN in self.answers


_PAIR: Final = {CHOSEN: CHOSEN, REJECTED: REJECTED}
FORMS: Final = (
    Form(name="prompt and response", prompt="prompt", answers={RESPONSE: "response"}),
    Form(name="TRL's prompt and completion", prompt="prompt", answers={RESPONSE: "completion"}, further=("label",)),
    Form(name="OpenRLHF's input and output", prompt="input", answers={RESPONSE: "output"}),
    Form(name="messages, of which the last is scored", prompt=None, answers={RESPONSE: "messages"}),
    Form(
        name="pairs of TRL, OpenRLHF and RewardBench",
        prompt="prompt",
        answers=_PAIR,
        further=("chosen_model", "rejected_model", "margin"),
    ),
    Form(name="pairs of whole conversations", prompt=None, answers=_PAIR, further=("margin",)),
)
PAIRS: Final = tuple(form for form in FORMS if form.is_pair)


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """One row of a file.

    Attributes:
        number: Its place in the file, from 0.
        episodes: What is scored, by what the output calls it: `response`, or `chosen` and `rejected`.
        carried: Its columns that come out as they went in.
    """

    number: int
    episodes: Mapping[str, Episode]
    carried: Mapping[str, Any]


class FormError(Exception):
    """Columns, or a row, that are of no accepted form; the message has what is accepted."""


def form_of(columns: Collection[str], *, ignore: Collection[str] = (), forms: Sequence[Form] = FORMS) -> Form:
    """Return the form whose columns these are, but for those to ignore. Raises FormError where it is none."""
    if absent := sorted(set(ignore) - set(columns)):
        raise FormError(f"there is no column {absent[0]} to ignore; there are {_listed(columns)}")
    given = set(columns) - set(ignore)
    fitting = [form for form in forms if set(form.needs) <= given]
    # Of forms that fit, the one that says most about the row: with a prompt, pairs are no whole conversations.
    fitting = [form for form in fitting if not any(set(form.needs) < set(other.needs) for other in fitting)]
    if len(fitting) != 1:
        problem = "which is not an accepted form" if not fitting else "which is more than one form"
        remedy = "rename its columns" if not fitting else "ignore those that are not meant"
        raise FormError(f"it has the columns {_listed(given)}, {problem}; {remedy}. {accepted(forms)}")
    [form] = fitting
    if unknown := sorted(given - set(form.needs) - set(form.takes)):
        known = (*form.needs, *form.takes)
        raise FormError(
            f"the form {form.name} has no column {unknown[0]}{did_you_mean(unknown[0], set(known) - given)}; ignore it,"
            f" or rename it to one of {_listed(form.takes)}. {accepted(forms)}"
        )
    return form


def accepted(forms: Sequence[Form]) -> str:
    return "Accepted are " + "; ".join(f"{', '.join(form.needs)} ({form.name})" for form in forms)


def check_columns(columns: Collection[str], form: Form, *, ignore: Collection[str] = ()) -> None:
    """See to it that a row has the columns of its file's form. Raises FormError."""
    given = set(columns) - set(ignore)
    if missing := [name for name in form.needs if name not in given]:
        raise FormError(f"it has no {' and no '.join(missing)}, as the rows before it have")
    if unknown := sorted(given - set(form.needs) - set(form.takes)):
        raise FormError(f"it has a column {unknown[0]}, which the form {form.name} does not have; ignore it")


def read_row(row: Mapping[str, Any], form: Form, number: int) -> FileRow:
    """Return a row, of whose columns only those of the form are read.

    Args:
        number: Its place in the file, from 0.

    Raises:
        FormError: What is in a column is not what belongs there.
    """
    known = {name: row[name] for name in KNOWN if not is_missing(row.get(name))}
    prompt = None if form.prompt is None else row[form.prompt]
    try:
        episodes = {
            role: _episode(prompt, row[column], column, f"#{number} {role}" if form.is_pair else f"#{number}", known)
            for role, column in form.answers.items()
        }
    except InvalidSampleError as error:
        raise FormError(error.problem) from None
    return FileRow(number=number, episodes=episodes, carried=_carried(row))


def _episode(prompt: Any, answer: Any, column: str, label: str, known: Mapping[str, Any]) -> Episode:
    return episode_of(*_split(prompt, answer, column, label), id=label, **known)


def _carried(row: Mapping[str, Any]) -> dict[str, Any]:
    carried = {name: row[name] for name in CARRIED if not is_missing(row.get(name))}
    for name, value in carried.items():
        if not isinstance(value, str | int | float):
            raise FormError(f"its {name} is {described(value)}; give a text or a number")
    return carried


def _split(prompt: Any, answer: Any, column: str, label: str) -> tuple[Any, Any]:
    """Return prompt and completion of one answer. Raises InvalidSampleError and FormError."""
    answer = text_or_messages(answer, what=column, label=label)
    if prompt is not None:
        _check_completion(answer, column)
        return prompt, answer
    if isinstance(answer, str):
        raise FormError(
            f"{column} is a text, and without a prompt it must be a whole conversation: give a list of messages, or a"
            " column prompt"
        )
    if answer[-1].get("role") != "assistant":
        raise FormError(
            f"the last message of {column} has the role {answer[-1]['role']}; it must be the assistant's, which is"
            " scored"
        )
    if len(answer) < 2:
        raise FormError(f"{column} has one message; it must have those before it too, as the prompt")
    return answer[:-1], answer[-1:]


def _check_completion(answer: str | Sequence[Mapping[str, Any]], column: str) -> None:
    if not isinstance(answer, str) and (role := answer[0].get("role")) in _NOT_OF_A_COMPLETION:
        raise FormError(
            f"{column} begins with a message of the role {role}; beside a prompt it must have only what answers it."
            " If it is a whole conversation, ignore the column prompt"
        )


def _listed(words: Collection[str]) -> str:
    return ", ".join(sorted(map(str, words))) or "none"
