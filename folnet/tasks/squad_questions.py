"""Questions and answers of SQuAD 2.0."""

from typing import NamedTuple


class Gold(NamedTuple):
    """An answer given by a person."""

    text: str
    start: int
    """Position of its first character in the context."""


class Question(NamedTuple):
    """A question about a paragraph, with its answers."""

    index: str
    """Id of the question in the data set."""
    question: str
    context: str
    golds: tuple[Gold, ...]
    """Empty if the paragraph has no answer; several, possibly equal, in the validation split."""
    title: str = ""
    """Title of the article."""
    labelled: bool = True
    """Whether it is known which answers the paragraph has."""

    @property
    def answerable(self) -> bool:
        """Whether the paragraph contains an answer."""
        return bool(self.golds)
