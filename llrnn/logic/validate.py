"""A validator of derivations that knows nothing of terms: every instance must have the form of its rule.

The rules are those of `llrnn.logic.sequent`, with contexts as multisets.
"""

from collections import Counter

from llrnn.logic.names import fresh
from llrnn.logic.sequent import Derivation
from llrnn.logic.types import Bang, ForAll, Lolli, One, Plus, Tensor, Top, Type, TypeVariable, Void, With

_FORMS = {
    "ax": "A |- A",
    "cut": "G |- A and A, D |- C, to give G, D |- C",
    "1R": "|- 1",
    "1L": "G |- C, to give 1, G |- C",
    "(x)R": "G |- A and D |- B, to give G, D |- A (x) B",
    "(x)L": "A, B, G |- C, to give A (x) B, G |- C",
    "-oR": "A, G |- B, to give G |- A -o B",
    "-oL": "G |- A and B, D |- C, to give A -o B, G, D |- C",
    "&R": "G |- A and G |- B, to give G |- A & B",
    "&L1": "A, G |- C, to give A & B, G |- C",
    "&L2": "B, G |- C, to give A & B, G |- C",
    "+R1": "G |- A, to give G |- A + B",
    "+R2": "G |- B, to give G |- A + B",
    "+L": "A, G |- C and B, G |- C, to give A + B, G |- C",
    "topR": "G |- top",
    "0L": "0, G |- C",
    "forallR": "G |- A, to give G |- forall X. A, with X not free in G",
    "forallL": "A[X := B], G |- C, to give forall X. A, G |- C",
    "promotion": "!G |- A, to give !G |- !A",
    "dereliction": "A, G |- C, to give !A, G |- C",
    "contraction": "!A, !A, G |- C, to give !A, G |- C",
    "weakening": "G |- C, to give !A, G |- C",
    "codereliction": "G |- A, to give G |- !A",
    "deriving": "G |- !A and D |- A, to give G, D |- !A",
    "sum": "G |- A once or more often, to give G |- A",
    "zero": "G |- A",
}


def validate(tree: Derivation) -> None:
    """Checks that every rule instance of a derivation is one, from its conclusion upwards.

    Raises:
      ValueError: an instance does not have the form of its rule; the message has its sequents and the form.
    """
    for node in tree.instances():
        if node.rule not in _FORMS:
            raise ValueError(f"rule: got {node.rule!r}, expected one of {', '.join(map(repr, _FORMS))}")
        if not _is_instance(node):
            above = " and ".join(premise.sequent for premise in node.premises) or "nothing"
            raise ValueError(
                f"rule {node.rule}: got `{node.sequent}` from {above}, expected the form {_FORMS[node.rule]}"
            )


def _one(t: Type) -> Counter[Type]:
    return Counter([t])


def _is_instance(node: Derivation) -> bool:
    """Returns whether a node has the form of its rule."""
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
        case ("+R1" | "+R2") as rule, 1:
            side = isinstance(goal, Plus) and (goal.left if rule == "+R1" else goal.right)
            return goals[0] == side and have == contexts[0]
        case "+L", 2:
            return goals == [goal, goal] and any(
                isinstance(t, Plus)
                and have - _one(t) + _one(t.left) == contexts[0]
                and have - _one(t) + _one(t.right) == contexts[1]
                for t in have
            )
        case "topR", 0:
            return goal == Top
        case "0L", 0:
            return have[Void] > 0
        case "forallR", 1:
            if not isinstance(goal, ForAll) or have != contexts[0]:
                return False
            outside = goal.variables().union(*(t.variables() for t in have))
            names = {*goals[0].variables(), fresh("X", outside)} - outside
            return any(goals[0] == goal.instantiate(TypeVariable(name)) for name in names)
        case "forallL", 1:
            return goals[0] == goal and any(
                isinstance(t, ForAll)
                and any(t.matches(u) and have - _one(t) + _one(u) == contexts[0] for u in contexts[0])
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
