"""Documents to learn from, and which of them are held out.

A source is a sequence of documents with random access, so several processes can share the work, each with its
own range. A line of a document is at most a paragraph, so sentences never span lines. Sources that read
wrapped text unwrap it.
"""

import abc
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload


class Document(NamedTuple):
    """A text, with a name for error messages."""

    name: str
    text: str


class Documents(Sequence[Document], abc.ABC):
    """A source: documents with random access that can be sent to another process."""

    name: str
    """Name of the source in records and error messages."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def _at(self, index: int) -> Document:
        """Returns the document at a valid index; raises ValueError with its place if it is damaged."""

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        """Returns a document or a list of them; raises IndexError if out of range, ValueError if damaged."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index: got {index}, expected 0 to {len(self) - 1}")
        return self._at(place)


class Listed(Documents):
    """A source of documents held in memory."""

    def __init__(self, documents: Iterable[tuple[str, str]], name: str = "documents in memory"):
        """Takes pairs of name and text."""
        self.name = name
        self._documents = [Document(*document) for document in documents]

    def __len__(self) -> int:
        return len(self._documents)

    def _at(self, index: int) -> Document:
        return self._documents[index]


def is_held_out(text: str, fraction: float, *, salt: str = "") -> bool:
    """Returns whether a document belongs to the fraction (0 to 1) that is held out from training.

    This depends only on its text and the salt: not on its position, other documents or the machine. Copies of
    a text, even if wrapped differently, are on the same side.
    """
    words = " ".join(text.split()).encode("utf-8", "surrogatepass")
    person = hashlib.blake2b(salt.encode(), digest_size=16).digest()
    digest = hashlib.blake2b(words, digest_size=8, person=person).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


_BLANK = re.compile(r"\n[^\S\n]*\n\s*")


def unwrap(text: str) -> str:
    """Joins the lines of each paragraph of wrapped text; paragraphs end at blank lines."""
    paragraphs = _BLANK.split(text.replace("\r\n", "\n"))
    return "\n".join(joined for paragraph in paragraphs if (joined := " ".join(paragraph.split())))


# A sentence ends with a mark, possibly followed by closing quotes or brackets, before a space and the
# beginning of another sentence.
_END = re.compile(r"""[.!?…]+["'”’)\]]*(?=\s+["'“‘(\[]*[A-Z0-9À-ÖØ-Þ])|[。！？](?=\S)""")
_ABBREVIATION = re.compile(
    "mr|mrs|ms|dr|prof|rev|hon|st|sr|jr|gen|col|capt|lt|sgt|gov|sen|rep|pres|vs|cf|ca|no|nos|vol|vols|ch|pp|p|fig|"
    "figs|eq|sec|ed|eds|e\\.g|i\\.e|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|dept|est|approx",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Splits a document into sentences: at line ends, and after `.`, `!` and `?` before a capital.

    It does not split after initials ("J. Chen") and common English abbreviations. Like BERT's, this is a
    heuristic; a missed end merges two sentences into a longer segment, which does no harm.
    """
    found = []
    for line in text.splitlines():
        start = 0
        for match in _END.finditer(line):
            before = line[start : match.start()].rsplit(None, 1)[-1:]
            word = before[0].lstrip("\"'“‘([") if before else ""
            initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
            if match.group() == "." and (initial or _ABBREVIATION.fullmatch(word)):
                continue
            found.append(line[start : match.end()])
            start = match.end()
        found.append(line[start:])
    return [sentence for part in found if (sentence := part.strip())]
