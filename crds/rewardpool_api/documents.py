"""The objects of a manifest's bytes, read as kubectl reads them: YAML 1.1 as Go's library has it, or JSON.

Two readers of one file must not see two pools. Which words are booleans, which digits are a number and in which base,
what a tag or a key that is no text stands for: PyYAML and Go's library have different answers, and Go's count here. A
property test compares this module with a real kubectl.
"""

import base64
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import yaml

from rewardpool_api import names

MAX_VALUES: Final = 100_000
"""Of a manifest with its aliases written out: a few lines of them can stand for more than any memory holds."""

_BYTE_ORDER_MARKS: Final = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_WORDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_INTEGER: Final = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)")
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MOST_DIGITS: Final = 70
"""Of an integer of 64 bits, in whatever base, with its sign and prefix."""
_SPACE: Final = re.compile(r"\s*")
_BASES: Final = {"x": 16, "o": 8, "b": 2}
_LISTS: Final = (("List", "v1"), (f"{names.KIND}List", names.API_VERSION))
_MAPS: Final = (
    "metadata.labels",
    "metadata.annotations",
    "spec.worker.labels",
    "spec.worker.annotations",
    "spec.worker.resources.requests",
    "spec.worker.resources.limits",
)
"""Fields of a pool whose keys are the user's own."""
_MOST_OF_32_BITS: Final = 3.4028235e38
_SCALARS: Final = {"null": type(None), "bool": bool, "int": int, "float": float}
_TAGS: Final = {kind: name for name, kind in _SCALARS.items()}


class DocumentsError(ValueError):
    """Bytes that kubectl could not read either; the text says why, and where."""


def read_documents(content: bytes) -> list[Any]:
    """Return the objects of a manifest, with the items of lists in their place and without empty documents.

    Raises:
        DocumentsError: neither YAML nor JSON, or nothing that JSON can say.
    """
    try:
        documents = list(_documents(_text(content)))
        _check_values(documents)
        return [one for document in documents for one in _items(_as_stored(document))]
    except yaml.YAMLError as error:
        raise DocumentsError(f"it is not YAML: {yaml_problem(error)}") from None
    except RecursionError:
        raise DocumentsError("it cannot be read: it has too many levels") from None
    except DocumentsError:
        raise
    except (ValueError, OverflowError) as error:  # a number of more digits than Python reads
        raise DocumentsError(f"it cannot be read: {error}") from None


def yaml_problem(error: yaml.YAMLError) -> str:
    """Where YAML is wrong, and how: the line and column, both from 1, and what the parser says."""
    match error:
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark() as mark):
            said = ", ".join(filter(None, [error.problem, error.context]))
            return f"line {mark.line + 1}, column {mark.column + 1}: {said}"
        case yaml.reader.ReaderError():
            return f"character {error.position + 1}, U+{error.character:04X}, must not be in it"
        case _:
            return " ".join(str(error).split())


def _text(content: bytes) -> str:
    mark, encoding = next(
        ((mark, encoding) for mark, encoding in _BYTE_ORDER_MARKS.items() if content.startswith(mark)), (b"", "utf-8")
    )
    try:
        return content.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        name = encoding.upper().removesuffix("-LE").removesuffix("-BE")
        place = f"byte {error.start + len(mark) + 1}"
        raise DocumentsError(f"it is not text in {name} ({place}): save it as UTF-8, or give another file") from None


def _documents(text: str) -> Iterator[Any]:
    """Return the value of a text: JSON where it begins like JSON, else YAML."""
    decoder, end = json.JSONDecoder(parse_constant=_no_constant), 0
    while text.startswith("{", start := _end_of_space(text, end)):
        try:
            document, end = decoder.raw_decode(text, start)
        except ValueError:
            break
        yield document
    for document in yaml.load_all(text[end:], Loader=_Loader):
        if document is not None:
            yield document


def _end_of_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return start if found is None else found.end()


def _no_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


def _items(document: Any) -> list[Any]:
    """The document, or the items of a list of objects."""
    if isinstance(document, dict) and (document.get("kind"), document.get("apiVersion")) in _LISTS:
        items = document.get("items")
        if isinstance(items, list):
            for index, item in enumerate(items):
                _check_item(item, f"items[{index}]")
            return items
    return [document]


def _check_item(item: Any, origin: str) -> None:
    """Raise DocumentsError where kubectl, which checks a list itself, finds a null that an API server would take."""
    if not isinstance(item, dict) or item.get("kind") != names.KIND:
        return
    for path in _MAPS:
        found: Any = item
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, dict) and None in found.values():
            key = next(key for key, value in found.items() if value is None)
            raise DocumentsError(f"{origin}.{path}.{key} is null, which kubectl takes in no list: leave it out")


def _check_values(documents: list[Any]) -> None:
    """Raise DocumentsError where JSON cannot say the same, or only in too many words."""
    left = list(documents)
    for _ in range(MAX_VALUES):
        if not left:
            return
        match left.pop():
            case dict() as value:
                left += [*value, *value.values()]
            case list() as value:
                left += value
            case str() as value if any("\ud800" <= character <= "\udfff" for character in value):
                raise DocumentsError(f"it cannot be read: {value!r} has half a character of UTF-16")
            case float() as value if not abs(value) < float("inf"):
                raise DocumentsError(f"it cannot be read: JSON has no value such as {value!r}")
    raise DocumentsError(f"it cannot be read: with its aliases written out it has more than {MAX_VALUES} values")


def _as_stored(value: Any) -> Any:
    """Return the value with numbers as an API server has them: integers of 64 bits, and floating-point numbers."""
    match value:
        case dict():
            return {name: _as_stored(one) for name, one in value.items()}
        case list():
            return [_as_stored(one) for one in value]
        case float() if value.is_integer() and -(2**63) <= (whole := int(Decimal(repr(value)))) < 2**63:
            return whole  # its shortest digits, with zeros behind, which is what goes over the wire
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return float(value)
        case _:
            return value


