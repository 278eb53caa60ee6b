"""Spans of programs: the command spaces of a linear logic RNN, with coordinates (Hu & Murfet 2017, (2.9)).

A command vector p gives the superposition sum_i p_i [[pi_i]] of programs. The superposition is a value of
their type, so a master program accepts it as an argument. Numerals and binary words have spans of their own,
which evaluate the superposition without its single programs; tests compare them with the generic `Span`.
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
from llrnn.logic.term import Term, excerpt, need_terms
from llrnn.logic.types import Bang, Type, binary, endo, finite_dimensional, integer, texts
from llrnn.logic.values import Kets, LinearMap, Value, extend, flatten, superpose, unflatten


@dataclass(frozen=True)
class Span:
    """The span of closed programs of one type.

    Attributes:
      programs: pi_0 .. pi_(n-1), at least one.

    Raises:
      IllTyped: a program is not a proof.
      LinearityError: a program is not a proof, because of a linear variable.
      ValueError: there are no programs, or they differ in type.
    """

    programs: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.programs, tuple) or not self.programs:
            raise ValueError(f"programs: got {self.programs!r}, expected a non-empty tuple of terms")
        for program in self.programs:
            need_terms(programs=program)
            if check(program) != self.programs[0].type:
                got, wanted = texts(program.type, self.programs[0].type)
                raise ValueError(
                    f"programs: got `{excerpt(program)}` : {got}, expected the type of "
                    f"`{excerpt(self.programs[0])}` : {wanted}"
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
        """Returns sum_i coordinates[i] [[pi_i]], a value of the programs' type.

        Raises:
          ValueError: the shape of the coordinates is not [dimension].
        """
        return superpose(_coordinates(coordinates, (self.dimension,)), [denote(p) for p in self.programs])


@dataclass(frozen=True)
class NumeralSpan:
    """The span of the numerals 0 .. largest over a type without bangs, evaluated by Horner's rule.

    Attributes:
      largest: L, at least 0.
      over: the type A whose operators the numerals iterate.
    """

    largest: int
    over: Type

    def __post_init__(self) -> None:
        _check("largest", self.largest, self.over)

    @property
    def dimension(self) -> int:
        """The number of coordinates, L + 1."""
        return self.largest + 1

    @property
    def type(self) -> Type:
        """The type of the programs, int_A."""
        return integer(self.over)

    @property
    def programs(self) -> tuple[Term, ...]:
        """The numerals 0 .. L."""
        return tuple(numeral(n, self.over) for n in range(self.dimension))

    def denote(self, coordinates: Float[Array | np.ndarray, "n"]) -> Value:
        """Returns sum_i coordinates[i] [[i]] of type !E -o E, which computes no power X^i.

        At the operator alpha and the vector z it computes acc <- alpha(acc) + p_i z from i = L down to 0: L
        operator applications, O(L d^2) for a matrix, as one `lax.scan`.

        Raises:
          ValueError: the shape of the coordinates is not [L + 1].
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
    """Words of a fixed length in two operators on a type without bangs, X (the digit 0) and Y (1)."""

    length: int
    over: Type

    def __post_init__(self) -> None:
        _check("length", self.length, self.over)

    @property
    def type(self) -> Type:
        """The type of the programs, bint_A."""
        return binary(self.over)

    def _on_two_bangs(self, at: Callable[[LinearMap, LinearMap, Array], Array]) -> LinearMap:
        """Returns the value of type !E -o !E -o E that maps points X, Y and a vector z to `at(X, Y, z)`."""
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
    """The span of all binary words of a fixed length over a type without bangs, by a tree of prefixes.

    The words are in lexicographic order: 00, 01, 10, 11.

    Attributes:
      length: the length of the words, at least 0.
      over: the type A on which the two operators act.
    """

    @property
    def dimension(self) -> int:
        """The number of coordinates, 2^length."""
        return 2**self.length

    @property
    def programs(self) -> tuple[Term, ...]:
        """The binary integers of all words of this length."""
        words = ("".join(digits) for digits in itertools.product("01", repeat=self.length))
        return tuple(binary_integer(word, self.over) for word in words)

    def denote(self, coordinates: Float[Array | np.ndarray, "n"]) -> Value:
        """Returns sum_w coordinates[w] [[w]] of type !E -o !E -o E.

        Words with a common prefix share its work: level k of the tree of prefixes has the values of the 2^k
        words of length k. This costs O(2^length d^2) in total.

        Raises:
          ValueError: the shape of the coordinates is not [2^length].
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

    They are the superpositions of words of a fixed length with coefficients c_w = prod_k p_(k, w_k). They do
    not form a linear space: the value is linear in the 2 coordinates of each digit. Evaluation costs
    O(length d^2).

    Attributes:
      length: the length of the words, at least 0.
      over: the type A on which the two operators act.
    """

    def denote(self, coordinates: Float[Array | np.ndarray, "length 2"]) -> Value:
        """Returns the value of type !E -o !E -o E with the given weights of 0 and 1 for each digit.

        Digit k = 0 is applied first, as in a word.

        Raises:
          ValueError: the shape of the coordinates is not [length, 2].
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


# Names that read as functions: `logic.numeral_span(8, H)`.
numeral_span, word_span, word_products = NumeralSpan, WordSpan, WordProducts


def _run(operator: LinearMap, vector: Array, a: Type) -> Array:
    return flatten(operator.apply(unflatten(vector, a)), a)


def _carry(start: Array, step: Callable[[Array], Array]) -> Array:
    # A scan needs a carry of constant dtype, which depends on operator, weights and vector.
    return start.astype(jax.eval_shape(step, start).dtype)


def _coordinates(given: Array | np.ndarray, shape: tuple[int, ...]) -> Array:
    coordinates = jnp.asarray(given)
    if coordinates.shape != shape:
        raise ValueError(f"coordinates: got shape {coordinates.shape}, expected {shape}")
    return coordinates


def _check(name: str, value: int, over: Type) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name}: got {value!r}, expected an integer of at least 0")
    if not isinstance(over, Type) or not finite_dimensional(over):
        raise ValueError(f"over: got {over!r}, expected a type without !")
