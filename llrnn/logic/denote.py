"""The denotation of a term, as a JAX value.

Sweedler semantics of linear logic in vector spaces (Hu & Murfet 2017, section 2.2; Clift & Murfet, "Cofree
coalgebras and differential linear logic"). Promotion is evaluation at a point; `let !x = t in u` on the ket
|v1 .. vs>_P is the directional derivative of u in x at P along v1 .. vs. The values are described in
`representation`.
"""

from collections.abc import Callable, Sequence

from llrnn.logic.boundary import coerce, plain
from llrnn.logic.calculus import contract, extend
from llrnn.logic.check import check
from llrnn.logic.coordinates import pure_tensor
from llrnn.logic.representation import Kets, LinearMap, Value, WeightedKet, add, is_one, ket, scale, zero
from llrnn.logic.stackless import Steps, stackless
from llrnn.logic.terms import (
    App,
    Both,
    Fst,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Pair,
    Snd,
    Star,
    Sum,
    Term,
    Var,
    Zero,
    excerpt,
    need_terms,
)
from llrnn.logic.types import Bang, Lolli, Tensor


def denote(term: Term) -> Value:
    """The denotation of a closed term.

    Args:
      term: a closed term; it is checked once, here.

    Returns:
      Its value, by its type: an array for an atom or 1, a pair for &, a `LinearMap` for -o. A banged
      argument of a linear map is given as a plain value, an operator A -o A as a matrix or as a callable.

    Raises:
      IllTyped, LinearityError: the term is not a proof.
    """
    check(term)
    return plain(_value(term, {}))


def nonlinear(term: Term) -> Callable[..., Value]:
    """[[term]]_nl for term : !A1 -o .. -o !Ar -o B: the function (P1, .., Pr) -> [[term]](|>_P1, .., |>_Pr).

    Fewer points than banged arguments give a function of the others; points are values of A1, A2, ..

    Raises:
      IllTyped, LinearityError: the term is not a proof.
      ValueError: its type is not of the form !A -o B, or (on the call) more points are given than it has
        banged arguments.
    """
    value = _banged_map(term)

    def at(point: Value, *more: Value) -> Value:
        result: Value = value
        for given in (point, *more):
            if not isinstance(result, LinearMap) or not isinstance(result.domain, Bang):
                raise ValueError(
                    f"more: `{excerpt(term)}` : {term.type} has fewer than {1 + len(more)} banged arguments"
                )
            result = result.apply(ket(coerce(given, result.domain.body)))
        return plain(result)

    return at


def ket_value(term: Term, point: Value, vectors: Sequence[Value]) -> Value:
    """[[term]] |v1 .. vs>_point for term : !A -o B: the s-th derivative of [[term]]_nl at the point along
    the v's.

    Args:
      term: a proof of !A -o B.
      point: a value of A.
      vectors: values of A, any number; none gives [[term]]_nl(point).

    Raises:
      IllTyped, LinearityError: the term is not a proof.
      ValueError: its type is not of the form !A -o B, or a value is not one of A.
    """
    return _banged_map(term)(ket(point, *vectors))


def _banged_map(term: Term) -> LinearMap:
    need_terms(term=term)
    if not isinstance(term.type, Lolli) or not isinstance(term.type.domain, Bang):
        raise ValueError(f"term: expected a proof of a type !A -o B, got `{excerpt(term)}` : {term.type}")
    return denote(term)


@stackless
def _value(term: Term, environment: dict[str, Value]) -> "Steps[Value]":
    """The internal value of a term; an unrestricted variable x : A has a value of A, the point of |>_x."""
    match term:
        case Var():
            return environment[term.name]
        case Lam():
            return LinearMap(
                term.domain, term.body.type, lambda x: _value(term.body, {**environment, term.name: x})
            )
        case App():
            function = yield _value.steps(term.function, environment)
            argument = yield _value.steps(term.argument, environment)
            return function.apply(argument)
        case Star():
            return coerce(1.0, term.type)
        case LetStar():
            scalar = yield _value.steps(term.scrutinee, environment)
            body = yield _value.steps(term.body, environment)
            return scale(scalar, body)
        case Pair():
            left = yield _value.steps(term.left, environment)
            right = yield _value.steps(term.right, environment)
            return pure_tensor(Tensor(term.left.type, term.right.type), left, right)
        case LetPair(scrutinee=Pair() as pair):
            # A pure tensor is taken apart without being formed.
            left = yield _value.steps(pair.left, environment)
            right = yield _value.steps(pair.right, environment)
            return (yield _value.steps(term.body, {**environment, term.left: left, term.right: right}))
        case LetPair(scrutinee=scrutinee):
            tensor = yield _value.steps(scrutinee, environment)

            def bilinear(a: Value, b: Value) -> Value:
                return _value(term.body, {**environment, term.left: a, term.right: b})

            return contract(Tensor(*term.bound_types), tensor, bilinear, term.type)
        case Both():
            left = yield _value.steps(term.left, environment)
            right = yield _value.steps(term.right, environment)
            return left, right
        case Fst() | Snd():
            product = yield _value.steps(term.product, environment)
            return product[0] if isinstance(term, Fst) else product[1]
        case Ket():
            point = yield _value.steps(term.point, environment)
            vectors = []
            for vector in term.vectors:
                vectors.append((yield _value.steps(vector, environment)))
            return Kets((WeightedKet(1, point, tuple(vectors)),))
        case LetBang():
            kets = yield _value.steps(term.scrutinee, environment)
            if len(kets.terms) == 1 and not kets.terms[0].vectors:
                only = kets.terms[0]
                body = yield _value.steps(term.body, {**environment, term.name: only.point})
                return body if is_one(only.coefficient) else scale(only.coefficient, body)
            return extend(lambda x: _value(term.body, {**environment, term.name: x}), kets, term.type)
        case Sum():
            parts = []
            for part in term.terms:
                parts.append((yield _value.steps(part, environment)))
            return add(*parts)
        case Zero():
            return zero(term.of)
    raise ValueError(f"term: not a term: {term!r}")