def resolved(text: str) -> Any:
    """Return what a plain scalar stands for in Go's YAML: null, a boolean, a number, or its own text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        return float(text) if _DECIMAL.fullmatch(text) else text
    if text[0] not in "+-0123456789":
        return text
    plain = text.replace("_", "")
    if len(plain) <= _MOST_DIGITS and _INTEGER.fullmatch(plain):
        number = _integer(plain)
        if -(2**63) <= number < 2**64:
            return number
    if _DECIMAL.fullmatch(plain) and abs(float(plain)) < float("inf"):
        return float(plain)
    return text


def _integer(plain: str) -> int:
    sign, digits = (-1 if plain[0] == "-" else 1), plain.lstrip("+-")
    if len(digits) > 1 and digits[0] == "0":
        base = _BASES.get(digits[1].lower())
        return sign * (int(digits[2:], base) if base else int(digits, 8))
    return sign * int(digits)


class _Loader(yaml.SafeLoader):
    """YAML's syntax by PyYAML, and what it means by `resolved`.

    A key that is there twice is refused: kubectl takes the last one without a word.
    """

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag of a node without one: of plain text, `tag:plain`."""
        if kind is yaml.ScalarNode:
            if not implicit[0]:
                return "tag:yaml.org,2002:str"
            return "tag:merge" if value == "<<" else "tag:plain"
        return "tag:yaml.org,2002:seq" if kind is yaml.SequenceNode else "tag:yaml.org,2002:map"

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """Return the node of the next scalar, which is text where its tag is `!`."""
        is_text = self.peek_event().tag == "!"  # type: ignore[no-untyped-call]
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if is_text:
            node.tag = "tag:yaml.org,2002:str"
        return node

    def scan_to_next_token(self) -> None:
        """Skip spaces, comments and line ends, and tabs where they indent nothing, which PyYAML refuses there."""
        while True:
            super().scan_to_next_token()
            if self.peek() != "\t" or not (self.flow_level or not self.allow_simple_key):
                return
            self.forward()

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return what a node stands for, whatever its tag."""
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if node in self.recursive_objects:
            raise yaml.constructor.ConstructorError(None, None, "it contains itself", node.start_mark)
        if node in self.constructed_objects:
            return self.constructed_objects[node]
        self.recursive_objects[node] = None
        found: Any
        if isinstance(node, yaml.SequenceNode):
            found = [self.construct_object(one) for one in node.value]
        else:
            found = self._mapping(node)
        del self.recursive_objects[node]
        self.constructed_objects[node] = found
        return found

    def _mapping(self, node: yaml.Node) -> dict[str, Any]:
        found: dict[str, Any] = {}
        written = set[str]()
        for key, value in node.value:
            if key.tag in ("tag:merge", "tag:yaml.org,2002:merge"):
                self._merge(value, found)
                continue
            name = self._key(key)
            if name in written:
                raise yaml.constructor.ConstructorError(None, None, f"{name} is there twice", key.start_mark)
            written.add(name)
            found[name] = self.construct_object(value)
        return found

    def _merge(self, node: yaml.Node, into: dict[str, Any]) -> None:
        """Add the pairs of a mapping, or of each of a list, of which the first wins."""
        mappings = node.value[::-1] if isinstance(node, yaml.SequenceNode) else [node]
        for mapping in mappings:
            if not isinstance(mapping, yaml.MappingNode):
                problem = "a merge (<<) takes a mapping, or a list of them"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            into.update(self.construct_object(mapping))

    def _key(self, node: yaml.Node) -> str:
        key = self.construct_object(node)
        match key:
            case str():
                return key
            case bool():
                return "true" if key else "false"
            case int():
                return str(key)
            case float():
                return _key_of_float(key)
            case _:
                raise yaml.constructor.ConstructorError(None, None, "this cannot be a key", node.start_mark)


def _key_of_float(key: float) -> str:
    """Return the text of a number in 32 bits, which is what Go's library makes of it."""
    if not abs(key) < _MOST_OF_32_BITS:
        return ".nan" if math.isnan(key) else ".inf" if key > 0 else "-.inf"
    bits = struct.pack("f", key)
    # The fewest digits that are the same number of 32 bits, and no exponent for what has at most six.
    digits = next(digits for digits in range(1, 10) if struct.pack("f", float(f"{key:.{digits}g}")) == bits)
    return f"{float(f'{key:.{digits}g}'):.{max(digits, 6)}g}"


def _scalar(node: yaml.ScalarNode) -> Any:
    tag, text = node.tag.removeprefix("tag:yaml.org,2002:"), node.value
    if tag == "tag:plain":
        return resolved(text)
    if tag == "binary":
        try:
            return base64.b64decode(re.sub(r"\s", "", text), validate=True).decode()
        except ValueError:  # of base64, or of what it holds
            pass
    elif tag in _SCALARS:
        value = resolved(text)
        if type(value) is _SCALARS[tag]:
            return value
        if tag == "float" and type(value) is int:
            return float(value)
    else:
        return text
    raise yaml.constructor.ConstructorError(None, None, f"this is no !!{tag}", node.start_mark)


class _Dumper(yaml.SafeDumper):
    """Text in quotes wherever a reader would take it for something else."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Return the tag that a reader would give."""
        if kind is yaml.ScalarNode and implicit[0] and not isinstance(found := resolved(value), str):
            return f"tag:yaml.org,2002:{_TAGS[type(found)]}"
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag


def write_document(value: Any) -> str:
    """Return the object as YAML, which every reader of Kubernetes' reads as the same object."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False)
