"""Each command line for SGLang, of the catalogue and of the examples, is one that SGLang's own parser takes.

Those of the other engines are in `tests/cli/test_models.py`: their parsers are where every test is.
"""

import pytest
from support.command_lines import command_lines, expected, parsed
from support.replicas import ON_CPU


@pytest.mark.real
def test_each_command_line_for_sglang_is_one_that_sglang_takes() -> None:
    lines = command_lines("sglang")
    on_cpu = [*lines[0], *ON_CPU["sglang"]["args"], "--constrained-json-disable-any-whitespace"]
    assert parsed("sglang", [*lines, on_cpu]) == [*expected("sglang"), "/model rm"]
