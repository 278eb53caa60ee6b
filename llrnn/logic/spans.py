"""Spans of programs: the command spaces of a linear logic RNN, with coordinates (Hu & Murfet 2017, (2.9)).

A command vector p gives the superposition sum_i p_i [[pi_i]] of programs. It is itself a value of their
type, so it can be given to a master program as it is. The families that matter have a method that never
forms the programs one by one; each is tested equal to the generic one.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from llrnn.logic.check import check
from llrnn.logic.denote import denote
from llrnn.logic.programs import binary_integer, numeral
from llrnn.logic.terms import Term, excerpt, need_terms
from llrnn.logic.types import Bang, Type, bang_free, binary, endo, integer
from llrnn.logic.values import Kets, LinearMap, Value, extend, flatten, superpose, unflatten


@dataclass(frozen=True)
class Span:
    """The span of closed programs of one type.

    Attributes:
      programs: pi_0 .. pi_(n-1), at least one.

    Raises:
      IllTyped, LinearityError: a program is not a proof.
      ValueError: there are no programs, or they differ in type.
    """

    programs: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.programs, tuple) or not self.programs:
            raise ValueError(f"programs: expected a non-empty tuple of terms, got {self.programs!r}")
        for program in self.programs:
            need_terms(programs=program)
            if check(program) != self.programs[0].type:
                raise ValueError(
                    f"programs: all have one type, but `{excerpt(self.programs[0])}` : "
                    f"{self.programs[0].type} and `{excerpt(program)}` : {program.type}"
                )

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.programs)

    @property
    def type(self) -> Type:
        """The type of the programs."""
        return self.programs[0].type

    def denote(self, coordinates: Float[Array | np.ndarray, "n"]) -> Value:
        """sum_i coordinates[i] [[pi_i]], a value of the programs' type.

        Raises:
          ValueError: the coordinates are not [dimension].
        """
        return superpose(_coordinates(coordinates, (self.dimension,)), [denote(p) for p in self.programs])


@dataclass(frozen=True)
class NumeralSpan:
    """The span of the numerals 0 .. largest over a type without bangs, evaluated by Horner's rule.

    Attributes:
      largest: L, at least 0.
      over: the type A iterated over.
    """

    largest: int
    over: Type

    def __post_init__(self) -> None:
        _check("largest", self.largest, self.over)

    @property
    def dimension(self) -> int:
        """L + 1."""
        return self.largest + 1

    @property
    def type(self) -> Type:
        """int_A."""
        return integer(self.over)

    @property
    def programs(self) -> tuple[Term, ...]:
        """The numerals 0 .. L."""
        return tuple(numeral(n, self.over) for n in range(self.dimension))

    def denote(self, coordinates: Float[Array | np.ndarray, "n"]) -> Value:
        """sum_i coordinates[i] [[i]] of type !E -o E, in which X^i is never formed.

        At the operator alpha and the vector z it runs acc <- alpha(acc) + p_i z from i = L down to 0: L
        operator applications, O(L d^2) for a matrix, as one `lax.scan`.

        Raises:
          ValueError: the coordinates are not [L + 1].
        """
        p = _coordinates(coordinates, (self.dimension,))
        a, e = self.over, endo(self.over)

        def at(alpha: LinearMap, z: Value) -> Value:
            flat = flatten(z, a)

            def horner(accumulated: Array, weight: Array) -> tuple[Array, None]:
                return _run(alpha, accumulated, a) + weight * flat, None

            start = _carry(p[-1] * flat, lambda x: horner(x, p[-1])[0])
            return unflatten(jax.lax.scan(horner, start, p[:-1], reverse=True)[0], a)

        def polynomial(alpha: LinearMap) -> LinearMap:
            return LinearMap(a, a, lambda z: at(alpha, z))

        return LinearMap(Bang(e), e, lambda kets: extend(polynomial, kets, e))


@dataclass(frozen=True)
class _Words:
    """Words of one length over a type without bangs, in two operators X (the digit 0) and Y (the digit 1)."""

    length: int
    over: Type

    def __post_init__(self) -> None:
        _check("length", self.length, self.over)

    @property
    def type(self) -> Type:
        """bint_A."""
        return binary(self.over)

    def _on_two_bangs(self, at: Callable[[LinearMap, LinearMap, Array], Array]) -> LinearMap:
        """The value of type !E -o !E -o E whose coordinates at the points X, Y and the vector z are these."""
        a, e = self.over, endo(self.over)

        def at_points(x: LinearMap, y: LinearMap) -> LinearMap:
            return LinearMap(a, a, lambda z: unflatten(at(x, y, flatten(z, a)), a))

        def first(xs: Kets) -> LinearMap:
            def second(ys: Kets) -> LinearMap:
                return extend(lambda x: extend(lambda y: at_points(x, y), ys, e), xs, e)

            return LinearMap(Bang(e), e, second)

        return LinearMap(Bang(e), integer(a), first)


@dataclass(frozen=True)
class WordSpan(_Words):
    """The span of all binary words of one length over a type without bangs, along the tree of prefixes.

    The words are in the order of the numbers they write, the first digit the most significant: 00, 01, 10,
    11.

    Attributes:
      length: of the words, at least 0.
      over: the type A iterated over.
    """

    @property
    def dimension(self) -> int:
        """2^length."""
        return 2**self.length

    @property
    def programs(self) -> tuple[Term, ...]:
        """The binary integers of all words of this length."""
        words = ("".join(digits) for digits in itertools.product("01", repeat=self.length))
        return tuple(binary_integer(word, self.over) for word in words)

    def denote(self, coordinates: Float[Array | np.ndarray, "n"]) -> Value:
        """sum_w coordinates[w] [[w]] of type !E -o !E -o E; words with a common prefix share its work.

        Level k of the tree holds the 2^k values of the words of length k: O(2^length d^2) in all.

        Raises:
          ValueError: the coordinates are not [2^length].
        """
        p = _coordinates(coordinates, (self.dimension,))

        def at(x: LinearMap, y: LinearMap, z: Array) -> Array:
            level = z[None, :]
            for _ in range(self.length):
                zero, one = (jax.vmap(lambda v, op=op: _run(op, v, self.over))(level) for op in (x, y))
                level = jnp.reshape(jnp.stack([zero, one], axis=1), (-1, level.shape[1]))
            return p @ level

        return self._on_two_bangs(at)


@dataclass(frozen=True)
class WordProducts(_Words):
    """Products of superposed digits, prod_k (p_k0 X + p_k1 Y), over a type without bangs.

    They are the words of one length whose coefficients are products, c_w = prod_k p_(k, w_k): not a linear
    space (2 coordinates a digit, and the value is linear in each digit's pair), but one that costs O(length
    d^2).

    Attributes:
      length: of the words, at least 0.
      over: the type A iterated over.
    """

    def denote(self, coordinates: Float[Array | np.ndarray, "length 2"]) -> Value:
        """The value of type !E -o !E -o E with these weights of the digits 0 and 1 at each place.

        Digit k = 0 is applied first, as in a word.

        Raises:
          ValueError: the coordinates are not [length, 2].
        """
        p = _coordinates(coordinates, (self.length, 2))
        a = self.over

        def at(x: LinearMap, y: LinearMap, z: Array) -> Array:
            def digit(state: Array, weights: Array) -> tuple[Array, None]:
                return weights[0] * _run(x, state, a) + weights[1] * _run(y, state, a), None

            if self.length == 0:
                return z
            return jax.lax.scan(digit, _carry(z, lambda v: digit(v, p[0])[0]), p)[0]

        return self._on_two_bangs(at)


# In programs these read better as functions: `logic.numeral_span(8, H)`.
numeral_span, word_span, word_products = NumeralSpan, WordSpan, WordProducts


def _run(operator: LinearMap, vector: Array, a: Type) -> Array:
    return flatten(operator.apply(unflatten(vector, a)), a)


def _carry(start: Array, step: Callable[[Array], Array]) -> Array:
    # A scan keeps the dtype of its carry; operator, weights and vector decide it together.
    return start.astype(jax.eval_shape(step, start).dtype)


def _coordinates(given: Array | np.ndarray, shape: tuple[int, ...]) -> Array:
    coordinates = jnp.asarray(given)
    if coordinates.shape != shape:
        raise ValueError(f"coordinates: expected shape {shape}, got {coordinates.shape}")
    return coordinates


def _check(name: str, value: int, over: Type) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}: expected an integer of at least 0, got {value!r}")
    if not isinstance(over, Type) or not bang_free(over):
        raise ValueError(f"over: expected a type without !, got {over!r}")
