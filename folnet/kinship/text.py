"""Kinship problems as text: stories, questions, answers and proofs.

Templates and names are our own. Names have no gender and sentences no pronouns, so a story conveys nothing
but the relations. A fact (x, r, y) becomes a paraphrase of "y is the r of x".
"""

import dataclasses
import itertools
import re
from typing import NamedTuple

import numpy as np

from folnet.kinship.problems import Problem
from folnet.kinship.rules import KINDS, NUM_EDGES, RELATIONS, Fact

# fmt: off
NAMES = (
    "Alex", "Ali", "Amari", "Andy", "Ariel", "Aubrey", "Avery", "Bailey", "Billie", "Blair", "Blake",
    "Bobbie", "Cameron", "Carey", "Casey", "Charlie", "Cody", "Corey", "Dakota", "Dale", "Dana",
    "Darcy", "Devon", "Eden", "Ellis", "Emerson", "Finley", "Francis", "Frankie", "Glenn", "Harley",
    "Harper", "Hayden", "Jackie", "Jaime", "Jamie", "Jean", "Jesse", "Jody", "Jordan", "Jules", "Kai",
    "Kelly", "Kendall", "Kerry", "Kim", "Lee", "Leslie", "Logan", "Loren", "Lou", "Marley", "Micah",
    "Morgan", "Nicky", "Noel", "Parker", "Pat", "Perry", "Phoenix", "Quinn", "Reese", "Remy", "Riley",
    "Robin", "Rory", "Rowan", "Sam", "Sandy", "Sasha", "Shannon", "Shawn", "Sidney", "Skyler", "Stevie",
    "Tatum", "Taylor", "Terry", "Toby", "Tracy", "Val", "Wren",
)
# fmt: on
"""First names for people of any gender; a story has at most 35 people."""

_ANY = (
    "{y} is the {r} of {x}.",
    "{x}'s {r} is {y}.",
    "{y} is {x}'s {r}.",
    "{x} has {a} {r} called {y}.",
    "{x} introduced {y} as {x}'s {r}.",
)

_OWN = {
    "child": (
        "{x} walked to school with {a} {r}, {y}.",
        "{x} taught {a} {r}, {y}, to ride a bicycle.",
        "{y}, {a} {r} of {x}, learned to swim.",
    ),
    "parent": (
        "{x} grew up in the house of {a} {r}, {y}.",
        "{x} cooked dinner for {a} {r}, {y}.",
        "{y}, the {r} of {x}, came to the school play.",
    ),
    "spouse": (
        "{x} met {y}, now the {r} of {x}, on a train.",
        "{x} bought a house with {a} {r}, {y}.",
        "{y}, the {r} of {x}, likes long walks.",
    ),
    "sibling": (
        "{x} shared a room with {a} {r}, {y}.",
        "{x} built a kite with {a} {r}, {y}.",
        "{y}, {a} {r} of {x}, plays the piano.",
    ),
    "grandchild": (
        "{x} read a book to {a} {r}, {y}.",
        "{x} knitted a scarf for {a} {r}, {y}.",
        "{y}, {a} {r} of {x}, visits on Sundays.",
    ),
    "grandparent": (
        "{x} spent the summer with {a} {r}, {y}.",
        "{x} wrote a letter to {a} {r}, {y}.",
        "{y}, the {r} of {x}, tells old stories.",
    ),
    "parent's sibling": (
        "{x} went fishing with {a} {r}, {y}.",
        "{x} got a present from {a} {r}, {y}.",
        "{y}, {a} {r} of {x}, lives by the sea.",
    ),
}

TEMPLATES = tuple(
    tuple(
        template.replace("{r}", name).replace("{a}", "an" if name[0] in "aeiou" else "a")
        for template in (*_ANY, *_OWN[KINDS[relation // 2]])
    )
    for relation, name in enumerate(RELATIONS[:NUM_EDGES])
)
"""[relation]: sentences with placeholders {x} and {y}."""

NumberedText = tuple[str | int, ...]
"""A text whose names are replaced by the numbers of people: pieces of text, and numbers in between."""

_OTHER = "How is related to? and so the of."  # questions and proofs

WORDS = tuple(
    sorted(
        {
            word
            for text in (*NAMES, *RELATIONS, *itertools.chain(*TEMPLATES), _OTHER)
            for word in re.findall(r"\w+|[^\w\s]", text.format(x="", y="").lower())
        }
    )
)
"""All words of stories, questions, answers and proofs, in lower case: a vocabulary without special tokens, in
which every word is one piece."""


class Sentence(NamedTuple):
    """One fact in words, and its index among the problem's facts."""

    text: str
    fact: int


@dataclasses.dataclass(frozen=True)
class Story:
    """A problem as text: the people's names, all different, and the sentences in story order."""

    problem: Problem
    names: tuple[str, ...]
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """The sentences of the facts: the first text for `WordPieceTokenizer`."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def numbered_text(self) -> NumberedText:
        """The text with people's numbers in place of their names."""
        pieces = re.split(rf"\b({'|'.join(self.names)})\b", self.text)
        return tuple(self.names.index(piece) if place % 2 else piece for place, piece in enumerate(pieces))

    @property
    def question(self) -> str:
        """The question: the second text for `WordPieceTokenizer`."""
        return question(self.problem, self.names)

    @property
    def answer(self) -> str:
        """Name of the relation that answers the question."""
        return self.problem.answer_name

    @property
    def proof(self) -> str:
        """The proof of the answer, one sentence per composition."""
        return explain(self.problem, self.names)


def tell(problem: Problem, generator: np.random.Generator, *, shuffle: bool = True) -> Story:
    """Writes a problem as text; the generator draws names, wording and (with `shuffle`) the facts' order."""
    count = len(problem.facts)
    keys = generator.random(len(NAMES) + 2 * count).tolist()
    wording, order = keys[len(NAMES) : -count], keys[-count:]
    chosen = sorted(range(len(NAMES)), key=keys.__getitem__)[: problem.num_people]
    names = tuple(NAMES[place] for place in chosen)
    places = sorted(range(count), key=order.__getitem__) if shuffle else range(count)
    sentences = []
    for place in places:
        x, relation, y = problem.facts[place]
        options = TEMPLATES[relation]
        template = options[int(wording[place] * len(options))]
        sentences.append(Sentence(template.format(x=names[x], y=names[y]), place))
    return Story(problem, names, tuple(sentences))


def question(problem: Problem, names: tuple[str, ...]) -> str:
    """Returns the question "how is y related to x?" for the query (x, y)."""
    x, y = problem.query
    return f"How is {names[y]} related to {names[x]}?"


def answer_sentence(problem: Problem, names: tuple[str, ...]) -> str:
    """Returns the answer as a sentence."""
    x, y = problem.query
    return f"{_said(Fact(x, problem.answer, y), names)}."


def explain(problem: Problem, names: tuple[str, ...]) -> str:
    """Returns the proof in words, one sentence per composition."""
    return " ".join(
        f"{_said(first, names)} and {_said(second, names)}, so {_said(conclusion, names)}."
        for first, second, conclusion in problem.proof
    )


def _said(fact: Fact, names: tuple[str, ...]) -> str:
    return f"{names[fact.y]} is the {RELATIONS[fact.relation]} of {names[fact.x]}"
