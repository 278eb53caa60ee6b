"""CLUTRR's published stories as graphs: the facts behind a story, without its words.

This is the setting of Minervini et al. (2020) and Bergen et al. (2021). Facts and questions come from the
columns `story_edges`, `edge_types` and `query_edge`, which both forms of the files have.
"""

import ast
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from folnet.kinship import NUM_EDGES, RELATIONS, TARGETS, Fact, Problem
from folnet.kinship.rules import Pair
from folnet.tasks.clutrr import CLUTRR, TEST_LENGTHS, ClutrrTask, Row


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

    def __getitem__(self, index: int | np.integer) -> Problem:
        """Returns the problem with an index; raises ValueError if there is none."""
        if not 0 <= index < len(self):
            raise ValueError(f"index: got {index}, expected 0 to {len(self) - 1}")
        return self.problems[index]

    def draw(self, indices: Iterable[int | np.integer]) -> list[Problem]:
        """Returns the problems with the given indices."""
        return [self[index] for index in indices]


@functools.cache
def _problems(directory: str, train_lengths: tuple[int, ...], split: str) -> tuple[Problem, ...]:
    (task,) = (task for task in CLUTRR if task.lengths == train_lengths)
    return problems(task, directory, split)


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
    number = np.random.default_rng(place).permutation(len(people)).tolist()
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
