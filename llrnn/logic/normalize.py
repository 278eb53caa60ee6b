r"""Cut elimination: rewrites terms to normal form by the rules of differential linear logic.

A cut is an elimination applied to an introduction: a lambda applied, a pair opened, a component of <.., ..>
taken, a case of an injection, a program `/\X. t` at a type, a ket opened. The last of these rules is where
differentiation takes place,

    let !x = |v1 .. vs>_t in u   ->   (d/dx .. (d u / dx . v1) .. . vs)[x := t],

where d u / dx . v is the linear substitution of v for one use of x, summed over the uses (Ehrhard & Regnier,
"The differential lambda-calculus"); its denotation is the directional derivative. Two more rules:

- Sums and zero move out of every position in which the construct is linear, that is, not out of the point of
  a ket nor out of a branch of <.., ..>. Outside these two, a normal form has a sum only at its top.
- A `let` whose subject is not an introduction (a variable or an elimination of one) moves out as far as its
  variables allow, so that it does not separate the two halves of a cut. It stays inside of `/\X. t` and of
  the branches of <.., ..>; a `case` whose subject is not an introduction stays where it is.

Normal forms are unique up to bound names and the order of lets with equal subjects. The summands of a sum
and the vectors of a ket, whose order has no meaning, are sorted by their size and their text, where a bound
variable is the depth of its binder. So are, by their subjects, lets in a row: next is the least of those that
use no variable of the others.

Subterms are normalised first. Substitution is hereditary: it rebuilds a normal term by the same smart
constructors, and so does work only where it creates a new cut.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable

from llrnn.logic import terms
from llrnn.logic.check import check
from llrnn.logic.names import fresh
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.term import (
    App,
    Sum,
    Term,
    TypeApp,
    TypeLam,
    Var,
    apart,
    full_text,
    need_terms,
    rename,
    type_variables,
    with_types,
)
from llrnn.logic.types import Type, TypeVariable, substitute

_LETS = (terms.LetStar, terms.LetPair, terms.LetBang)
_INTRODUCTIONS: dict[type[Term], Callable[..., Term]] = dict(
    zip(_LETS, (terms.Star, terms.Pair, terms.Ket), strict=True)
)


def normalize(term: Term) -> Term:
    """Returns the normal form of a proof, also under binders; type and denotation stay the same.

    The normal form is as large as the result of the program: 3 * 4 becomes the numeral 12. A closed term is
    checked first; a term with free variables is not, since only the caller knows which of them are linear.

    Raises:
      IllTyped: the term is closed and not a proof.
      LinearityError: the term is closed and not a proof, because of a linear variable.
    """
    need_terms(term=term)
    if not term.free:
        check(term)
    return in_order(_rebuild(term, {}, False))


def equivalent(left: Term, right: Term) -> bool:
    r"""Returns whether two proofs have one type and, up to eta, one normal form.

    Proofs that are equivalent have equal denotations. The rules are those of `normalize` and on normal forms
    \x. t x = t, <fst t, snd t> = t, /\X. t @X = t, and a let that only rebuilds what it opens, as in
    `let !x = t in u !x` = u t if u does not use x. False may also mean that lets with equal subjects are in
    another order, that a case of an unknown subject stands elsewhere, that both branches of a <.., ..>
    rebuild what a let opens, or that several places could take the subject of a `let * = t in u`.

    Raises:
      IllTyped: a term is closed and not a proof.
      LinearityError: a term is closed and not a proof, because of a linear variable.
    """
    need_terms(left=left, right=right)
    return left.type == right.type and _contracted(normalize(left)) == _contracted(normalize(right))


def _contracted(term: Term) -> Term:
    return in_order(_eta(term))


@stackless
def _eta(term: Term) -> "Steps[Term]":
    """Returns a normal term without eta-redexes, from the leaves to the root."""
    children = tuple((yield from each(_eta.steps(child) for child in term.children)))
    if any(new is not old for new, old in zip(children, term.children, strict=True)):
        term = term.remake(term.bound, children)
    match term:
        case terms.Lam(body=App(function=function, argument=Var(name=x))):
            return function if x == term.name and x not in function.free else term
        case terms.Both(left=terms.Fst(product=first), right=terms.Snd(product=second)) if first == second:
            return first
        case TypeLam(body=TypeApp(function=function, of=TypeVariable(name))):
            outside = name == term.variable and name not in type_variables(function)
            return function if outside else term
        case terms.LetStar() | terms.LetPair() | terms.LetBang():
            opened = _INTRODUCTIONS[type(term)](*map(Var, term.bound, term.bound_types))
            refolded = yield _refolded.steps(term.body, opened, term.scrutinee)
            return term if refolded is None else refolded
    return term


@stackless
def _refolded(term: Term, opened: Term, subject: Term) -> "Steps[Term | None]":
    r"""Returns the body of a let with its subject in the place of what it opens, such as `!x`, or None.

    The place is linear and has the only uses of the let's variables. It is in no summand, branch of <.., ..>
    or program `/\X. t`, out of which no let moves.
    """
    if term == opened:
        return subject
    if isinstance(term, (Sum, terms.Both, TypeLam)):
        return None
    names, children = term.bound, list(term.children)
    if names:
        names, renaming = _fresh_names(term, children[-1], subject.free | opened.free)
        renamed = {old: new for old, new in zip(term.bound, names, strict=True) if old in renaming}
        children[-1] = yield rename.steps(children[-1], renamed)
    if sum(not opened.free.isdisjoint(child.free) for child in children) > 1:
        return None
    for place in linear_places(term):
        if opened.free <= children[place].free:
            child = yield _refolded.steps(children[place], opened, subject)
            if child is not None:
                return term.remake(names, tuple(replaced(children, place, child)))
    return None


def in_order(term: Term) -> Term:
    """Returns a normal term with sorted summands, vectors and independent lets."""
    return _sorted(term, {}, 0)[0]


@stackless
def _sorted(term: Term, depths: dict[str, int], depth: int) -> "Steps[tuple[Term, list[str]]]":
    r"""Returns the term in order, and its text with operators first, word by word.

    `depths` has, for every bound variable in scope, the number of the variables that were bound before it; a
    type variable X has the key `/\X`.
    """
    if isinstance(term, Var):
        return term, [f"#{depths[term.name]}" if term.name in depths else term.name]
    if isinstance(term, _LETS) and isinstance(term.children[1], _LETS):
        return (yield _sorted_lets.steps(term, depths, depth))
    bound = (f"/\\{term.variable}",) if isinstance(term, TypeLam) else term.bound
    inner = depths | {name: depth + number for number, name in enumerate(bound)}
    last = len(term.children) - 1
    parts = yield from each(
        _sorted.steps(child, inner if place == last else depths, depth + len(bound) * (place == last))
        for place, child in enumerate(term.children)
    )
    point = 1 if isinstance(term, terms.Ket) else 0
    if isinstance(term, (Sum, terms.Ket)):
        parts[point:] = sorted(parts[point:], key=lambda part: (len(part[1]), part[1]))
    words = [f"{type(term).__name__}{len(parts)}"]
    if isinstance(term, (terms.Lam, terms.Zero, terms.Inl, terms.Inr, terms.Absurd)):
        words.append(_type_text(term.type, depths))
    if isinstance(term, TypeApp):
        words.append(_type_text(term.of, depths))
    children = tuple(part for part, _ in parts)
    if any(new is not old for new, old in zip(children, term.children, strict=True)):
        term = term.remake(term.bound, children)
    return term, words + list(itertools.chain.from_iterable(text for _, text in parts))


@stackless
def _sorted_lets(term: Term, depths: dict[str, int], depth: int) -> "Steps[tuple[Term, list[str]]]":
    """Does what `_sorted` does for a row of lets, each in the body of the one before.

    The variables that a subject binds are counted from the end of the row, as those of the last body are, so
    that its text does not depend on its place.
    """
    names, taken, depths = term.names, set[str](), dict(depths)
    lets: list[tuple[Term, tuple[str, ...], Term]] = []  # a let, names for all places in the row, the subject
    binder: dict[str, int] = {}  # the number of the let that binds a variable
    waits_for: list[set[int]] = []
    renaming: dict[str, str] = {}
    while isinstance(term, _LETS):
        subject = yield rename.steps(term.children[0], renaming)
        waits_for.append({binder[x] for x in subject.free if x in binder})
        for name in term.bound:
            renaming[name] = fresh(name, names | taken) if name in taken else name
            taken.add(renaming[name])
            binder[renaming[name]] = len(lets)
        taken |= subject.free
        lets.append((term, tuple(renaming[name] for name in term.bound), subject))
        term = term.children[1]
    body, end = (yield rename.steps(term, renaming)), depth + len(binder)

    waiting: list[list[int]] = [[] for _ in lets]
    for number, others in enumerate(waits_for):
        for other in others:
            waiting[other].append(number)
    ready, heap = [number for number, others in enumerate(waits_for) if not others], []
    row, words = [], []
    while ready or heap:
        for number in ready:
            subject, text = yield _sorted.steps(lets[number][2], depths, end)
            heapq.heappush(heap, (len(text), text, number, subject))
        _, text, number, subject = heapq.heappop(heap)
        let, bound, _ = lets[number]
        row.append((let, bound, subject))
        words += [f"{type(let).__name__}2", *text]
        depths |= {name: depth + place for place, name in enumerate(bound)}
        depth += len(bound)
        ready = []
        for other in waiting[number]:
            waits_for[other].remove(number)
            if not waits_for[other]:
                ready.append(other)
    body, text = yield _sorted.steps(body, depths, end)
    for let, bound, subject in reversed(row):
        body = let.remake(bound, (subject, body))
    return body, words + text


def _type_text(of: Type, depths: dict[str, int]) -> str:
    """Returns a type in print that does not depend on the names of bound type variables."""
    names = {name for name in of.variables() if f"/\\{name}" in depths}
    return full_text(substitute(of, {x: TypeVariable(f"#{depths[f'/\\{x}']}") for x in names}).nameless())


@stackless
def _rebuild(term: Term, substitution: dict[str, Term], normal: bool) -> "Steps[Term]":
    """Returns the normal form of the term after the substitution, whose terms are normal.

    If the term itself is `normal`, only the parts that change are rebuilt.
    """
    used = {name: new for name, new in substitution.items() if name in term.free}
    if normal and not used:
        return term
    if isinstance(term, Var):
        return used.get(term.name, term)
    if isinstance(term, TypeLam):
        term = apart(term, used.values())
    bound, inner = enter(term, used)
    last = len(term.children) - 1
    children = yield from each(
        _rebuild.steps(child, inner if place == last else used, normal)
        for place, child in enumerate(term.children)
    )
    return (yield _make.steps(term, bound, children))


def enter(term: Term, substitution: dict[str, Term]) -> tuple[tuple[str, ...], dict[str, Term]]:
    """Returns the bound names, renamed so as to capture nothing, and the substitution in their scope."""
    if not term.bound:
        return (), substitution
    body = term.children[-1]
    inside = {x: new for x, new in substitution.items() if x not in term.bound and x in body.free}
    names, renaming = _fresh_names(term, body, frozenset[str]().union(*(new.free for new in inside.values())))
    return names, {**inside, **renaming}


def _fresh_names(form: Term, body: Term, outside: frozenset[str]) -> tuple[tuple[str, ...], dict[str, Term]]:
    """Returns names for the variables bound in `body` that are not in `outside`, and the body's renaming."""
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
    """Returns the normal form of the construct `form` with other bound names and with normal subterms."""
    term = form.remake(bound, tuple(children))
    if isinstance(term, Sum):
        return total(term.terms, term.type)
    if isinstance(term, terms.Both):
        empty = isinstance(term.left, terms.Zero) and isinstance(term.right, terms.Zero)
        return terms.Zero(term.type) if empty else term

    for place in linear_places(term):
        child = term.children[place]
        if isinstance(child, terms.Zero):
            return terms.Zero(term.type)
        if isinstance(child, Sum):
            summands = yield from each(
                _make.steps(form, bound, replaced(children, place, summand)) for summand in child.terms
            )
            return total(summands, term.type)

    if moved := (yield let_to_move.steps(term)):
        let, names, place, rest = moved
        inside = yield _make.steps(form, bound, replaced(children, place, rest))
        return (yield _make.steps(let, names, [let.children[0], inside]))

    match term:
        case App(function=terms.Lam() as function):
            return (yield _rebuild.steps(function.body, {function.name: term.argument}, True))
        case terms.LetStar(scrutinee=terms.Star()):
            return term.body
        case terms.LetPair(scrutinee=terms.Pair() as pair):
            # Simultaneously: the substitution of one component must not change the other.
            return (yield _rebuild.steps(term.body, {term.left: pair.left, term.right: pair.right}, True))
        case terms.Fst(product=terms.Both() as product):
            return product.left
        case terms.Snd(product=terms.Both() as product):
            return product.right
        case terms.Case(scrutinee=terms.Inl() | terms.Inr() as injected):
            side = terms.Fst if isinstance(injected, terms.Inl) else terms.Snd
            chosen = yield _make.steps(side(term.branches), (), [term.branches])
            return (yield _make.steps(App(chosen, injected.term), (), [chosen, injected.term]))
        case TypeApp(function=TypeLam() as function):
            return with_types(function.body, {function.variable: term.of})
        case terms.LetBang(scrutinee=terms.Ket() as ket):
            return (yield open_ket.steps(term, ket))
    return term


