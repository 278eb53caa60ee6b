"""Cut elimination: terms to normal form, by the rules of differential linear logic.

A cut is a construct that takes apart what another has just built: a lambda applied, a pair opened, a
component of <.., ..> taken, a ket opened. The last is the rule that differentiation enters by,

    let !x = |v1 .. vs>_t in u   ->   (d/dx .. (d u / dx . v1) .. . vs)[x := t],

where d u / dx . v is the linear substitution of v for one use of x, summed over the uses (Ehrhard & Regnier,
"The differential lambda-calculus"; on denotations it is the directional derivative). Around it:

- sums and zero move out through everything that is linear in the subterm (not out of the point of a ket, nor
  out of a branch of <.., ..>), so that elsewhere a normal form has sums only at its top;
- a `let` whose subject is not built by anything (a variable, an elimination of one) moves out as far as its
  variables allow, so that it never stands between the two halves of a cut. Normal forms are unique up to
  bound names and the order of independent lets and of summands.

Subterms are normalised first and substitution is hereditary: it rebuilds a normal term by the same smart
constructors, so that work is done only where a substitution makes a new cut.
"""

import itertools
from collections.abc import Iterable

from llrnn.logic import terms
from llrnn.logic.check import check
from llrnn.logic.names import fresh
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.terms import Term, Var, need_terms
from llrnn.logic.types import Type

_LETS = (terms.LetStar, terms.LetPair, terms.LetBang)


def normalize(term: Term) -> Term:
    """The normal form of a proof, also under binders; it has the same type and the same denotation.

    It is as large as what the program computes: 3 * 4 is the 12-fold numeral. A closed term is checked first;
    of one with free variables it is the caller who knows which of them are linear.

    Raises:
      IllTyped, LinearityError: the term is closed and not a proof.
    """
    need_terms(term=term)
    if not term.free:
        check(term)
    return _rebuild(term, {}, False)


@stackless
def _rebuild(term: Term, substitution: dict[str, Term], normal: bool) -> "Steps[Term]":
    """The normal form of the term with normal terms for some of its free variables.

    Of a term that is `normal` itself only what changes is rebuilt.
    """
    used = {name: new for name, new in substitution.items() if name in term.free}
    if normal and not used:
        return term
    if isinstance(term, Var):
        return used.get(term.name, term)
    bound, inner = _enter(term, used)
    last = len(term.children) - 1
    children = yield from each(
        _rebuild.steps(child, inner if place == last else used, normal)
        for place, child in enumerate(term.children)
    )
    return (yield _make.steps(term, bound, children))


def _enter(term: Term, substitution: dict[str, Term]) -> tuple[tuple[str, ...], dict[str, Term]]:
    """What the term binds, renamed not to catch what is substituted, and the substitution in its scope."""
    if not term.bound:
        return (), substitution
    body = term.children[-1]
    inside = {x: new for x, new in substitution.items() if x not in term.bound and x in body.free}
    names, renaming = _fresh_names(term, body, frozenset[str]().union(*(new.free for new in inside.values())))
    return names, {**inside, **renaming}


def _fresh_names(form: Term, body: Term, outside: frozenset[str]) -> tuple[tuple[str, ...], dict[str, Term]]:
    """Names for what `form` binds in `body` that do not occur outside, and the renaming of the body."""
    renaming: dict[str, Term] = {}
    names: list[str] = []
    for name, of in zip(form.bound, form.bound_types, strict=True):
        new = name
        if name in outside:
            new = fresh(name, outside | body.names | set(form.bound) | set(names))
            renaming[name] = Var(new, of)
        names.append(new)
    return tuple(names), renaming


@stackless
def _make(form: Term, bound: tuple[str, ...], children: list[Term]) -> "Steps[Term]":
    """The normal form of the construct `form` with other bound names and with normal subterms."""
    term = form.remake(bound, tuple(children))
    if isinstance(term, terms.Sum):
        return _total(term.terms, term.type)
    if isinstance(term, terms.Both):
        empty = isinstance(term.left, terms.Zero) and isinstance(term.right, terms.Zero)
        return terms.Zero(term.type) if empty else term

    for place in _linear_places(term):
        child = term.children[place]
        if isinstance(child, terms.Zero):
            return terms.Zero(term.type)
        if isinstance(child, terms.Sum):
            summands = yield from each(
                _make.steps(form, bound, _replaced(children, place, summand)) for summand in child.terms
            )
            return _total(summands, term.type)

    for place in _linear_places(term):
        child = term.children[place]
        if not isinstance(child, _LETS) or (isinstance(term, _LETS) and place == 1):
            continue
        let, rest = yield _movable_let.steps(child, frozenset(bound))
        if let is None:
            continue
        # let p = s in .. inside becomes let p = s outside; p must not catch anything there.
        others = [other for i, other in enumerate(term.children) if i != place]
        outside = frozenset(bound).union(*(other.free for other in others))
        names, renaming = _fresh_names(let, rest, outside)
        rest = yield _rebuild.steps(rest, renaming, True)
        inside = yield _make.steps(form, bound, _replaced(children, place, rest))
        return (yield _make.steps(let, names, [let.children[0], inside]))

    match term:
        case terms.App(function=terms.Lam() as function):
            return (yield _rebuild.steps(function.body, {function.name: term.argument}, True))
        case terms.LetStar(scrutinee=terms.Star()):
            return term.body
        case terms.LetPair(scrutinee=terms.Pair() as pair):
            # Both at once: neither component may be changed by the substitution of the other.
            return (yield _rebuild.steps(term.body, {term.left: pair.left, term.right: pair.right}, True))
        case terms.Fst(product=terms.Both() as product):
            return product.left
        case terms.Snd(product=terms.Both() as product):
            return product.right
        case terms.LetBang(scrutinee=terms.Ket() as ket):
            return (yield _open_ket.steps(term, ket))
    return term


