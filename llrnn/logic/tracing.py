r"""Terms from Python functions, which are traced as in JAX: the function is called once, on variables.

    double = lam(endo(A), lambda f: ...)          \f. ..        with f : A -o A linear
    same = polymorphic(lambda X: lam(X, lambda x: x))          /\X. \x. x
    two = banged(endo(A), lambda f: lam(A, lambda z: f(f(z))))   \!f. \z. f (f z)

A bound variable has the name of the function's parameter, with a number if the body uses that name already.
"""

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import cast

from llrnn.logic.names import fresh
from llrnn.logic.term import Term, TypeLam, Var, need_terms, rename, type_variables
from llrnn.logic.terms import Both as _Both
from llrnn.logic.terms import Ket, Lam, LetBang, LetPair, LetStar
from llrnn.logic.types import Bang, Tensor, Type, TypeVariable

type Body = Callable[..., Term]

_numbers = itertools.count()  # never used twice: a variable that a function kept must not be bound by another


def lam(*types_and_body: Type | Body) -> Term:
    r"""Returns a linear function.

    `lam(A, lambda x: t)` is \x:A. t, and `lam(A, B, lambda x, y: t)` is \x:A. \y:B. t.

    Raises:
      ValueError: the type or the function is missing, or the function has a different number of parameters.
    """
    *types, body = cast(tuple[*tuple[Type, ...], Body], types_and_body)
    names, term = _trace(types, body)
    for name, of in reversed(list(zip(names, types, strict=True))):
        term = Lam(name, of, term)
    return term


def banged(*types_and_body: Type | Body) -> Term:
    r"""Returns a function of banged arguments, which its body may use any number of times.

    `banged(A, lambda x: t)` is \!x. t, that is \y:!A. let !x = y in t, and `banged(A, B, lambda x, y: t)` is
    \!x. \!y. t.

    Raises:
      ValueError: the type or the function is missing, or the function has a different number of parameters.
    """
    *types, body = cast(tuple[*tuple[Type, ...], Body], types_and_body)
    names, term = _trace(types, body)
    for name, of in reversed(list(zip(names, types, strict=True))):
        outer = fresh(f"{name}'", term.names)
        term = Lam(outer, Bang(of), LetBang(Var(outer, Bang(of)), name, term))
    return term


def polymorphic(body: Callable[[Type], Term]) -> Term:
    r"""Returns a program at every type: `polymorphic(lambda X: t)` is /\X. t, with X a type variable.

    Raises:
      ValueError: the function has not exactly one parameter, or returns no term.
    """
    (hint,) = _hints(body, 1)
    hole = TypeVariable(f"{hint}#{next(_numbers)}")
    term = _returned(body(hole))
    return TypeLam(hole.name, term).renamed(fresh(hint, type_variables(term)))


def let_bang(scrutinee: Term, body: Callable[[Term], Term]) -> Term:
    """Returns `let !x = scrutinee in body(x)`, with scrutinee : !A and x : A unrestricted."""
    need_terms(scrutinee=scrutinee)
    of = scrutinee.type
    (name,), term = _trace((of.body if isinstance(of, Bang) else of,), body)  # for other types LetBang raises
    return LetBang(scrutinee, name, term)


def let_pair(scrutinee: Term, body: Callable[[Term, Term], Term]) -> Term:
    """Returns `let x (x) y = scrutinee in body(x, y)`, with scrutinee : A (x) B and both variables linear."""
    need_terms(scrutinee=scrutinee)
    of = scrutinee.type
    sides = (of.left, of.right) if isinstance(of, Tensor) else (of, of)  # for other types LetPair raises
    (left, right), term = _trace(sides, body)
    return LetPair(scrutinee, left, right, term)


def let_star(scrutinee: Term, body: Term) -> Term:
    """Returns `let * = scrutinee in body`: the scalar scrutinee : 1 times body."""
    return LetStar(scrutinee, body)


def bang(term: Term) -> Term:
    """Returns the promotion `!term`, of type !A with term : A."""
    return Ket(term)


def both(*terms: Term) -> Term:
    """Returns <t1, <t2, .. <t(n-1), tn>>>, the product of two or more terms, nested to the right.

    Raises:
      ValueError: there are fewer than two terms.
    """
    if len(terms) < 2:
        raise ValueError(f"terms: got {len(terms)}, expected at least 2")
    *front, product = terms
    for term in reversed(front):
        product = _Both(term, product)
    return product


def _trace(types: Sequence[Type], body: Body) -> tuple[list[str], Term]:
    """Calls the function on variables of these types; returns the variables' names and the resulting term."""
    if not types or not all(isinstance(of, Type) for of in types):
        raise ValueError(f"types: got {list(types)!r}, expected at least one type before the function")
    hints = _hints(body, len(types))
    # During the call the variables have unique names, so that they capture nothing in terms built outside;
    # readable names follow once the body is known.
    holes = [Var(f"{hint}#{next(_numbers)}", of) for hint, of in zip(hints, types, strict=True)]
    term = _returned(body(*holes))
    taken = set(term.names)
    names = []
    for hint in hints:
        names.append(fresh(hint, taken))
        taken.add(names[-1])
    return names, rename(term, {hole.name: name for hole, name in zip(holes, names, strict=True)})


def _hints(body: Callable[..., Term], count: int) -> list[str]:
    """Returns the names of the parameters of a function that is to be traced."""
    if not callable(body) or isinstance(body, Term):
        raise ValueError(f"body: got {body!r}, expected a function from terms to a term")
    hints = list(inspect.signature(body).parameters)
    if len(hints) != count:
        raise ValueError(
            f"body: got a function of {len(hints)} parameters {hints}, expected {count}, one per type"
        )
    return hints


def _returned(term: object) -> Term:
    if not isinstance(term, Term):
        raise ValueError(f"body: got a function that returns {term!r}, expected one that returns a term")
    return term
