"""Questions in text files, with questions and answers on alternate lines: the format of the published v1.0.

A file is memory-mapped, checked once, and read at random. Apart from the mapping, two bytes per question stay
in
memory: 250 MB for the 112 million questions of v1.0's training splits.
"""

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from logic_zoo.writing import whole
from tp_transformer.mathematics.questions import Question, Questions
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION

_BLOCK = 64  # questions between two stored positions

_ALLOWED = np.zeros(256, bool)
_ALLOWED[np.frombuffer((CHARACTERS + "\n").encode("ascii"), np.uint8)] = True


def _damaged(path: Path, line: int, problem: str) -> ValueError:
    return ValueError(f"{path}, line {line}: {problem}")


def _line_of(text: np.ndarray, position: int) -> int:
    """Returns the number, from 1, of the line that contains the byte at a position."""
    return int(np.count_nonzero(text[:position] == ord("\n"))) + 1


def _check(path: Path, text: np.ndarray) -> UInt8[np.ndarray, "N 2"]:
    """Returns the lengths of questions and answers; raises ValueError with the line of the first problem."""
    if not text.size:
        raise _damaged(path, 1, "got an empty file, expected questions and answers on alternate lines")
    if not (known := _ALLOWED[text]).all():
        position = int(np.argmin(known))
        byte = bytes(text[position : position + 1])
        shown = "a carriage return (line ends must be \\n)" if byte == b"\r" else repr(byte)[1:]
        raise _damaged(path, _line_of(text, position), f"got {shown}, expected the dataset's characters")
    if text[-1] != ord("\n"):
        raise _damaged(
            path, _line_of(text, text.size), "got no line end, expected one; the file may be truncated"
        )
    ends = np.flatnonzero(text == ord("\n"))
    lengths = np.diff(ends, prepend=-1) - 1
    if lengths.size % 2:
        problem = f"got a question without an answer ({lengths.size} lines), expected an even number of lines"
        raise _damaged(path, lengths.size, problem)
    for name, first, limit in (("question", 0, MAX_QUESTION), ("answer", 1, MAX_ANSWER)):
        of_kind = lengths[first::2]
        if (wrong := (of_kind < 1) | (of_kind > limit)).any():
            row = int(np.argmax(wrong))
            problem = f"got {of_kind[row]} characters in the {name}, expected 1 to {limit}"
            raise _damaged(path, 2 * row + first + 1, problem)
    return lengths.reshape(-1, 2).astype(np.uint8)


class TextQuestions(Questions):
    """Questions of one text file."""

    def __init__(self, path: str | Path):
        """Maps and checks a file.

        Raises:
            ValueError: the file is empty or damaged; the message names the file and the line.
            FileNotFoundError: the file does not exist.
        """
        self.path = Path(path)
        self._map()
        self._lengths = _check(self.path, np.frombuffer(self._text, np.uint8))
        sizes = self._lengths.sum(1, dtype=np.int64) + 2  # including both line ends
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])[::_BLOCK]

    def _map(self) -> None:
        with open(self.path, "rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            # An empty file cannot be mapped; `_check` raises for it.
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._size else b""

    def __len__(self) -> int:
        """Returns the number of questions, N."""
        return len(self._lengths)

    def _at(self, index: int) -> Question:
        block = index // _BLOCK
        before = self._lengths[block * _BLOCK : index]
        start = int(self._starts[block]) + int(before.sum()) + 2 * len(before)
        question, answer = map(int, self._lengths[index])
        text = self._text[start : start + question + answer + 1].decode("ascii")
        return Question(text[:question], text[question + 1 :])

    def __iter__(self) -> Iterator[Question]:
        """Iterates over all questions in order, without computing each one's position."""
        start = 0
        for question, answer in self._lengths.tolist():
            text = self._text[start : start + question + answer + 1].decode("ascii")
            yield Question(text[:question], text[question + 1 :])
            start += question + answer + 2

    def lengths(self) -> UInt8[np.ndarray, "N 2"]:
        """Returns the numbers of characters of all questions and answers."""
        return self._lengths

    def __getstate__(self):
        """Drops the mapping when pickled; the other process maps the file itself."""
        return self.__dict__ | {"_text": None}

    def __setstate__(self, state):
        """Maps the file again without checking it; raises ValueError if its size has changed."""
        self.__dict__.update(state)
        size = self._size
        self._map()
        if self._size != size:
            raise ValueError(f"{self.path}: got {self._size} bytes, expected {size} as when it was opened")


def write_questions(path: str | Path, questions: Iterable[Question]) -> None:
    """Writes a text file for `TextQuestions` atomically; its folder must exist."""
    text = "".join(f"{question}\n{answer}\n" for question, answer in questions)
    with whole(Path(path)) as temporary:
        temporary.write_bytes(text.encode("ascii"))
