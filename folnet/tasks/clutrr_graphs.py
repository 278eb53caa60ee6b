"""CLUTRR's published stories as graphs: the facts behind a story, without its words.

This is the setting of Minervini et al. (2020) and Bergen et al. (2021). Facts and questions come from the
columns `story_edges`, `edge_types` and `query_edge`, which both forms of the files have. The words are
available too, with numbers in place of names, as Sinha et al. (2019) anonymize them: most names in the tests
of 5 and more facts do not occur in training.
"""

import ast
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from folnet.kinship import NUM_EDGES, RELATIONS, TARGETS, Fact, NumberedText, Problem
from folnet.kinship.rules import Pair
from folnet.tasks.clutrr import BRACKETS, CLUTRR, TEST_LENGTHS, ClutrrTask, Row


@dataclasses.dataclass(frozen=True)
class Published:
    """The published problems of some lengths, accessed by index as those of `folnet.kinship.Kinship` are.

    Files are read when the first problem is. A problem's people are numbered in random order, always the
    same, and it has no proof.

    Attributes:
        directory: where the files are; see `ClutrrTask.find`.
        train_lengths: which of the two data sets: (2, 3) or (2, 3, 4), the lengths of its training problems.
        split: "train" or "test"; problems of the test split are those with the length `length`.
        length: the length of test problems, k.
        seed: distinguishes sources, as that of `Kinship` does; problems do not depend on it.
    """

    directory: str
    train_lengths: tuple[int, ...]
    split: Literal["train", "test"] = "train"
    length: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError if there is no such data set, split or length."""
        if self.train_lengths not in (known := [task.lengths for task in CLUTRR]):
            raise ValueError(
                f"train_lengths: got {self.train_lengths}, expected one of CLUTRR's: "
                + ", ".join(map(str, known))
            )
        if self.split not in ("train", "test"):
            raise ValueError(f"split: got {self.split!r}, expected 'train' or 'test'")
        if self.split == "test" and self.length not in TEST_LENGTHS:
            raise ValueError(
                f"length: got {self.length}, expected {TEST_LENGTHS[0]} to {TEST_LENGTHS[-1]} with the test "
                "split"
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """The numbers of facts k in the problems."""
        return self.train_lengths if self.split == "train" else (self.length,)

    @functools.cached_property
    def rules(self) -> Mapping[Pair, int]:
        """What two relations compose to: what training questions of two facts say most often.

        In the published files they all agree, and the rules are those of `folnet.kinship`.
        """
        answers: dict[Pair, Counter[int]] = {}
        for problem in _problems(self.directory, self.train_lengths, "train"):
            if problem.length == 2 and problem.facts[0].y == problem.facts[1].x:
                pair = problem.facts[0].relation, problem.facts[1].relation
                answers.setdefault(pair, Counter())[problem.answer] += 1
        return {pair: found.most_common(1)[0][0] for pair, found in answers.items()}

    @property
    def max_people(self) -> int:
        """Maximum number of people in a problem; there are fewer where the story comes back to someone."""
        return max(self.lengths) + 1

    @property
    def max_facts(self) -> int:
        """Maximum number of facts in a problem."""
        return max(self.lengths)

    @functools.cached_property
    def problems(self) -> tuple[Problem, ...]:
        """All problems, in the order of the files; raises ValueError if files are missing or damaged."""
        every = _problems(self.directory, self.train_lengths, self.split)
        return tuple(problem for problem in every if problem.length in self.lengths)

    def __len__(self) -> int:
        """Returns the number of problems; raises ValueError as `problems` does."""
        return len(self.problems)

    def __iter__(self) -> Iterator[Problem]:
        """Returns an iterator over the problems; raises ValueError as `problems` does."""
        return iter(self.problems)

    def __getitem__(self, index: int | np.integer) -> Problem:
        """Returns the problem with an index; raises ValueError if there is none."""
        return self.problems[self._checked(index)]

    def numbered_text(self, index: int | np.integer) -> NumberedText:
        """Returns the story of a problem with people's numbers in place of their names.

        Raises:
            ValueError: there is no such problem, or the files do not say who is who in a story.
        """
        return self._stories[self._checked(index)]

    @functools.cached_property
    def _stories(self) -> tuple[NumberedText, ...]:
        place = self.directory, self.train_lengths, self.split
        every = zip(_problems(*place), _stories(*place), strict=True)
        return tuple(story for problem, story in every if problem.length in self.lengths)

    def _checked(self, index: int | np.integer) -> int:
        if not 0 <= index < len(self):
            raise ValueError(f"index: got {index}, expected 0 to {len(self) - 1}")
        return int(index)

    def draw(self, indices: Iterable[int | np.integer]) -> list[Problem]:
        """Returns the problems with the given indices."""
        return [self[index] for index in indices]


@functools.cache
def _problems(directory: str, train_lengths: tuple[int, ...], split: str) -> tuple[Problem, ...]:
    return problems(_task(train_lengths), directory, split)


@functools.cache
def _stories(directory: str, train_lengths: tuple[int, ...], split: str) -> tuple[NumberedText, ...]:
    rows = _task(train_lengths).rows(directory, split, "story", "story_edges", "genders")
    return tuple(_story(row, place) for place, row in enumerate(rows))


def _task(train_lengths: tuple[int, ...]) -> ClutrrTask:
    (task,) = (task for task in CLUTRR if task.lengths == train_lengths)
    return task


def problems(task: ClutrrTask, directory: str | os.PathLike[str], split: str) -> tuple[Problem, ...]:
    """Returns the graphs of a split, in the order of the files.

    Raises:
        ValueError: files are missing or damaged; the message names the line.
    """
    rows = task.rows(directory, split, "story_edges", "edge_types", "query_edge")
    return tuple(_problem(row, place) for place, row in enumerate(rows))


def _problem(row: Row, place: int) -> Problem:
    edges = [_pair(row, edge) for edge in _read(row, "story_edges", list)]
    types, query = _read(row, "edge_types", list), _pair(row, _read(row, "query_edge", tuple))
    if len(edges) != len(types) or len(edges) != row.length:
        raise row.damaged(
            f"got {len(edges)} story_edges and {len(types)} edge_types, expected {row.length} of each"
        )
    if unknown := [name for name in types if name not in RELATIONS[:NUM_EDGES]]:
        raise row.damaged(f"got {unknown[0]!r} in edge_types, expected {', '.join(RELATIONS[:NUM_EDGES])}")
    people = sorted({person for edge in edges for person in edge})
    if people != list(range(len(people))) or not set(query) <= set(people):
        raise row.damaged(
            f"got people {people} and the question {query}, expected people from 0 without a gap, and two of "
            "them in the question"
        )
    answer = RELATIONS.index(row.relation) if row.relation in RELATIONS else -1
    if answer not in TARGETS:
        names = ", ".join(RELATIONS[target] for target in TARGETS)
        raise row.damaged(f"got the relation {row.relation!r}, expected one of {names}")
    number = _numbers(place, len(people))
    return Problem(
        num_people=len(people),
        facts=tuple(
            Fact(number[x], RELATIONS.index(name), number[y])
            for (x, y), name in zip(edges, types, strict=True)
        ),
        kinds=("chain",) * len(edges),
        query=(number[query[0]], number[query[1]]),
        answer=answer,
        proof=(),
    )


def _story(row: Row, place: int) -> NumberedText:
    """Returns a row's story, with people as `_problem` numbers them: `genders` has their names in order."""
    names = [entry.partition(":")[0] for entry in row.fields["genders"].split(",")]
    people = len({person for edge in _read(row, "story_edges", list) for person in _pair(row, edge)})
    pieces = BRACKETS.split(row.fields["story"])
    if len(names) != people or set(names) != set(pieces[1::2]) or len(set(names)) != people:
        raise row.damaged(
            f"got {row.fields['genders']!r:.60} in genders, expected the names of {people} people, who "
            "are all in the story"
        )
    number = dict(zip(names, _numbers(place, people), strict=True))
    return tuple(number[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def _numbers(place: int, people: int) -> list[int]:
    """Draws the numbers of the people of the problem in a row."""
    return np.random.default_rng(place).permutation(people).tolist()


def _read(row: Row, column: str, kind: type) -> Any:
    """Returns a column's value, which is written as in Python."""
    text = row.fields[column]
    try:
        found = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError):
        found = None
    if not isinstance(found, kind):
        raise row.damaged(f"{column}: got {text!r:.60}, expected a {kind.__name__} as Python writes it")
    return found


def _pair(row: Row, pair: Any) -> tuple[int, int]:
    two = isinstance(pair, tuple) and len(pair) == 2 and all(type(person) is int for person in pair)
    if not two or pair[0] == pair[1]:
        raise row.damaged(f"got {pair!r:.60}, expected two different people, such as (0, 2)")
    return pair
