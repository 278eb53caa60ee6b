"""Every test of the logic runs in float64 and compiles quickly, and leaves the others as they are."""

from collections import Counter
from collections.abc import Callable, Iterator

import jax
import numpy as np
import pytest

from llrnn.logic import Bang, Derivation, Lolli, One, Tensor, Type, With
from tests import compiling


@pytest.fixture(scope="module", autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True), compiling.quickly():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(scope="session")
def is_valid() -> Callable[[Derivation], bool]:
    return _is_valid


def _one(t: Type) -> Counter[Type]:
    return Counter([t])


def _is_valid(node: Derivation) -> bool:
    """Returns whether a rule instance is one of the rules on paper, with contexts as multisets."""
    have, goal = Counter(node.hypotheses), node.conclusion
    above = [(Counter(p.hypotheses), p.conclusion) for p in node.premises]
    contexts, goals = [context for context, _ in above], [conclusion for _, conclusion in above]

    principal = None
    if len(contexts) == 1 and sum((have - contexts[0]).values()) == 1:
        (principal,) = (have - contexts[0]).elements()

    match node.rule, len(above):
        case "ax", 0:
            return have == Counter([goal])
        case "zero", 0:
            return True
        case "1R", 0:
            return not have and goal == One
        case "cut", 2:
            return (
                contexts[1][goals[0]] > 0
                and goals[1] == goal
                and (have == contexts[0] + (contexts[1] - Counter([goals[0]])))
            )
        case "1L", 1:
            return goals[0] == goal and have == contexts[0] + Counter([One])
        case "(x)R", 2:
            return goal == Tensor(*goals) and have == contexts[0] + contexts[1]
        case "(x)L", 1:
            return goals[0] == goal and any(
                isinstance(t, Tensor) and have - _one(t) + Counter([t.left, t.right]) == contexts[0]
                for t in have
            )
        case "-oR", 1:
            return (
                isinstance(goal, Lolli)
                and goals[0] == goal.codomain
                and have + Counter([goal.domain]) == contexts[0]
            )
        case "-oL", 2:
            return goals[1] == goal and any(
                isinstance(t, Lolli)
                and t.domain == goals[0]
                and contexts[1][t.codomain] > 0
                and have - _one(t) == contexts[0] + (contexts[1] - Counter([t.codomain]))
                for t in have
            )
        case "&R", 2:
            return goal == With(*goals) and have == contexts[0] == contexts[1]
        case ("&L1" | "&L2") as rule, 1:
            return goals[0] == goal and any(
                isinstance(t, With)
                and have - _one(t) + Counter([t.left if rule == "&L1" else t.right]) == contexts[0]
                for t in have
            )
        case "promotion", 1:
            return goal == Bang(goals[0]) and have == contexts[0] and all(isinstance(t, Bang) for t in have)
        case "dereliction", 1:
            return goals[0] == goal and any(
                isinstance(t, Bang) and have - _one(t) + Counter([t.body]) == contexts[0] for t in have
            )
        case "contraction", 1:
            return goals[0] == goal and any(
                isinstance(t, Bang) and have + _one(t) == contexts[0] for t in have
            )
        case "weakening", 1:
            return (
                goals[0] == goal
                and isinstance(principal, Bang)
                and have == contexts[0] + Counter([principal])
            )
        case "codereliction", 1:
            return goal == Bang(goals[0]) and have == contexts[0]
        case "deriving", 2:
            return goals[0] == goal == Bang(goals[1]) and have == contexts[0] + contexts[1]
        case "sum", n if n > 0:
            return all(g == goal for g in goals) and all(c == have for c in contexts)
    return False
