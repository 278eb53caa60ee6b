"""Kinship problems as models read them: a graph as relations of pairs, the same written out, a story.

Models without relations of pairs read [CLS], the facts in a random order, and [SEP] question [SEP]. Of a
graph a fact is three tokens, x, r and y; people have names drawn from as many as the largest problem needs,
so that none is new in a test. Where facts are spread, all inputs are as long as the longest, with masked gaps
of random length before each fact: a model trained on short chains has then met all positions and distances of
a long chain.

Axis letters: B batch; T tokens.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from folnet import kinship
from folnet.tokenization import CLS, PAD, SEP, SPECIAL_TOKENS, WordPieceTokenizer

Arrays = dict[str, np.ndarray]
"""`input_ids` [B, T], `attention_mask` [B, T], `labels` [B]; `relation_ids` [B, T, T, ...] of a graph,
`token_type_ids` [B, T] of what is written out."""

Reader = Callable[[kinship.Kinship, Iterable[int]], Arrays]
"""Turns the problems of some numbers into arrays; the same for the same numbers."""


class Room(NamedTuple):
    """The most people and facts that a problem has."""

    people: int
    facts: int


@dataclasses.dataclass(frozen=True)
class Graph:
    """A `Reader`: people as tokens, facts as relations of pairs (`folnet.kinship.symbols`).

    Attributes:
        people: how many there is room for.
        inverses: whether facts also stand at the pair turned round.
    """

    people: int
    inverses: bool = False

    def __call__(self, source: kinship.Kinship, indices: Iterable[int]) -> Arrays:
        """See `Reader`."""
        found = kinship.symbols(source.draw(indices), num_people=self.people)
        relations = found.relation_ids
        if self.inverses:
            turned = np.swapaxes(relations, 1, 2)
            turned = np.where(turned < 0, -1, turned + kinship.RELATION_VOCAB_SIZE)
            relations = np.stack([relations, turned], axis=-1)
        kept = ("input_ids", "attention_mask", "labels")
        return {name: getattr(found, name) for name in kept} | {"relation_ids": relations}


class Written:
    """What the two `Reader`s with tokens in a row have in common: where the facts stand.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        length: of all inputs, T.
    """

    pad: int
    cls: int
    sep: int

    def __init__(self, room: Room, names: int, *, spread: bool):
        """Takes the size of the largest problem, how many names there are, and whether facts are spread."""
        self.names, self.spread = names, spread
        self.vocab_size, fact, question = self._sizes()
        self.length = 1 + room.facts * fact + 2 + question

    def __call__(self, source: kinship.Kinship, indices: Iterable[int]) -> Arrays:
        """See `Reader`."""
        indices = [int(index) for index in indices]
        ids = np.full((len(indices), self.length), self.pad, np.int32)
        segments, mask = np.zeros_like(ids), np.zeros(ids.shape, bool)
        ids[:, 0], mask[:, 0] = self.cls, True
        labels = np.empty(len(indices), np.int32)
        for row, (index, written) in enumerate(zip(indices, self._write(source, indices), strict=True)):
            labels[row], parts, question = written
            pieces = [*parts, [self.sep, *question, self.sep]]
            free = self.length - 1 - sum(map(len, pieces))
            gaps = [0] * len(pieces)
            if self.spread:  # cuts of the free tokens, one before each part, the rest after all
                generator = np.random.default_rng((source.seed, index, 3))
                gaps = np.diff(np.sort(generator.integers(0, free + 1, len(pieces))), prepend=0).tolist()
            place = 1
            for gap, piece in zip(gaps, pieces, strict=True):
                place += gap
                ids[row, place : place + len(piece)] = piece
                mask[row, place : place + len(piece)] = True
                place += len(piece)
            segments[row, place - len(question) - 1 : place] = 1
        return {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask, "labels": labels}

    def _sizes(self) -> tuple[int, int, int]:
        """Tokens in the vocabulary, in the longest fact, in the longest question."""
        raise NotImplementedError

    def _write(
        self, source: kinship.Kinship, indices: Sequence[int]
    ) -> Iterable[tuple[int, list[list[int]], list[int]]]:
        """Of each problem its class, the tokens of each fact in the order told, and those of the question."""
        raise NotImplementedError


class WrittenGraph(Written):
    """A graph's facts as tokens x, r, y, in a random order, and the question as x, y."""

    pad, cls, sep = range(3)

    def _sizes(self):
        return 3 + kinship.NUM_EDGES + self.names, 3, 2

    def _write(self, source, indices):
        first_name = 3 + kinship.NUM_EDGES
        for index in indices:
            problem = source[index]
            generator = np.random.default_rng((source.seed, index, 2))
            name = (first_name + generator.permutation(self.names)).tolist()
            told = (problem.facts[place] for place in generator.permutation(len(problem.facts)))
            facts = [[name[fact.x], 3 + fact.relation, name[fact.y]] for fact in told]
            yield problem.label, facts, [name[person] for person in problem.query]


class Text(Written):
    """Stories as word pieces, sentence by sentence; each word that stories are made of is a piece."""

    pad, cls, sep = map(SPECIAL_TOKENS.index, (PAD, CLS, SEP))

    def _sizes(self):
        return tokenizer().vocab_size, *longest()

    def _write(self, source, indices):
        for index in indices:
            story = source.story(index)
            *facts, question = tokenizer().ids([*(part.text for part in story.sentences), story.question])
            yield story.problem.label, facts, question


@functools.cache
def tokenizer() -> WordPieceTokenizer:
    """The tokenizer of stories."""
    return WordPieceTokenizer([*SPECIAL_TOKENS, *kinship.WORDS])


@functools.cache
def longest() -> tuple[int, int]:
    """Tokens of the longest sentence, and of a question."""
    name = kinship.NAMES[0]
    told = [template.format(x=name, y=name) for templates in kinship.TEMPLATES for template in templates]
    problem = kinship.Kinship()[0]
    asked = kinship.question(problem, kinship.NAMES[: problem.num_people])
    *facts, question = map(len, tokenizer().ids([*told, asked]))
    return max(facts), question