@stackless
def let_to_move(term: Term) -> "Steps[tuple[Term, tuple[str, ...], int, Term] | None]":
    """Finds a let in a linear position of the term that can move out of it.

    Returns that let, names for its variables that capture nothing outside, its position, and what stays.
    """
    if isinstance(term, TypeLam):  # a let may have the bound type variable in its types
        return None
    for place in linear_places(term):
        child = term.children[place]
        if not isinstance(child, _LETS) or (isinstance(term, _LETS) and place == 1):
            continue
        scope = frozenset(term.bound if place == len(term.children) - 1 else ())  # only the last is in scope
        let, rest = yield _movable_let.steps(child, scope)
        if let is None:
            continue
        # The let moves outwards, where the variables it binds must not capture others.
        others = [other for i, other in enumerate(term.children) if i != place]
        outside = frozenset(term.bound).union(*(other.free for other in others))
        names, renaming = _fresh_names(let, rest, outside)
        return let, names, place, (yield _rebuild.steps(rest, renaming, True))
    return None


@stackless
def _movable_let(term: Term, stays: frozenset[str]) -> "Steps[tuple[Term | None, Term]]":
    """Finds the first of a chain of lets whose subject uses no name in `stays`.

    Returns that let and the chain without it, or None and the term.
    """
    if not isinstance(term, _LETS):
        return None, term
    subject, body = term.children
    if not subject.free & stays:
        return term, body
    let, rest = yield _movable_let.steps(body, stays.union(term.bound))
    if let is None:
        return None, term
    # The two lets change places: neither may capture the other's variables.
    names, renaming = _fresh_names(let, rest, subject.free.union(term.bound))
    rest = yield _rebuild.steps(rest, renaming, True)
    return let.remake(names, let.children), term.remake(term.bound, (subject, rest))


