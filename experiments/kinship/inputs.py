"""Kinship problems as model inputs: a graph as relations between pairs, the graph as tokens, or a story.

Models without relations between pairs read [CLS], the facts in random order, and [SEP] question [SEP]. In a
graph, a fact is three tokens, x, r and y; names are drawn from a set just large enough for the largest
problem, so that tests have no new ones. If facts are spread, all inputs have the length of the longest, with
masked gaps of random length before each fact, so that a model trained on short chains has seen all positions
and distances of long chains.

Axis letters: B batch; T tokens.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from folnet import kinship
from folnet.kinship.rules import Pair
from folnet.tasks.clutrr_graphs import Published
from folnet.tasks.clutrr_joined import Joined
from folnet.tokenization import WordPieceTokenizer
from folnet.wordpieces import CLS, PAD, SEP, SPECIAL_TOKENS

Arrays = dict[str, np.ndarray]
"""`input_ids` [B, T], `attention_mask` [B, T] and `labels` [B]; also `relation_ids` [B, T, T, ...] for graphs
or `token_type_ids` [B, T] for facts as tokens."""

Source = kinship.Kinship | Published | Joined
"""Problems accessed by index: generated without end, published, or published and joined."""

Reader = Callable[[Source, Iterable[int]], Arrays]
"""Returns the arrays of the problems with the given numbers; deterministic."""


class Room(NamedTuple):
    """The maximum numbers of people and facts in a problem."""

    people: int
    facts: int


@dataclasses.dataclass(frozen=True)
class Graph:
    """A `Reader` with people as tokens and facts as relations between pairs (`folnet.kinship.symbols`).

    Attributes:
        people: maximum number of people in a problem.
        inverses: whether each fact is also given for the reversed pair, as its own relation.
        pairs: whether the model answers for pairs: there are also the question's `query` [B, 2] and the
            `pairs` [B, T, T] of `folnet.kinship.pair_labels`.
        marked: whether tokens and a relation mark the question.
        names: if positive, people have different tokens, drawn for each problem from so many.
        within: the limit of the labels of pairs, in facts.
        rules: what two relations compose to, for the labels of pairs.
        selves: whether a person with themselves has a label; see `folnet.kinship.pair_labels`.
    """

    people: int
    inverses: bool = False
    pairs: bool = False
    marked: bool = True
    names: int = 0
    within: int | None = None
    rules: Mapping[Pair, int] = dataclasses.field(default_factory=lambda: kinship.COMPOSITIONS)
    selves: bool = False

    def __call__(self, source: Source, indices: Iterable[int]) -> Arrays:
        """Returns arrays with the facts in `relation_ids`."""
        indices = [int(index) for index in indices]
        problems = source.draw(indices)
        found = kinship.symbols(problems, num_people=self.people, marked=self.marked)
        relations = found.relation_ids
        if self.inverses:
            turned = np.swapaxes(relations, 1, 2)
            turned = np.where(turned < 0, -1, turned + kinship.RELATION_VOCAB_SIZE)
            relations = np.stack([relations, turned], axis=-1)
        kept = ("input_ids", "attention_mask", "labels", *(("query",) if self.pairs else ()))
        arrays = {name: getattr(found, name) for name in kept} | {"relation_ids": relations}
        if self.pairs:
            how: Any = {"within": self.within, "rules": self.rules, "selves": self.selves}
            arrays["pairs"] = kinship.pair_labels(problems, num_people=self.people, **how)
        for row, index in enumerate(indices if self.names else ()):
            drawn = named(source, index, self.names)[: problems[row].num_people]
            arrays["input_ids"][row, 1 : 1 + len(drawn)] = kinship.VOCAB_SIZE + drawn
        return arrays


@dataclasses.dataclass(frozen=True)
class Listed:
    """A `Reader` for pairs without relations: [CLS] and the people as tokens, then the facts as tokens.

    Attributes:
        room: the largest numbers of people and facts.
        marked: whether the segments of the question's people tell them from the others.
        spread: whether there are gaps of random length between facts.
        within: as in `Graph`.
        rules: as in `Graph`.
        selves: as in `Graph`.
    """

    room: Room
    marked: bool
    spread: bool
    within: int | None = None
    rules: Mapping[Pair, int] = dataclasses.field(default_factory=lambda: kinship.COMPOSITIONS)
    selves: bool = False

    @property
    def vocab_size(self) -> int:
        """Number of tokens in the vocabulary: those of `Graph`, names, relations."""
        return kinship.VOCAB_SIZE + self.room.people + kinship.NUM_EDGES

    @property
    def length(self) -> int:
        """Length of all inputs, T."""
        return 1 + self.room.people + 3 * self.room.facts

    def __call__(self, source: Source, indices: Iterable[int]) -> Arrays:
        """Returns arrays whose first 1 + people tokens are those of a `Graph`, with `token_type_ids`."""
        indices = [int(index) for index in indices]
        people, facts = self.room
        labels: Any = {"within": self.within, "rules": self.rules, "selves": self.selves}
        graph = Graph(people, pairs=True, marked=False, names=people, **labels)
        arrays = graph(source, indices)
        del arrays["relation_ids"]
        more = ((0, 0), (0, 3 * facts))
        ids, mask = (np.pad(arrays[name], more) for name in ("input_ids", "attention_mask"))
        segments = np.where(np.arange(self.length) <= people, 1, 0) * np.ones_like(ids)
        if self.marked:
            rows = np.arange(len(indices))
            for place in range(2):
                segments[rows, arrays["query"][:, place]] = 2 + place
        for row, index in enumerate(indices):
            problem, generator = source[index], np.random.default_rng((source.seed, index, 5))
            shuffled = [problem.facts[place] for place in generator.permutation(len(problem.facts))]
            pieces = [
                [ids[row, 1 + x], kinship.VOCAB_SIZE + people + relation, ids[row, 1 + y]]
                for x, relation, y in shuffled
            ]
            free = 3 * (facts - len(pieces)) if self.spread else 0
            for place, piece in places(generator, 1 + people, pieces, free):
                ids[row, place : place + 3], mask[row, place : place + 3] = piece, True
        return arrays | {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def named(source: Source, index: int, count: int) -> np.ndarray:
    """Returns the numbers below `count` that stand for the people of a problem, in random order."""
    return np.random.default_rng((source.seed, index, 4)).permutation(count)


def places(
    generator: np.random.Generator, start: int, pieces: Sequence[list[int]], free: int
) -> Iterator[tuple[int, list[int]]]:
    """Yields the position of each piece after `start`, with gaps that take up to `free` tokens in all.

    The free tokens are split at random: a gap before each piece, the rest at the end.
    """
    gaps = np.diff(np.sort(generator.integers(0, free + 1, len(pieces))), prepend=0)
    for gap, piece in zip(gaps.tolist(), pieces, strict=True):
        yield start + gap, piece
        start += gap + len(piece)


class Written:
    """Base class of the two `Reader`s with sequences of tokens; it determines the positions of facts.

    Attributes:
        vocab_size: number of tokens in the vocabulary.
        length: length of all inputs, T.
    """

    pad: int
    cls: int
    sep: int

    def __init__(self, room: Room, names: int, *, spread: bool):
        """Computes the lengths from the size of the largest problem.

        Args:
            room: maximum numbers of people and facts in a problem.
            names: number of different names.
            spread: whether there are gaps of random length between facts.
        """
        self.names, self.spread = names, spread
        self.vocab_size, fact, question = self._sizes()
        self.length = 1 + room.facts * fact + 2 + question

    def __call__(self, source: Source, indices: Iterable[int]) -> Arrays:
        """Returns arrays with the facts as tokens."""
        indices = [int(index) for index in indices]
        ids = np.full((len(indices), self.length), self.pad, np.int32)
        segments, mask = np.zeros_like(ids), np.zeros(ids.shape, bool)
        ids[:, 0], mask[:, 0] = self.cls, True
        labels = np.empty(len(indices), np.int32)
        for row, (index, written) in enumerate(zip(indices, self._write(source, indices), strict=True)):
            labels[row], parts, question = written
            pieces = [*parts, [self.sep, *question, self.sep]]
            free = self.length - 1 - sum(map(len, pieces)) if self.spread else 0
            end = 0
            for place, piece in places(np.random.default_rng((source.seed, index, 3)), 1, pieces, free):
                end = place + len(piece)
                ids[row, place:end] = piece
                mask[row, place:end] = True
            segments[row, end - len(question) - 1 : end] = 1
        return {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask, "labels": labels}

    def _sizes(self) -> tuple[int, int, int]:
        """Returns the number of tokens in the vocabulary, in the longest fact and in the longest question."""
        raise NotImplementedError

    def _write(
        self, source: Source, indices: Sequence[int]
    ) -> Iterable[tuple[int, list[list[int]], list[int]]]:
        """Yields the class, the tokens of each fact in their order, and the question's, for each problem."""
        raise NotImplementedError


