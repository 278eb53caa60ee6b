"""The reference of the Python language: half a million characters of English included with every Python.

`pydoc_data.topics`, which `help("assert")` displays, contains the sections of the language reference as plain
text. It suffices to see a small model learn, and needs no download. The text depends on the Python version.
"""

import re

from folnet.pretraining.documents import Listed

_RULE = re.compile(r"^\W*$|^[\s=*~^\"'+|.:-]+$")  # an underline, a table's border, a line without words
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]*[^\s*])\1(?![\w*])")
_BULLET = re.compile(r"^(?:[*\u2022-]|\d+\.|\([a-z0-9]\))\s+")
_HYPHEN = re.compile(r"[a-z]-$")
_CODE = re.compile(r"^(?:>>>|\.\.\.)(?:\s|$)|::=")


def language_reference() -> Listed:
    """Returns the topics of the language reference as documents, sorted by name.

    Layout is removed: underlines of headings, borders of tables, bullets and emphasis. Paragraphs wrapped at
    column 72 become one line; code, grammar and tables keep their lines. Quotes are kept, since they mark
    code in the text.

    Topics repeat each other (the one on special names contains the one on attribute access). Only the first
    copy of a repeated paragraph is kept, in the shorter topic, so that held-out text is not also learned.

    Raises:
        ValueError: If this Python does not include it.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise ValueError(
            "pydoc_data: missing in this Python, expected the language reference (use a folder of text)"
        ) from error

    seen: set[str] = set()
    documents = []
    for name, text in sorted(topics.topics.items(), key=lambda item: (len(item[1]), item[0])):
        lines = []
        for line in without_layout(text):
            if len(line) < _SHORT or line not in seen:
                seen.add(line)
                lines.append(line)
        if lines:
            documents.append((f"topic {name}", "\n".join(lines)))
    return Listed(sorted(documents), "the Python language reference")


_SHORT = 40  # characters; shorter lines, such as "For example:", may repeat


def without_layout(text: str) -> list[str]:
    """Returns the paragraphs of a topic, one per line, and its lines of code, grammar and tables."""
    return [line for block in re.split(r"\n[^\S\n]*\n", text) for line in _lines(block)]


def _lines(block: str) -> list[str]:
    """Returns the lines of a block between blank lines: one for a paragraph, several for code or a table."""
    raw = [line.rstrip() for line in block.split("\n")]
    wordy = [line for line in raw if line.strip() and not _RULE.match(line)]
    if not wordy:
        return []
    indents = {len(line) - len(line.lstrip()) for line in wordy}
    if any(_CODE.search(line.lstrip()) for line in wordy) or len(indents) > 2:
        return [" ".join(line.split()) for line in wordy]
    if any(line.lstrip().startswith("|") for line in wordy):  # a table, without the borders of its cells
        return [_plain(line.replace("|", " ")) for line in wordy]
    result: list[str] = []
    for line in wordy:
        item = _BULLET.match(line.lstrip())
        words = _BULLET.sub("", line.lstrip())
        if item or not result:
            result.append(words)
        else:  # "built-" and "in" are parts of one word
            result[-1] += words if _HYPHEN.search(result[-1]) else " " + words
    return [_plain(line) for line in result]


def _plain(line: str) -> str:
    """Removes emphasis and repeated spaces from a line of prose."""
    return " ".join(_EMPHASIS.sub(r"\2", line).split())