@stackless
def _movable_let(term: Term, stays: frozenset[str]) -> "Steps[tuple[Term | None, Term]]":
    """The first of a chain of lets whose subject mentions no name that stays, and the chain without it.

    Without such a let, None and the term.
    """
    if not isinstance(term, _LETS):
        return None, term
    subject, body = term.children
    if not subject.free & stays:
        return term, body
    let, rest = yield _movable_let.steps(body, stays.union(term.bound))
    if let is None:
        return None, term
    # The let found moves over this one: neither may catch the other's variables.
    names, renaming = _fresh_names(let, rest, subject.free.union(term.bound))
    rest = yield _rebuild.steps(rest, renaming, True)
    return let.remake(names, let.children), term.remake(term.bound, (subject, rest))


@stackless
def _open_ket(term: terms.LetBang, ket: terms.Ket) -> "Steps[Term]":
    x, body = term.name, term.body
    outside = frozenset[str]().union(*(vector.free for vector in ket.vectors))
    if x in outside:  # the vectors' x is another variable
        x = fresh(x, outside | body.names)
        body = yield _rebuild.steps(body, {term.name: Var(x, ket.point.type)}, True)
    summands = [body]
    for vector in ket.vectors:
        derivatives = yield from each(_derivatives.steps(summand, x, vector) for summand in summands)
        summands = list(itertools.chain(*derivatives))
    results = yield from each(_rebuild.steps(summand, {x: ket.point}, True) for summand in summands)
    return _total(results, term.type)


@stackless
def _derivatives(term: Term, x: str, v: Term) -> "Steps[list[Term]]":
    """The summands of d term / dx . v for normal terms: v takes the place of one use of the variable x.

    In the summands x may occur again, linear variables of v occur once, and none is 0; no summand means 0.
    """
    if x not in term.free:
        return []
    if isinstance(term, Var):
        return [v]
    bound, renaming = _enter(term, {x: v})
    children = list(term.children)
    renaming.pop(x, None)  # _enter is asked for names apart from those of v; x itself stays
    if renaming:
        children[-1] = yield _rebuild.steps(children[-1], renaming, True)
    if isinstance(term, terms.Both):
        sides = yield from each(_derivatives.steps(side, x, v) for side in children)
        return [terms.Both(*(_total(side, of.type) for side, of in zip(sides, children, strict=True)))]
    results = []
    for place, child in enumerate(children):
        if x in term.bound and place == len(children) - 1:
            continue
        for derivative in (yield _derivatives.steps(child, x, v)):
            if isinstance(term, terms.Sum):
                results.append(derivative)
            elif isinstance(term, terms.Ket) and place == 0:
                # d |v1 .. vs>_P = |v1 .. vs, dP>_P + ..: the point stays, the ket grows by a vector.
                results.append((yield _make.steps(term, (), [*children, derivative])))
            else:
                results.append((yield _make.steps(term, bound, _replaced(children, place, derivative))))
    return _flat(results)


def _linear_places(term: Term) -> range:
    """The subterms in which a construct is linear: all, but not the point of a ket."""
    return range(1 if isinstance(term, terms.Ket) else 0, len(term.children))


def _replaced(children: list[Term], place: int, child: Term) -> list[Term]:
    return [*children[:place], child, *children[place + 1 :]]


def _total(summands: Iterable[Term], of: Type) -> Term:
    flat = _flat(summands)
    return terms.Zero(of) if not flat else flat[0] if len(flat) == 1 else terms.Sum(tuple(flat))


def _flat(summands: Iterable[Term]) -> list[Term]:
    """The summands without nested sums and zeros."""
    flat: list[Term] = []
    for term in summands:
        if not isinstance(term, terms.Zero):
            flat.extend(term.terms if isinstance(term, terms.Sum) else [term])
    return flat
