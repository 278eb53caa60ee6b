"""The checker: types, and that every linear variable is used exactly once.

The rules are those of dual-context linear logic (Barber & Plotkin) with products, and for differential linear
logic with kets, sums and zero. `Zero(A)` proves A from any linear context: it can absorb linear variables
that are used nowhere else, which is what the derivative of a term that does not mention the variable needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llrnn.logic import terms
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.terms import IllTyped, Term, excerpt, need_terms
from llrnn.logic.types import Bang, Type


class LinearityError(IllTyped):
    """A linear variable is used twice, not at all, or where only unrestricted ones may be."""


@dataclass(frozen=True)
class Judgement:
    """What the checker finds out about a term.

    Attributes:
      type: the type of the term.
      linear: the linear variables it uses, with their types, in order of use.
      absorbs: whether it contains a Zero that can absorb further linear variables.
    """

    type: Type
    linear: Mapping[str, Type]
    absorbs: bool


def check(
    term: Term, unrestricted: Mapping[str, Type] | None = None, linear: Mapping[str, Type] | None = None
) -> Type:
    """The type of a term in a context; a closed term needs none.

    Args:
      term: the term.
      unrestricted: free variables that may be used any number of times (x : A stands for a hypothesis !A).
      linear: free variables that must be used exactly once.

    Returns:
      The type.

    Raises:
      LinearityError: a linear variable is used twice, not at all, or inside a promotion; the message names
        the variable, its type, the place and the repair.
      IllTyped: a variable is not bound, or not at the type it is used at.
      ValueError: a name is in both contexts.
    """
    found = judge(term, unrestricted, linear)
    if not found.absorbs:
        for name, of in (linear or {}).items():
            if name not in found.linear:
                raise _misused("is not used", name, of, term)
    return found.type


def judge(
    term: Term, unrestricted: Mapping[str, Type] | None = None, linear: Mapping[str, Type] | None = None
) -> Judgement:
    """As `check`, but the free linear variables need not all be used: those that are, are returned."""
    need_terms(term=term)
    unrestricted, linear = unrestricted or {}, linear or {}
    both = sorted(set(unrestricted) & set(linear))
    if both:
        raise ValueError(f"linear: {', '.join(both)} cannot be linear and unrestricted at the same time")
    context = {name: (of, False) for name, of in unrestricted.items()}
    context |= {name: (of, True) for name, of in linear.items()}
    used, absorbs = _judge(term, context)
    return Judgement(term.type, used, absorbs)


# The linear variables that a term uses with their types, and whether it can absorb more.
type _Use = tuple[dict[str, Type], bool]

# For every name its type and whether it is linear.
type _Context = dict[str, tuple[Type, bool]]


@stackless
def _judge(term: Term, context: _Context) -> "Steps[_Use]":
    match term:
        case terms.Var():
            if term.name not in context:
                raise IllTyped(
                    f"variable {term.name} : {term.of} is not bound; bind it with a lambda or a let, or name "
                    "it in a context"
                )
            of, is_linear = context[term.name]
            if of != term.of:
                raise IllTyped(f"variable {term.name} is bound at type {of} but used at type {term.of}")
            return ({term.name: of} if is_linear else {}), False
        case terms.Lam():
            return (yield _body.steps(term, context, {term.name: (term.domain, True)}))
        case terms.LetPair() | terms.LetBang():
            linear = isinstance(term, terms.LetPair)
            opened = {x: (of, linear) for x, of in zip(term.bound, term.bound_types, strict=True)}
            subject = yield _judge.steps(term.scrutinee, context)
            return _combine(term, [subject, (yield _body.steps(term, context, opened))])
        case terms.Ket():
            inside, _ = yield _judge.steps(term.point, context)
            for name, of in inside.items():
                raise LinearityError(
                    f"promotion needs a banged context, but {name} : {of} is linear (in `{excerpt(term)}`); "
                    f"give it type {Bang(of)} and open it with `let !{name} = ..`"
                )
            return _combine(term, (yield from each(_judge.steps(vector, context) for vector in term.vectors)))
        case terms.Both() | terms.Sum():
            return _share(term, (yield from each(_judge.steps(child, context) for child in term.children)))
        case terms.Zero():
            return {}, True
    return _combine(term, (yield from each(_judge.steps(child, context) for child in term.children)))


@stackless
def _body(term: Term, context: _Context, opened: _Context) -> "Steps[_Use]":
    """The last child, in the scope of what the term binds: each new linear variable is used in it."""
    used, absorbs = yield _judge.steps(term.children[-1], {**context, **opened})
    for name, (of, is_linear) in opened.items():
        if is_linear and name not in used and not absorbs:
            raise _misused("is not used", name, of, term)
    return {name: of for name, of in used.items() if name not in opened}, absorbs


def _combine(term: Term, parts: list[_Use]) -> _Use:
    """Parts that share no linear variable."""
    used: dict[str, Type] = {}
    absorbs = False
    for part, part_absorbs in parts:
        for name, of in part.items():
            if name in used:
                raise _misused("is used twice", name, of, term)
        used |= part
        absorbs |= part_absorbs
    return used, absorbs


def _share(term: Term, branches: list[_Use]) -> _Use:
    """Branches of which only one happens, so that all use the same linear variables."""
    used = {name: of for branch, _ in branches for name, of in branch.items()}
    for child, (branch, absorbs) in zip(term.children, branches, strict=True):
        for name, of in used.items():
            if name not in branch and not absorbs:
                kind = "branches of <.., ..>" if isinstance(term, terms.Both) else "terms of a sum"
                raise LinearityError(
                    f"the {kind} must use the same linear variables, but {name} : {of} is not used in "
                    f"`{excerpt(child)}` (in `{excerpt(term)}`); use it there or {_banged(name, of)}"
                )
    return used, all(absorbs for _, absorbs in branches)


def _banged(name: str, of: Type) -> str:
    if isinstance(of, Bang):
        return f"open it once with `let !x = {name} in ..` and use x as often as needed, or not at all"
    return f"give it type {Bang(of)}"


def _misused(how: str, name: str, of: Type, term: Term) -> LinearityError:
    return LinearityError(f"linear variable {name} : {of} {how} (in `{excerpt(term)}`); {_banged(name, of)}")
