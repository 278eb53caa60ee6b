"""Documents to learn from, and which of them are held out.

A source is a sequence of documents; any of them can be read at once, so that several processes can share the
work, each with its own range. A line of a document is a paragraph or less: a sentence never goes on in the
next line. Sources that read text wrapped at some column undo that.
"""

import abc
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, overload


class Document(NamedTuple):
    """A text, with a name for errors."""

    name: str
    text: str


class Documents(Sequence[Document], abc.ABC):
    """A source: documents that can be read in any order, and sent to another process."""

    name: str
    """What the source is called in records and errors."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of documents."""

    @abc.abstractmethod
    def _at(self, index: int) -> Document:
        """The document at an index within range; raises ValueError, with the place, if it is damaged."""

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        """A document, or a list of some; raises IndexError if there is none, ValueError if it is damaged."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"index must be in 0 .. {len(self) - 1}, got {index}")
        return self._at(place)


class Listed(Documents):
    """Documents in memory."""

    def __init__(self, documents: Iterable[tuple[str, str]], name: str = "documents in memory"):
        """Takes pairs of a name and a text."""
        self.name = name
        self._documents = [Document(*document) for document in documents]

    def __len__(self) -> int:
        return len(self._documents)

    def _at(self, index: int) -> Document:
        return self._documents[index]


def is_held_out(text: str, fraction: float, *, salt: str = "") -> bool:
    """Whether a document is one of the fraction, 0 to 1, kept from training: by its text and a salt alone.

    So the answer does not depend on where it stands, on the other documents, or on the machine; and two
    copies of a text, be they wrapped differently, are never on both sides.
    """
    words = " ".join(text.split()).encode("utf-8", "surrogatepass")
    person = hashlib.blake2b(salt.encode(), digest_size=16).digest()
    digest = hashlib.blake2b(words, digest_size=8, person=person).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


_BLANK = re.compile(r"\n[^\S\n]*\n\s*")


def unwrap(text: str) -> str:
    """Puts each paragraph of wrapped text on one line; paragraphs end at blank lines."""
    paragraphs = _BLANK.split(text.replace("\r\n", "\n"))
    return "\n".join(joined for paragraph in paragraphs if (joined := " ".join(paragraph.split())))


# A sentence ends in a mark, perhaps with closing quotes or brackets, before a space and what can begin
# another.
_END = re.compile(r"""[.!?…]+["'”’)\]]*(?=\s+["'“‘(\[]*[A-Z0-9À-ÖØ-Þ])|[。！？](?=\S)""")
_ABBREVIATION = re.compile(
    "mr|mrs|ms|dr|prof|rev|hon|st|sr|jr|gen|col|capt|lt|sgt|gov|sen|rep|pres|vs|cf|ca|no|nos|vol|vols|ch|pp|p|fig|"
    "figs|eq|sec|ed|eds|e\\.g|i\\.e|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|dept|est|approx",
    re.IGNORECASE,
)


def sentences(text: str) -> list[str]:
    """Cuts a document into sentences: at the ends of lines, and behind `.`, `!` and `?` before a capital.

    Not behind an initial ("J. Chen") or the usual English abbreviations. This is a rule of thumb, as BERT's
    was; an end that it misses makes one longer segment of two sentences, which does no harm.
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