class WrittenGraph(Written):
    """A graph's facts as tokens x, r, y in random order, with the question as x, y."""

    pad, cls, sep = range(3)

    def _sizes(self):
        return 3 + kinship.NUM_EDGES + self.names, 3, 2

    def _write(self, source, indices):
        first_name = 3 + kinship.NUM_EDGES
        for index in indices:
            problem = source[index]
            generator = np.random.default_rng((source.seed, index, 2))
            name = (first_name + generator.permutation(self.names)).tolist()
            shuffled = (problem.facts[place] for place in generator.permutation(len(problem.facts)))
            facts = [[name[fact.x], 3 + fact.relation, name[fact.y]] for fact in shuffled]
            yield problem.label, facts, [name[person] for person in problem.query]


class Text(Written):
    """Stories as word pieces, sentence by sentence; every word that occurs in stories is a piece."""

    pad, cls, sep = map(SPECIAL_TOKENS.index, (PAD, CLS, SEP))

    def _sizes(self):
        return tokenizer().vocab_size, *longest()

    def _write(self, source, indices):
        if not isinstance(source, kinship.Kinship):
            raise ValueError("source: got published graphs, expected generated stories")
        for index in indices:
            story = source.story(index)
            *facts, question = tokenizer().ids([*(part.text for part in story.sentences), story.question])
            yield story.problem.label, facts, question


@functools.cache
def tokenizer() -> WordPieceTokenizer:
    """Returns the tokenizer of stories, whose vocabulary is `kinship.WORDS` and the special tokens."""
    return WordPieceTokenizer([*SPECIAL_TOKENS, *kinship.WORDS])


@functools.cache
def longest() -> tuple[int, int]:
    """Returns the numbers of tokens in the longest sentence and in a question."""
    name = kinship.NAMES[0]
    sentences = [template.format(x=name, y=name) for templates in kinship.TEMPLATES for template in templates]
    problem = kinship.Kinship()[0]
    asked = kinship.question(problem, kinship.NAMES[: problem.num_people])
    *facts, question = map(len, tokenizer().ids([*sentences, asked]))
    return max(facts), question
