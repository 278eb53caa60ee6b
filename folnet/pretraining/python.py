"""The reference of the Python language: half a million characters of English that every Python brings along.

`pydoc_data.topics` is what `help("assert")` shows: the sections of the language reference as plain text. It
is enough to see a small model learn, and needs no download. The text depends on the version of Python.
"""

import re

from folnet.pretraining.documents import Listed

_RULE = re.compile(r"^\W*$|^[\s=*~^\"'+|.:-]+$")  # an underline, a table's border, a line without a word
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(?=[^\s*])([^*\n]*[^\s*])\1(?![\w*])")
_BULLET = re.compile(r"^(?:[*\u2022-]|\d+\.|\([a-z0-9]\))\s+")
_HYPHEN = re.compile(r"[a-z]-$")
_CODE = re.compile(r"^(?:>>>|\.\.\.)(?:\s|$)|::=")


def language_reference() -> Listed:
    """The topics of the language reference as documents, by their names.

    What would teach a model nothing but layout is taken away: underlines of headings, borders of tables,
    bullets, the stars of emphasis; paragraphs wrapped at column 72 become one line. Code, grammar and tables
    keep their lines. Quotes stay: they mark code in the text.

    Topics repeat each other (one on special names has the one on attribute access whole). Of paragraphs that
    are there more than once only the first is kept, in the shorter topics before the longer ones, so that
    what is held out is not also learned.

    Raises:
        ValueError: this Python came without it.
    """
    try:
        from pydoc_data import topics
    except ImportError as error:
        raise ValueError(
            "this Python came without pydoc_data, the language reference: give a folder of text instead"
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


_SHORT = 40  # characters; a shorter line, "For example:", may come again


def without_layout(text: str) -> list[str]:
    """The paragraphs of a topic, a line each, and its lines of code, grammar and tables."""
    return [line for block in re.split(r"\n[^\S\n]*\n", text) for line in _lines(block)]


def _lines(block: str) -> list[str]:
    """The lines of a block between blank lines: one, if it is a paragraph; its own, if it is code or a
    table.
    """
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
        else:  # "built-" and "in" are one word
            result[-1] += words if _HYPHEN.search(result[-1]) else " " + words
    return [_plain(line) for line in result]


def _plain(line: str) -> str:
    """A line of prose without stars of emphasis and runs of spaces."""
    return " ".join(_EMPHASIS.sub(r"\2", line).split())
