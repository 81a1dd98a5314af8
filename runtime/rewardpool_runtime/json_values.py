"""Python values as JSON values: as they are, by one of the rules below, or refused by name.

A function's arguments and results pass through here in a training job and at a worker alike, so that a function means
the same in both. JSON itself changes values silently: a tuple becomes a list, and the key 1 becomes "1".

None, bool, int, finite float, text, list, mapping    as they are; texts and numbers of a subclass as the plain ones
numpy and torch scalars, pandas' among them           the Python value
numpy arrays, torch tensors, pandas Series            a list; a Series labelled by texts (a row): a mapping
NaN, pandas NA and NaT                                null, by which parquet files mark a missing value too
dates, times and timestamps                           text in ISO 8601
anything else                                         refused: tuples, sets, bytes, keys that are not texts, infinities
"""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST_DEPTH = 100
MOST_DIGITS = 4000  # Python itself reads few more from a text
MOST_BITS = int(MOST_DIGITS * math.log2(10))
_PLAIN = frozenset({type(None), bool})


class NotJsonError(ValueError):
    """A value that JSON cannot hold; the message has its path and what to give instead."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} {problem}")
        self.path = path
        self.problem = problem


def json_value(value: Any, path: str) -> Any:
    """Return the value as JSON has it; one that is JSON's already, as nearly all are, is returned as it is.

    Args:
        value: Anything.
        path: Names it in messages, such as `extra_info.answers[2]`.

    Raises:
        NotJsonError: It cannot be represented without a loss.
    """
    return value if _is_json(value, 0) else _read(value, path, 0)


def _is_json(value: Any, depth: int) -> bool:
    """Return whether nothing is to be done; without a path for each value, which costs more than the rest."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _surrogate(value) is None
    if kind is dict:
        return depth < MOST_DEPTH and all(
            type(key) is str and _is_json(key, depth) and _is_json(one, depth + 1) for key, one in value.items()
        )
    if kind is list:
        return depth < MOST_DEPTH and all(_is_json(one, depth + 1) for one in value)
    if kind is int:
        return value.bit_length() <= MOST_BITS  # type: ignore[no-any-return]
    return kind in _PLAIN or (kind is float and math.isfinite(value))


def _read(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return _text(value, path)
    if kind in _PLAIN:
        return value
    if kind is float:
        return _float(value, path)
    if kind is int:
        return _whole(value, path)
    if kind is dict or isinstance(value, Mapping):
        _check_depth(depth, path)
        return {_key(key, path): _read(one, f"{path}.{key}", depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        return _list(value, path, depth)
    return _converted(value, path, depth)


def _converted(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, str):
        return _text(str.__str__(value), path)
    if isinstance(value, datetime.date | datetime.time):
        return None if value != value else value.isoformat()  # pandas' NaT is unequal to itself
    if isinstance(value, float):  # numpy.float64 among them
        return _float(float(value), path)
    if isinstance(value, int):
        return _whole(int(value), path)
    if type(value).__name__ == "NAType":
        return None
    if hasattr(value, "tolist"):
        try:
            return _array(value, path, depth)
        except NotJsonError:
            raise
        except Exception as error:  # an array of a user's own, or of a device that is gone, raises what it likes
            raise NotJsonError(path, f"is {described(value)} that cannot be read: {error}") from error
    raise NotJsonError(path, f"is {described(value)}, which JSON cannot hold; {_instead(value)}")


def _array(value: Any, path: str, depth: int) -> Any:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in ("m", "c", "V", "S"):
        raise NotJsonError(path, f"is {described(value)} of dtype {value.dtype}, which JSON cannot hold")
    if hasattr(value, "to_dict"):  # pandas', which keeps its dates' type
        is_row = len(value) > 0 and all(isinstance(label, str) for label in value.index)
        return _read(value.to_dict() if is_row else value.tolist(), path, depth)
    if kind == "M":  # nanoseconds have no type in Python, so `tolist` gives numbers
        return _dates(value.astype(str).tolist())
    plain = value.tolist()
    if isinstance(plain, list):
        return _list(plain, path, depth)
    if type(plain) is type(value):  # a longdouble
        raise NotJsonError(path, f"is {described(value)}, which JSON cannot hold; give a float")
    return _read(plain, path, depth)


def _dates(texts: Any) -> Any:
    if isinstance(texts, list):
        return [_dates(one) for one in texts]
    return None if texts in ("NaT", "nan") else texts


def _list(values: Sequence[Any], path: str, depth: int) -> list[Any]:
    _check_depth(depth, path)
    return [_read(one, f"{path}[{index}]", depth + 1) for index, one in enumerate(values)]


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise NotJsonError(
            path, f"has the key {key!r:.60} ({described(key)}), which JSON would make a text; use texts as keys"
        )
    return _text(str.__str__(key), f"a key of {path}")


def _text(text: str, path: str) -> str:
    if (found := _surrogate(text)) is not None:
        raise NotJsonError(path, f"has {found!r} in it, a lone surrogate, which is not a character")
    return text


def _surrogate(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return text[error.start]
    return None


def _float(number: float, path: str) -> float | None:
    if math.isinf(number):
        raise NotJsonError(path, f"is {number}, which JSON cannot hold; give a finite number or None")
    return None if math.isnan(number) else number


def _whole(number: int, path: str) -> int:
    if number.bit_length() > MOST_BITS:
        raise NotJsonError(path, f"is a whole number of more than {MOST_DIGITS} digits; give it as a text")
    return number


def _check_depth(depth: int, path: str) -> None:
    if depth >= MOST_DEPTH:
        raise NotJsonError(path[:200], f"is more than {MOST_DEPTH} lists and mappings deep, or contains itself")


def described(value: Any) -> str:
    """Return the value's type with an article, such as `a tuple`; None as it is."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def shown(value: Any) -> str:
    """Return at most 100 characters of a value's repr; of what has none, its type."""
    try:
        return f"{value!r:.100}"
    except Exception:  # a whole number of thousands of digits has none, and objects raise what they like
        return described(value)


def finite(value: Any) -> float | None:
    """Return a number as a float; None where it is no finite one, or no number at all."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # a huge whole number does not fit into one
        return None
    return number if math.isfinite(number) else None


def _instead(value: Any) -> str:
    if isinstance(value, tuple | set | frozenset):
        return "give a list"
    if isinstance(value, bytes | bytearray | memoryview):
        return "give a text"
    return "give None, numbers, texts, lists and mappings of them"
