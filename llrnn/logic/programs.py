r"""A library of programs: closed terms over any type A, with E = A -o A.

int_A = !E -o E holds the Church numerals, bint_A = !E -o !E -o E the words in two operators (Hu & Murfet
2017, Examples 2.6 and 2.7). A word applies its digits from left to right: 01101(X, Y) = Y X Y Y X.
"""

from llrnn.logic.terms import Term
from llrnn.logic.tracing import bang, banged, lam
from llrnn.logic.types import Type, binary, endo, integer


def numeral(n: int, a: Type) -> Term:
    r"""The Church numeral n : int_A = \!f. \z. f (.. (f z)), with [[n]]_nl(X) = X^n (Example 2.6).

    Raises:
      ValueError: n is not an integer of at least 0.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n: expected an integer of at least 0, got {n!r}")
    return banged(endo(a), lambda f: lam(a, lambda z: _apply([f] * n, z)))


def binary_integer(word: str, a: Type) -> Term:
    r"""The binary integer of a word : bint_A, 01101 = \!x. \!y. \z. y (x (y (y (x z)))) (Example 2.7).

    A word has digits "0" (the first operator) and "1" (the second), and may be empty.

    Raises:
      ValueError: the word has other characters.
    """
    if not isinstance(word, str) or set(word) - {"0", "1"}:
        raise ValueError(f'word: expected a string of "0" and "1", got {word!r}')
    e = endo(a)
    return banged(
        e, e, lambda x, y: lam(a, lambda z: _apply([x if digit == "0" else y for digit in word], z))
    )


def plus(a: Type) -> Term:
    r"""Addition : int -o int -o int, X^m X^n = X^(m + n)."""
    n = integer(a)
    return lam(n, n, lambda m, n: banged(endo(a), lambda f: lam(a, lambda z: m(bang(f))(n(bang(f))(z)))))


def mult(a: Type) -> Term:
    r"""Multiplication : int -o !int -o int, (X^n)^m: the second numeral is run at every step of the first."""
    i = integer(a)
    return lam(i, lambda m: banged(i, lambda n: banged(endo(a), lambda f: m(bang(n(bang(f)))))))


def square(a: Type) -> Term:
    r"""Squaring : !int -o int, n -> n^2. On a superposition p it is p(p(X)), not the sum of X^(n^2)."""
    return banged(integer(a), lambda n: banged(endo(a), lambda f: n(bang(n(bang(f))))))


def concat(a: Type) -> Term:
    r"""Concatenation : bint -o bint -o bint; of S and T it is the word ST, which runs S first."""
    b, e = binary(a), endo(a)

    def word(s: Term, t: Term) -> Term:
        return banged(e, e, lambda x, y: lam(a, lambda z: t(bang(x), bang(y))(s(bang(x), bang(y))(z))))

    return lam(b, b, word)


def repeat(a: Type) -> Term:
    r"""Repetition : !bint -o bint, S -> SS."""
    e = endo(a)

    def word(s: Term) -> Term:
        return banged(e, e, lambda x, y: lam(a, lambda z: s(bang(x), bang(y))(s(bang(x), bang(y))(z))))

    return banged(binary(a), word)


def evaluate(a: Type) -> Term:
    r"""Evaluation : !int -o !E -o E, ([[n]], X) -> X^n: the master of the higher-order RNN (Example 2.9)."""
    return banged(integer(a), endo(a), lambda n, f: n(bang(f)))


def compose(a: Type) -> Term:
    r"""Composition : E -o E -o E, (X, Y) -> X Y."""
    e = endo(a)
    return lam(e, e, lambda f, g: lam(a, lambda z: f(g(z))))


def dereliction(a: Type) -> Term:
    r"""\!x. x : !A -o A. At A = H -o H it is the master algorithm of the second-order RNN (Example 2.8)."""
    return banged(a, lambda x: x)


def feed(a: Type) -> Term:
    r"""Feed two numerals to a word : bint -o !int -o !int -o !E -o E, (S, m, n, X) -> S(X^m, X^n).

    For a word with k zeros and l ones it is X^(k m + l n), as long as m and n are numerals. A superposition
    is resampled at every use of a digit: for the word 00 and m = sum_i l_i [[i]] the value is
    (sum_i l_i X^i)^2, not sum_i l_i X^(2 i). The later draft promotes m and n although they are linear there;
    they need their bangs.
    """
    i = integer(a)

    def body(s: Term) -> Term:
        return banged(i, i, endo(a), lambda m, n, f: s(bang(m(bang(f))), bang(n(bang(f)))))

    return lam(binary(a), body)


def _apply(functions: list[Term], argument: Term) -> Term:
    """The functions applied one after the other, the first one first."""
    for function in functions:
        argument = function(argument)
    return argument
