r"""Terms from Python functions, traced as JAX traces: the function is called once, on variables.

    double = lam(endo(A), lambda f: ...)          \f. ..        with f : A -o A linear
    two = banged(endo(A), lambda f: lam(A, lambda z: f(f(z))))   \!f. \z. f (f z)

A bound variable is named after the function's parameter, with a number when that name is taken inside.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from llrnn.logic.names import fresh, rename
from llrnn.logic.terms import Both as _Both
from llrnn.logic.terms import Ket, Lam, LetBang, LetPair, LetStar, Term, Var, need_terms
from llrnn.logic.types import Bang, Tensor, Type


def lam(*types_and_body: Any) -> Term:
    r"""`lam(A, lambda x: t)` is the linear function \x:A. t; `lam(A, B, lambda x, y: t)` takes two arguments.

    Raises:
      ValueError: no type or no function is given, or the function takes another number of arguments.
    """
    *types, body = types_and_body
    names, term = _trace(types, body)
    for name, of in reversed(list(zip(names, types, strict=True))):
        term = Lam(name, of, term)
    return term


def banged(*types_and_body: Any) -> Term:
    r"""`banged(A, lambda x: t)` is \!x. t, that is \y:!A. let !x = y in t: x : A may be used any number of
    times.

    With several types the arguments are curried: `banged(A, B, lambda x, y: t)` is \!x. \!y. t.

    Raises:
      ValueError: no type or no function is given, or the function takes another number of arguments.
    """
    *types, body = types_and_body
    names, term = _trace(types, body)
    for name, of in reversed(list(zip(names, types, strict=True))):
        outer = fresh(f"{name}'", term.names)
        term = Lam(outer, Bang(of), LetBang(Var(outer, Bang(of)), name, term))
    return term


def let_bang(scrutinee: Term, body: Callable[[Term], Term]) -> Term:
    """`let !x = scrutinee in body(x)`, with scrutinee : !A and x : A unrestricted."""
    need_terms(scrutinee=scrutinee)
    of = scrutinee.type
    (name,), term = _trace((of.body if isinstance(of, Bang) else of,), body)  # LetBang says what is wrong
    return LetBang(scrutinee, name, term)


def let_pair(scrutinee: Term, body: Callable[[Term, Term], Term]) -> Term:
    """`let x (x) y = scrutinee in body(x, y)`, with scrutinee : A (x) B and both variables linear."""
    need_terms(scrutinee=scrutinee)
    of = scrutinee.type
    sides = (of.left, of.right) if isinstance(of, Tensor) else (of, of)  # LetPair says what is wrong
    (left, right), term = _trace(sides, body)
    return LetPair(scrutinee, left, right, term)


def let_star(scrutinee: Term, body: Term) -> Term:
    """`let * = scrutinee in body`: the scalar scrutinee : 1 times body."""
    return LetStar(scrutinee, body)


def bang(term: Term) -> Term:
    """The promotion `!term`."""
    return Ket(term)


def both(*terms: Term) -> Term:
    """<t1, <t2, .. <t(n-1), tn>>>, the product of at least two terms, nested to the right."""
    if len(terms) < 2:
        raise ValueError(f"terms: a product has at least two components, got {len(terms)}")
    *front, product = terms
    for term in reversed(front):
        product = _Both(term, product)
    return product


def _trace(types: Sequence[Type], body: Callable[..., Term]) -> tuple[list[str], Term]:
    """Call the function on variables of these types; the names chosen for them and the term it returns."""
    if not types or not all(isinstance(of, Type) for of in types):
        raise ValueError(f"types: expected at least one type before the function, got {list(types)!r}")
    if not callable(body) or isinstance(body, Term):
        raise ValueError(f"body: expected a function from terms to a term, got {body!r}")
    hints = list(inspect.signature(body).parameters)
    if len(hints) != len(types):
        raise ValueError(
            f"body: {len(types)} types are given for a function of {len(hints)} parameters {hints}"
        )
    # While the function runs its variables have names that no other variable has, so that a term built
    # outside and used inside is never captured; readable names are chosen when the body is known.
    tokens = [object() for _ in types]
    holes = [Var(f"{hint}#{id(token)}", of) for hint, token, of in zip(hints, tokens, types, strict=True)]
    term = body(*holes)
    if not isinstance(term, Term):
        raise ValueError(f"body: the function must return a term, got {term!r}")
    taken = set(term.names)
    names = []
    for hint in hints:
        names.append(fresh(hint, taken))
        taken.add(names[-1])
    return names, rename(term, {hole.name: name for hole, name in zip(holes, names, strict=True)})
