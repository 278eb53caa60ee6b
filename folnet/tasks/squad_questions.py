"""A question of SQuAD 2.0."""

from typing import NamedTuple


class Gold(NamedTuple):
    """What a person answered."""

    text: str
    start: int
    """The character of the context at which it begins."""


class Question(NamedTuple):
    """A question about a paragraph."""

    index: str
    """Its id."""
    question: str
    context: str
    golds: tuple[Gold, ...]
    """None if the paragraph has no answer; several in the validation split, and some of them equal."""
    title: str = ""
    """Of the article."""

    @property
    def answerable(self) -> bool:
        """Whether the paragraph has an answer."""
        return bool(self.golds)
