"""What mkdocs.yml does not say itself: pages from outside docs/, diagrams without another server, and what is copied.

A page of the site may link any file of the repository by its path, as it does on a checkout. What lies outside docs/
comes into the site under its own path there, and links are rewritten from the one to the other.
"""

import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
OUTSIDE = ("*.md", "examples/*/README.md")
MERMAID = ROOT / ".rewardpool" / "mermaid" / "mermaid.min.js"
"""Fetched by `make docs`. Where it is missing a diagram is shown as its text."""
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(<div class=\"[^\"]*highlight[^\"]*\">.*?)<code>(.*?)</code>", re.DOTALL)
TAG = re.compile(r"<[^>]+>")
PIPE_IN_CODE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
"""GitHub takes the backslash away, Python's Markdown does not."""
LINK = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> None:
    """Have diagrams drawn, where the program that draws them is here."""
    if MERMAID.exists():
        fence = {"name": "mermaid", "class": "mermaid", "format": _fence}
        config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [fence]}


def _fence(source: str, language: str, class_name: str, *args: Any, **kwargs: Any) -> str:
    """As pymdownx's own, which is not typed."""
    from pymdownx.superfences import fence_code_format

    return str(fence_code_format(source, language, class_name, *args, **kwargs))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages from outside docs/, and what any page links there."""
    waiting = [path.relative_to(ROOT).as_posix() for pattern in OUTSIDE for path in sorted(ROOT.glob(pattern))]
    pages = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    waiting += [target for page in pages for target in _targets(page) if not _inside(target)]
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in added or _inside(path) or not (ROOT / path).is_file():
            continue  # what is not there is said where the link is
        added.add(path)
        files.append(File.generated(config, _site_uri(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            waiting += _targets(path)
    if MERMAID.exists():
        files.append(File.generated(config, "mermaid.min.js", abs_src_path=str(MERMAID)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page from the repository's paths to the site's."""
    uri = page.file.src_uri
    here = Path(str(page.file.abs_src_path)).relative_to(ROOT).as_posix()

    def rewritten(link: re.Match[str]) -> str:
        target = _site_uri(_resolved(here, link[2]))
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(uri) or '.')}{link[3] or ''}"

    text = "".join(part if code else LINK.sub(rewritten, part) for part, code in _split(markdown))
    return PIPE_IN_CODE.sub(lambda code: f"<code>{html.escape(code[1]).replace(chr(92) + '|', '&#124;')}</code>", text)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the copy button copy the commands of a block that shows their output too."""

    def marked(block: re.Match[str]) -> str:
        text = html.unescape(TAG.sub("", block[2]))
        if not text.startswith("$ "):
            return block[0]
        copied = html.escape(commands(text)).replace("\n", "&#10;")
        return f'{block[1]}<code data-copy="{copied}">{block[2]}</code>'

    return BLOCK.sub(marked, content)


def commands(text: str) -> str:
    """Return the commands of a block of shell, without `$ ` and without what they print."""
    found: list[str] = []
    goes_on, here = False, ""
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif goes_on or here:
            found.append(line)
        else:
            continue
        if here:
            here = "" if line == here else here
            continue
        goes_on = line.endswith("\\")
        document = re.search(r"<<'(\w+)'", line)
        here = document[1] if document else ""
    return "\n".join(found)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Load the program that draws diagrams where there is one to draw."""
    if 'class="mermaid"' not in output:
        return output
    source = posixpath.relpath("mermaid.min.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("</head>", f'<script src="{source}"></script></head>', 1)


def _split(markdown: str) -> Iterator[tuple[str, bool]]:
    """The page in parts, each with whether it is code."""
    end = 0
    for code in CODE.finditer(markdown):
        yield markdown[end : code.start()], False
        yield code[0], True
        end = code.end()
    yield markdown[end:], False


def _targets(page: str) -> list[str]:
    """What a page of the repository links, by path from the root."""
    text = "".join(part for part, code in _split((ROOT / page).read_text()) if not code)
    return [_resolved(page, link[2]) for link in LINK.finditer(text)]


def _resolved(page: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _inside(path: str) -> bool:
    return path.startswith(f"{DOCS}/")


def _site_uri(path: str) -> str:
    """Where a file of the repository is in the site. README.md would be another index."""
    return "readme.md" if path == "README.md" else path.removeprefix(f"{DOCS}/")
