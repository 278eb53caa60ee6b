"""The denotation of a term, as a JAX value.

Sweedler semantics of linear logic in vector spaces (Hu & Murfet 2017, section 2.2; Clift & Murfet, "Cofree
coalgebras and differential linear logic"). Promotion is evaluation at a point; `let !x = t in u` on the ket
|v1 .. vs>_P is the directional derivative of u in x at P along v1 .. vs. The module `values` describes the
values.

Terms may be deeper than Python's stack, with one exception: lets within each other's bodies that sum over a
tensor, or open kets with vectors, where what is inside uses the variables of all lets around it. JAX then
maps or differentiates functions within each other, and n of them cost at least 2^n anyway.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from llrnn.logic import terms
from llrnn.logic.check import check
from llrnn.logic.names import fresh
from llrnn.logic.stackless import Steps, each, stackless, steps_of
from llrnn.logic.term import Term, Var, excerpt, need_terms, with_types
from llrnn.logic.types import Bang, ForAll, Lolli, Plus, Tensor, Type, With, finite_dimensional
from llrnn.logic.values import (
    Family,
    LinearMap,
    PureTensors,
    Value,
    add,
    basis,
    coerce,
    extend,
    is_array,
    is_one,
    ket,
    plain,
    pure_tensor,
    scale,
    unflatten,
    zero,
)


def denote(term: Term) -> Value:
    """Checks a closed term and returns its denotation.

    Returns:
      A value that depends on the type: an array for an atom or 1, a pair for & and +, a `LinearMap` for -o, a
      `Family` for a quantifier. A linear map takes a plain value for a banged argument, a matrix or a
      callable for an operator A -o A.

    Raises:
      IllTyped: the term is not a proof.
      LinearityError: the term is not a proof, because of a linear variable.
    """
    check(term)
    return plain(_value(term, {}))


def nonlinear(term: Term) -> Callable[..., Value]:
    """Returns [[term]]_nl, the function (P1, .., Pr) -> [[term]](|>_P1, .., |>_Pr).

    The term has type !A1 -o .. -o !Ar -o B; the points are values of A1, A2, .. With fewer points the
    function returns a function of the remaining arguments.

    Raises:
      IllTyped: the term is not a proof.
      LinearityError: the term is not a proof, because of a linear variable.
      ValueError: the type is not of the form !A -o B, or the function is called with more points than the
        term has banged arguments.
    """
    value = _banged_map(term)

    def at(point: Value, *more: Value) -> Value:
        result: Value = value
        for given in (point, *more):
            if not isinstance(result, LinearMap) or not isinstance(result.domain, Bang):
                raise ValueError(
                    f"more: got {1 + len(more)} points, expected at most one per banged argument of "
                    f"`{excerpt(term)}` : {term.type}"
                )
            result = result.apply(ket(coerce(given, result.domain.body)))
        return plain(result)

    return at


def ket_value(term: Term, point: Value, vectors: Sequence[Value]) -> Value:
    """Returns [[term]] |v1 .. vs>_point, the s-th derivative of [[term]]_nl at the point along the vectors.

    The term has type !A -o B; the point and the vectors are values of A.

    Raises:
      IllTyped: the term is not a proof.
      LinearityError: the term is not a proof, because of a linear variable.
      ValueError: the type is not of the form !A -o B, or the point or a vector is not a value of A.
    """
    return _banged_map(term)(ket(point, *vectors))


def _banged_map(term: Term) -> LinearMap:
    need_terms(term=term)
    if not isinstance(term.type, Lolli) or not isinstance(term.type.domain, Bang):
        raise ValueError(f"term: got `{excerpt(term)}` : {term.type}, expected a type !A -o B")
    return denote(term)


@stackless
def _value(term: Term, environment: dict[str, Value]) -> "Steps[Value]":
    """Returns the internal value of a term; `environment` has, for an unrestricted x : A, a value of A."""
    match term:
        case terms.Var():
            return environment[term.name]
        case terms.Lam():
            body = stackless(lambda x: _value.steps(term.body, {**environment, term.name: x}))
            return LinearMap(term.domain, term.body.type, body)
        case terms.App():
            function, argument = yield from each(_value.steps(part, environment) for part in term.children)
            return (yield steps_of(function.apply, argument))
        case terms.Star():
            return coerce(1.0, term.type)
        case terms.LetStar():
            scalar, body = yield from each(_value.steps(part, environment) for part in term.children)
            return scale(scalar, body)
        case terms.Pair():
            left, right = yield from each(_value.steps(part, environment) for part in term.children)
            return pure_tensor(Tensor(term.left.type, term.right.type), left, right)
        case terms.LetPair(scrutinee=terms.Pair() as pair):
            # The two sides of a pure tensor are bound without computing the tensor.
            left, right = yield from each(_value.steps(part, environment) for part in pair.children)
            return (yield _value.steps(term.body, {**environment, term.left: left, term.right: right}))
        case terms.LetPair(body=terms.LetPair() as inner) if not _uses(inner, term.bound):
            # Both variables are in the scrutinee of the next pair, which is linear: the sum ends there.
            first = terms.LetPair(term.scrutinee, term.left, term.right, inner.scrutinee)
            second = terms.LetPair(first, inner.left, inner.right, inner.body)
            return (yield _value.steps(second, environment))
        case terms.LetPair():
            tensor = yield _value.steps(term.scrutinee, environment)
            body, environment = yield _without_rest.steps(term, environment)
            bilinear = stackless(
                lambda a, b: _value.steps(body, {**environment, term.left: a, term.right: b})
            )
            return (yield _contract.steps(Tensor(*term.bound_types), tensor, bilinear, term.type))
        case terms.Both():
            return tuple((yield from each(_value.steps(part, environment) for part in term.children)))
        case terms.Inl():
            return (yield _value.steps(term.term, environment)), zero(term.right)
        case terms.Inr():
            return zero(term.left), (yield _value.steps(term.term, environment))
        case terms.Case():
            parts, branches = yield from each(_value.steps(part, environment) for part in term.children)
            results = (steps_of(f.apply, part) for f, part in zip(branches, parts, strict=True))
            return add(*(yield from each(results)))
        case terms.Absurd():
            return zero(term.of)
        case terms.TypeLam():

            def at(of: Type) -> Steps[Value]:
                return (yield _value.steps(with_types(term.body, {term.variable: of}), environment))

            return Family(ForAll(term.variable, term.body.type), stackless(at))
        case terms.TypeApp():
            family = yield _value.steps(term.function, environment)
            return (yield steps_of(family.at, term.of))
        case terms.Fst() | terms.Snd():
            product = yield _value.steps(term.product, environment)
            return product[0] if isinstance(term, terms.Fst) else product[1]
        case terms.Ket():
            values = yield from each(_value.steps(part, environment) for part in term.children)
            return ket(*values)
        case terms.LetBang():
            kets = yield _value.steps(term.scrutinee, environment)
            if len(kets.terms) == 1 and not kets.terms[0].vectors:
                only = kets.terms[0]
                body = yield _value.steps(term.body, {**environment, term.name: only.point})
                return body if is_one(only.coefficient) else scale(only.coefficient, body)
            body, environment = yield _without_rest.steps(term, environment)
            return extend(lambda x: _value(body, {**environment, term.name: x}), kets, term.type)
        case terms.Sum():
            return add(*(yield from each(_value.steps(part, environment) for part in term.terms)))
        case terms.Zero() | terms.Trivial():
            return zero(term.type)
    raise ValueError(f"term: got {term!r}, expected a term")


def _uses(inner: terms.LetPair, names: Sequence[str]) -> bool:
    """Returns whether the body of a let uses one of the names, other than as its own."""
    return not inner.body.free.difference(inner.bound).isdisjoint(names)


@stackless
def _without_rest(
    term: terms.LetPair | terms.LetBang, environment: dict[str, Value]
) -> "Steps[tuple[Term, dict[str, Value]]]":
    """Returns a let's body with variables for what does not depend on the let, and an environment with these.

    JAX maps or differentiates the body, from within its own functions. What is outside of the body needs no
    stack of Python, and is evaluated once.
    """
    body, rest = yield _split.steps(term.body, frozenset(term.bound), {*environment, *term.names})
    values = yield from each(_value.steps(part, environment) for part in rest.values())
    return body, {**environment, **dict(zip(rest, values, strict=True))}


@stackless
def _split(term: Term, bound: frozenset[str], taken: set[str]) -> "Steps[tuple[Term, dict[str, Term]]]":
    """Replaces the largest parts of a term without the bound variables by variables, adds to names `taken`.

    Returns:
      The term, and the parts by the names of their variables.
    """
    if not term.children:
        return term, {}
    if not term.free & bound:
        name = fresh("part", taken)
        taken.add(name)
        return Var(name, term.type), {name: term}
    if isinstance(term, terms.TypeLam):  # its parts may have its type variable
        return term, {}
    children, found = [], {}
    for place, child in enumerate(term.children):
        inner = bound.union(term.bound) if place == len(term.children) - 1 else bound
        child, parts = yield _split.steps(child, inner, taken)
        children.append(child)
        found |= parts
    return term.remake(term.bound, tuple(children)), found


@stackless
def _contract(of: Tensor, value: Value, body: stackless, result: Type) -> "Steps[Value]":
    """Applies a bilinear function to a value of A (x) B: sums body(a, b) over its pure tensors."""
    if isinstance(value, PureTensors):
        bodies = yield from each(body.steps(*sides) for sides in value.terms)
        return (yield add.steps(*bodies)) if bodies else zero(result)
    # The sum is over the shorter side: value = sum_i e_i (x) row_i = sum_j column_j (x) e_j.
    rows, columns = value.shape
    parts = (basis(rows), value) if rows <= columns else (value.T, basis(columns))
    at = stackless(lambda part: body.steps(unflatten(part[0], of.left), unflatten(part[1], of.right)))
    return (yield _sum_over.steps(at, parts, min(rows, columns), result))


@stackless
def _sum_over(function: stackless, parts: Any, count: int, of: Type) -> "Steps[Value]":
    """Sums function(part), a value of type `of`, over the leading axis of `parts`."""
    if count == 1:
        return (yield function.steps(jax.tree.map(lambda part: part[0], parts)))
    if _is_arrays(of):
        return jax.tree.map(lambda found: jnp.sum(found, axis=0), jax.vmap(function)(parts))
    match of:
        case Lolli(a, b):

            def at(x: Value) -> Steps[Value]:
                def applied(part: Any) -> Steps[Value]:
                    return (yield steps_of((yield function.steps(part)).apply, x))

                return (yield _sum_over.steps(stackless(applied), parts, count, b))

            return LinearMap(a, b, stackless(at))
        case With() | Plus() if finite_dimensional(of):
            sides = []
            for i, side in enumerate(of.parts):

                def component(part: Any, i: int = i) -> Steps[Value]:
                    return (yield function.steps(part))[i]

                sides.append((yield _sum_over.steps(stackless(component), parts, count, side)))
            return tuple(sides)
    one_by_one = [jax.tree.map(lambda part, i=i: part[i], parts) for i in range(count)]
    found = yield from each(function.steps(part) for part in one_by_one)
    return (yield add.steps(*found)) if found else zero(of)


def _is_arrays(of: Type) -> bool:
    """Returns whether a value of the type is an array, or a tree of pairs of arrays."""
    pending = [of]
    while pending:
        part = pending.pop()
        if isinstance(part, (With, Plus)):
            pending.extend(part.parts)
        elif not is_array(part):
            return False
    return True
