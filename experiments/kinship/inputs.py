"""Kinship problems as models read them: a graph as relations of pairs, the same written out, a story.

Models without relations of pairs read [CLS], the facts in a random order, and [SEP] question [SEP]. Of a
graph a fact is three tokens, x, r and y; people have names drawn from as many as the largest problem needs,
so that none is new in a test. Where facts are spread, all inputs are as long as the longest, with gaps of
random length before each fact that nobody sees (they are masked): a model trained on short chains has then
met all positions and distances that a long chain has.

Axis letters: B batch; T tokens.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from folnet import kinship
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

Arrays = dict[str, np.ndarray]
"""`input_ids` [B, T], `attention_mask` [B, T], `labels` [B]; `relation_ids` [B, T, T, ...] of a graph,
`token_type_ids` [B, T] of what is written out."""


class Room(NamedTuple):
    """What a problem takes.

    Attributes:
        people: at most.
        facts: at most.
    """

    people: int
    facts: int


class Reader(Protocol):
    """Turns problems into arrays."""

    def __call__(self, source: kinship.Kinship, indices: Iterable[int]) -> Arrays:
        """The problems of some numbers; the same for the same."""
        ...


class Graph:
    """People as tokens, facts as relations of pairs; see `folnet.kinship.symbols`."""

    def __init__(self, people: int, *, inverses: bool = False):
        """Takes how many people there is room for, and whether facts also stand at the pair turned round."""
        self.people, self.inverses = people, inverses

    def __call__(self, source: kinship.Kinship, indices: Iterable[int]) -> Arrays:
        """See `Reader`."""
        found = kinship.symbols(source.draw(indices), num_people=self.people)
        relations = found.relation_ids
        if self.inverses:
            turned = np.swapaxes(relations, 1, 2)
            turned = np.where(turned < 0, -1, turned + kinship.RELATION_VOCAB_SIZE)
            relations = np.stack([relations, turned], axis=-1)
        return {
            "input_ids": found.input_ids,
            "attention_mask": found.attention_mask,
            "relation_ids": relations,
            "labels": found.labels,
        }


class Written:
    """What the two forms with tokens in a row have in common: where the facts stand.

    Attributes:
        vocab_size: tokens there are.
        length: of all inputs, T.
    """

    pad: int
    cls: int
    sep: int
    vocab_size: int
    longest_fact: int
    longest_question: int

    def __init__(self, room: Room, names: int, *, spread: bool):
        """Takes what there must be room for, how many names there are, and whether facts are spread."""
        self.names, self.spread = names, spread
        self.length = 1 + room.facts * self.longest_fact + 2 + self.longest_question

    def __call__(self, source: kinship.Kinship, indices: Iterable[int]) -> Arrays:
        """See `Reader`."""
        indices = [int(index) for index in indices]
        ids = np.full((len(indices), self.length), self.pad, np.int32)
        segments, mask = np.zeros_like(ids), np.zeros(ids.shape, bool)
        ids[:, 0], mask[:, 0] = self.cls, True
        labels = np.empty(len(indices), np.int32)
        for row, (index, (label, parts, question)) in enumerate(
            zip(indices, self._write(source, indices), strict=True)
        ):
            labels[row] = label
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

    def _write(
        self, source: kinship.Kinship, indices: Sequence[int]
    ) -> Iterable[tuple[int, list[list[int]], list[int]]]:
        """Of each problem its class, the tokens of each fact in the order told, and those of the question."""
        raise NotImplementedError


class WrittenGraph(Written):
    """A graph's facts as tokens x, r, y, in a random order, and the question as x, y."""

    pad, cls, sep = range(3)
    longest_fact, longest_question = 3, 2

    def __init__(self, room: Room, names: int, *, spread: bool):
        """See `Written`."""
        super().__init__(room, names, spread=spread)
        self.vocab_size = 3 + kinship.NUM_EDGES + names

    def _write(self, source, indices):
        first_name = 3 + kinship.NUM_EDGES
        for index in indices:
            problem = source[index]
            generator = np.random.default_rng((source.seed, index, 2))
            name = (first_name + generator.permutation(self.names)).tolist()
            facts = [
                [name[fact.x], 3 + fact.relation, name[fact.y]]
                for fact in (problem.facts[place] for place in generator.permutation(len(problem.facts)))
            ]
            yield problem.label, facts, [name[person] for person in problem.query]


class Text(Written):
    """Stories as word pieces, sentence by sentence; each word that stories are made of is a piece."""

    def __init__(self, room: Room, names: int, *, spread: bool):
        """See `Written`."""
        self.tokenizer = tokenizer()
        self.pad, self.cls, self.sep = (
            self.tokenizer.pad_id,
            self.tokenizer.cls_id,
            self.tokenizer.sep_id,
        )
        self.vocab_size = self.tokenizer.vocab_size
        self.longest_fact, self.longest_question = longest()
        super().__init__(room, names, spread=spread)

    def _write(self, source, indices):
        for index in indices:
            story = source.story(index)
            *facts, question = self.tokenizer.ids(
                [*(sentence.text for sentence in story.sentences), story.question]
            )
            yield story.problem.label, facts, question


@functools.cache
def tokenizer() -> WordPieceTokenizer:
    """Of stories."""
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
