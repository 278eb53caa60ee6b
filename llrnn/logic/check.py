"""The checker of proofs: types of variables, and exactly one use of every linear variable.

The rules are those of dual-context linear logic (Barber & Plotkin) with products, and for differential linear
logic with kets, sums and zero. `Zero(A)` proves A from any linear context: it can absorb linear variables
that have no other use, as can `Trivial` and `Absurd`. The derivative of a term with respect to a variable
that it does not mention needs this.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from llrnn.logic import terms
from llrnn.logic.names import fresh, shown
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.term import IllTyped, Term, excerpt, need_terms
from llrnn.logic.types import Bang, Type, texts


class LinearityError(IllTyped):
    """A linear variable is used twice, not at all, or where only unrestricted variables are allowed."""


@dataclass(frozen=True)
class Judgement:
    """The result of checking a term.

    Attributes:
      type: the type of the term.
      linear: the types of the linear variables that the term uses, in order of use.
      absorbs: whether the term has a part, such as a Zero, that can absorb further linear variables.
    """

    type: Type
    linear: Mapping[str, Type]
    absorbs: bool


def check(
    term: Term, unrestricted: Mapping[str, Type] | None = None, linear: Mapping[str, Type] | None = None
) -> Type:
    """Checks that a term is a proof in a context and returns its type; a closed term needs no context.

    Args:
      term: the term.
      unrestricted: types of the free variables that may be used any number of times (x : A stands for a
        hypothesis !A).
      linear: types of the free variables that must be used exactly once.

    Raises:
      LinearityError: a linear variable is used twice, not at all, or inside a promotion; the message gives
        the variable, its type, the place and a repair.
      IllTyped: a variable is not bound, or is bound at another type.
      ValueError: a name is in both contexts.
    """
    found = judge(term, unrestricted, linear)
    if not found.absorbs:
        for name, of in (linear or {}).items():
            if name not in found.linear:
                raise _misused("no use", name, of, term)
    return found.type


def judge(
    term: Term, unrestricted: Mapping[str, Type] | None = None, linear: Mapping[str, Type] | None = None
) -> Judgement:
    """Checks a term as `check` does, but allows unused linear variables, and returns the used ones."""
    need_terms(term=term)
    unrestricted, linear = unrestricted or {}, linear or {}
    both = sorted(set(unrestricted) & set(linear))
    if both:
        found = ", ".join(map(shown, both))
        raise ValueError(f"linear: got {found}, expected names that are not in unrestricted")
    context = {name: (of, False) for name, of in unrestricted.items()}
    context |= {name: (of, True) for name, of in linear.items()}
    used, absorbs = _judge(term, context)
    return Judgement(term.type, used, absorbs)


# The types of the linear variables that a term uses, and whether it can absorb more of them.
type _Use = tuple[dict[str, Type], bool]

# The type of every variable in scope, and whether it is linear.
type _Context = dict[str, tuple[Type, bool]]


@stackless
def _judge(term: Term, context: _Context) -> "Steps[_Use]":
    match term:
        case terms.Var():
            if term.name not in context:
                got, wanted = "no binder", "a lambda, a let or an entry in a context"
                if "#" in term.name:  # the function that was traced has kept it
                    got = "a use outside the Python function of which it was a parameter"
                    wanted = "uses in the term that the function returns"
                raise IllTyped(f"variable {term} : {term.of}: got {got}, expected {wanted}")
            of, is_linear = context[term.name]
            if of != term.of:
                got, wanted = texts(term.of, of)
                raise IllTyped(f"variable {term}: got a use at type {got}, expected {wanted}, its type")
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
                found = shown(name)
                repair = f"give it type {Bang(of)} and open it with `let !{found} = ..`"
                if isinstance(of, Bang):
                    y = fresh("y", term.names)
                    repair = f"open it outside, `let !{y} = {found} in ..`, and use `!{y}` in its place"
                    if term.point == terms.Var(name, of):
                        repair = f"write `let !{y} = {found} in !{y}`"
                raise LinearityError(
                    f"promotion `{excerpt(term)}`: got the linear variable {found} : {of}, expected none; "
                    f"{repair}"
                )
            return _combine(term, (yield from each(_judge.steps(vector, context) for vector in term.vectors)))
        case terms.Both() | terms.Sum():
            return _share(term, (yield from each(_judge.steps(child, context) for child in term.children)))
        case terms.Zero() | terms.Trivial():
            return {}, True
        case terms.Absurd():
            used, _ = yield _judge.steps(term.scrutinee, context)
            return used, True
        case terms.TypeLam():
            variable = shown(term.variable)
            for name in sorted(term.free & context.keys()):
                of, _ = context[name]
                if term.variable in of.variables():
                    raise IllTyped(
                        f"type variable {variable} of `{excerpt(term)}`: got the variable {shown(name)} : "
                        f"{of} from outside, expected no {variable} in its type; give the type variable "
                        "another name"
                    )
    return _combine(term, (yield from each(_judge.steps(child, context) for child in term.children)))


@stackless
def _body(term: Term, context: _Context, opened: _Context) -> "Steps[_Use]":
    """Judges the last child, the scope of the variables in `opened`; the linear ones must be used in it."""
    used, absorbs = yield _judge.steps(term.children[-1], {**context, **opened})
    for name, (of, is_linear) in opened.items():
        if is_linear and name not in used and not absorbs:
            raise _misused("no use", name, of, term)
    return {name: of for name, of in used.items() if name not in opened}, absorbs


def _combine(term: Term, parts: list[_Use]) -> _Use:
    """Unites the uses of parts that share no linear variable; raises LinearityError if they share one."""
    used: dict[str, Type] = {}
    absorbs = False
    for part, part_absorbs in parts:
        for name, of in part.items():
            if name in used:
                raise _misused("two uses", name, of, term)
        used |= part
        absorbs |= part_absorbs
    return used, absorbs


def _share(term: Term, branches: list[_Use]) -> _Use:
    """Unites the uses of branches that must all use the same linear variables, as only one takes effect."""
    used = {name: of for branch, _ in branches for name, of in branch.items()}
    for child, (branch, absorbs) in zip(term.children, branches, strict=True):
        for name, of in used.items():
            if name not in branch and not absorbs:
                kind = "branches of <.., ..>" if isinstance(term, terms.Both) else "terms of a sum"
                raise LinearityError(
                    f"{kind} `{excerpt(term)}`: got no use of {shown(name)} : {of} in `{excerpt(child)}`, "
                    f"expected the same linear variables in each; use it there or {_banged(name, of)}"
                )
    return used, all(absorbs for _, absorbs in branches)


def _banged(name: str, of: Type) -> str:
    if isinstance(of, Bang):
        return f"open it once with `let !x = {shown(name)} in ..` and use x as often as needed, or not at all"
    return f"give it type {Bang(of)}"


def _misused(found: str, name: str, of: Type, term: Term) -> LinearityError:
    return LinearityError(
        f"linear variable {shown(name)} : {of}: got {found} in `{excerpt(term)}`, expected exactly one; "
        f"{_banged(name, of)}"
    )
