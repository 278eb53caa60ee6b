"""Kinship problems as arrays: people as tokens, facts as binary base atoms (Appendix A.4 of Chen 2023).

Token 0 of a problem is [CLS], for models that answer from their first token; person p is token 1 + p. A token
only says that it is a person and whether the question is about it; `relation_ids` says how people are
related. The model should therefore have no positions: `relative_position="none"`, `absolute_position=False`,
`vocab_size=VOCAB_SIZE`, `relation_vocab_size=RELATION_VOCAB_SIZE`.

Axis letters: B batch; T tokens, 1 + people.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from folnet.kinship.problems import Problem
from folnet.kinship.rules import COMPOSITIONS, NUM_EDGES, RELATIONS, Fact, Pair, deduce

PAD, CLS, PERSON, FIRST, SECOND = range(5)
"""Tokens: padding; [CLS]; a person; the persons x and y of the question "what is y to x?"."""

VOCAB_SIZE = 5

QUERY = NUM_EDGES
"""The binary atom that marks the pair (x, y) of the question; facts have the relations 0 to 13."""

RELATION_VOCAB_SIZE = NUM_EDGES + 1

UNRELATED = len(RELATIONS)
"""The class of a pair of which nothing follows; the relations have their own numbers as classes."""


class Symbols(NamedTuple):
    """A batch of problems for a model.

    Attributes:
        input_ids: kind of each token, below `VOCAB_SIZE`.
        relation_ids: r at [1 + x, 1 + y] for a fact (x, r, y), in this direction only; `QUERY` at the pair
            of the question; -1 elsewhere.
        attention_mask: True at people and at [CLS].
        query: tokens x and y, to answer from the pair's last binary atom.
        labels: classes, as indices in `TARGETS`.
        lengths: number of facts in the chain, k.
    """

    input_ids: Int32[np.ndarray, "B T"]
    relation_ids: Int32[np.ndarray, "B T T"]
    attention_mask: Bool[np.ndarray, "B T"]
    query: Int32[np.ndarray, "B 2"]
    labels: Int32[np.ndarray, "B"]
    lengths: Int32[np.ndarray, "B"]


def symbols(problems: Sequence[Problem], *, num_people: int | None = None, marked: bool = True) -> Symbols:
    """Converts problems to arrays with T - 1 = `num_people`, by default the maximum of these problems.

    Unless `marked`, neither tokens nor relations say what the question is about; `query` does.

    Raises:
        ValueError: If there are no problems, or one has more people.
    """
    if not problems:
        raise ValueError("problems: got none, expected at least one")
    sizes = [problem.num_people for problem in problems]
    num_people = max(sizes) if num_people is None else num_people
    place = next((place for place, size in enumerate(sizes) if size > num_people), None)
    if place is not None:
        raise ValueError(
            f"num_people: got {num_people}, expected at least {sizes[place]} (problems[{place}])"
        )
    batch, tokens = len(problems), 1 + num_people
    query = 1 + np.array([problem.query for problem in problems], np.int32)
    rows = np.arange(batch)
    mask = np.arange(tokens)[None] <= np.array(sizes)[:, None]
    input_ids = np.where(mask, PERSON, PAD).astype(np.int32)
    input_ids[:, 0] = CLS
    if marked:
        input_ids[rows, query[:, 0]] = FIRST
        input_ids[rows, query[:, 1]] = SECOND
    facts = np.array(
        [(row, x, y, r) for row, problem in enumerate(problems) for x, r, y in problem.facts], np.int32
    )
    relation_ids = np.full((batch, tokens, tokens), -1, np.int32)
    relation_ids[facts[:, 0], 1 + facts[:, 1], 1 + facts[:, 2]] = facts[:, 3]
    if marked:
        relation_ids[rows, query[:, 0], query[:, 1]] = QUERY
    return Symbols(
        input_ids,
        relation_ids,
        mask,
        query,
        np.array([problem.label for problem in problems], np.int32),
        np.array([problem.length for problem in problems], np.int32),
    )


def pair_labels(
    problems: Sequence[Problem],
    *,
    num_people: int,
    within: int | None = None,
    rules: Mapping[Pair, int] = COMPOSITIONS,
    selves: bool = False,
) -> Int32[np.ndarray, "B T T"]:
    """Returns what y is to x at [1 + x, 1 + y]: the relation that follows from the facts, or `UNRELATED`.

    -1 stands for pairs without a label: those with more than one relation, a person with themselves unless
    `selves`, [CLS], and padding.

    Args:
      problems: the problems.
      num_people: T - 1.
      within: pairs that are connected by more facts than this, and not by fewer, have no label either: a
        model that learns from the labels never learns about longer chains than these. None for no limit.
      rules: what two relations compose to.
      selves: whether a person with themselves is `UNRELATED`: facts may lead back to someone, of whom nothing
        follows then.

    Raises:
      ValueError: If a problem has more people.
    """
    labels = np.full((len(problems), 1 + num_people, 1 + num_people), -1, np.int32)
    for row, problem in enumerate(problems):
        size = problem.num_people
        if size > num_people:
            raise ValueError(f"num_people: got {num_people}, expected at least {size} (problems[{row}])")
        known = np.full((size, size), UNRELATED)
        for x, relation, y in deduce(problem.facts, rules=rules).facts:
            known[x, y] = relation if known[x, y] == UNRELATED else -1
        if within is not None:
            apart = distances(problem.facts, size)
            known = np.where((apart > within) & (apart <= size), -1, known)
        np.fill_diagonal(known, UNRELATED if selves else -1)
        labels[row, 1 : 1 + size, 1 : 1 + size] = known
    return labels


def distances(facts: Sequence[Fact], num_people: int) -> np.ndarray:
    """Returns the least number of facts that connect two people, in any direction: [num_people, num_people].

    For people who are not connected it is `num_people` + 1, more than any such number.
    """
    apart = np.full((num_people, num_people), num_people + 1)
    np.fill_diagonal(apart, 0)
    for x, _, y in facts:
        apart[x, y] = apart[y, x] = 1
    for middle in range(num_people):
        apart = np.minimum(apart, apart[:, middle, None] + apart[middle])
    return apart