@stackless
def open_ket(term: terms.LetBang, ket: terms.Ket) -> "Steps[Term]":
    x, body = term.name, term.body
    outside = frozenset[str]().union(*(vector.free for vector in ket.vectors))
    if x in outside:  # the x of the vectors is a different variable
        x = fresh(x, outside | body.names)
        body = yield _rebuild.steps(body, {term.name: Var(x, ket.point.type)}, True)
    summands = [body]
    for vector in ket.vectors:
        derivatives = yield from each(_derivatives.steps(summand, x, vector) for summand in summands)
        summands = list(itertools.chain(*derivatives))
    results = yield from each(_rebuild.steps(summand, {x: ket.point}, True) for summand in summands)
    return total(results, term.type)


@stackless
def _derivatives(term: Term, x: str, v: Term) -> "Steps[list[Term]]":
    """Returns the summands of d term / dx . v for normal terms, each with v for one use of the variable x.

    The summands may use x again, use linear variables of v once, and are not 0; no summand means 0.
    """
    if x not in term.free:
        return []
    if isinstance(term, Var):
        return [v]
    if isinstance(term, TypeLam):
        term = apart(term, [v])
    bound, renaming = enter(term, {x: v})
    children = list(term.children)
    renaming.pop(x, None)  # enter only chooses bound names apart from those of v; x itself stays
    if renaming:
        children[-1] = yield _rebuild.steps(children[-1], renaming, True)
    if isinstance(term, terms.Both):
        sides = yield from each(_derivatives.steps(side, x, v) for side in children)
        sums = [total(side, of.type) for side, of in zip(sides, children, strict=True)]
        return _flat([(yield _make.steps(term, (), sums))])
    results = []
    for place, child in enumerate(children):
        if x in term.bound and place == len(children) - 1:
            continue
        for derivative in (yield _derivatives.steps(child, x, v)):
            if isinstance(term, Sum):
                results.append(derivative)
            elif isinstance(term, terms.Ket) and place == 0:
                # d |v1 .. vs>_P = |v1 .. vs, dP>_P + ..: the point stays, the ket gains a vector.
                results.append((yield _make.steps(term, (), [*children, derivative])))
            else:
                results.append((yield _make.steps(term, bound, replaced(children, place, derivative))))
    return _flat(results)


def linear_places(term: Term) -> range:
    """Returns the positions of the subterms in which a construct is linear: all but the point of a ket."""
    return range(1 if isinstance(term, terms.Ket) else 0, len(term.children))


def replaced(children: list[Term], place: int, child: Term) -> list[Term]:
    return [*children[:place], child, *children[place + 1 :]]


def total(summands: Iterable[Term], of: Type) -> Term:
    flat = _flat(summands)
    return terms.Zero(of) if not flat else flat[0] if len(flat) == 1 else Sum(tuple(flat))


def _flat(summands: Iterable[Term]) -> list[Term]:
    """Flattens nested sums and removes zeros."""
    flat: list[Term] = []
    for term in summands:
        if not isinstance(term, terms.Zero):
            flat.extend(term.terms if isinstance(term, Sum) else [term])
    return flat
