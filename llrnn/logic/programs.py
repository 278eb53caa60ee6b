r"""A library of programs: closed terms over any type A, with E = A -o A.

int_A = !E -o E is the type of Church numerals, bint_A = !E -o !E -o E the type of words in two operators (Hu
& Murfet 2017, Examples 2.6 and 2.7). A word applies its digits from left to right: 01101(X, Y) = Y X Y Y X.
"""

from llrnn.logic.term import Term
from llrnn.logic.tracing import bang, banged, lam
from llrnn.logic.types import Type, binary, endo, integer


def numeral(n: int, a: Type) -> Term:
    r"""Returns the Church numeral n : int_A = \!f. \z. f (.. (f z)), with [[n]]_nl(X) = X^n (Example 2.6).

    Raises:
      ValueError: n is not an integer of at least 0.
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise ValueError(f"n: got {n!r}, expected an integer of at least 0")
    return banged(endo(a), lambda f: lam(a, lambda z: _apply([f] * n, z)))


def binary_integer(word: str, a: Type) -> Term:
    r"""Returns a word as a program : bint_A, 01101 = \!x. \!y. \z. y (x (y (y (x z)))) (Example 2.7).

    The digit "0" applies the first operator, "1" the second; the word may be empty.

    Raises:
      ValueError: the word has other characters.
    """
    if not isinstance(word, str) or set(word) - {"0", "1"}:
        raise ValueError(f'word: got {word!r}, expected a string of "0" and "1"')
    e = endo(a)
    return banged(
        e, e, lambda x, y: lam(a, lambda z: _apply([x if digit == "0" else y for digit in word], z))
    )


def plus(a: Type) -> Term:
    r"""Returns addition : int -o int -o int, with X^m X^n = X^(m + n)."""
    n = integer(a)
    return lam(n, n, lambda m, n: banged(endo(a), lambda f: lam(a, lambda z: m(bang(f))(n(bang(f))(z)))))


def mult(a: Type) -> Term:
    r"""Returns multiplication : int -o !int -o int, (X^n)^m: each step of the first runs the second."""
    i = integer(a)
    return lam(i, lambda m: banged(i, lambda n: banged(endo(a), lambda f: m(bang(n(bang(f)))))))


def square(a: Type) -> Term:
    r"""Returns squaring : !int -o int, n -> n^2. A superposition p gives p(p(X)), not the sum of X^(n^2)."""
    return banged(integer(a), lambda n: banged(endo(a), lambda f: n(bang(n(bang(f))))))


def concat(a: Type) -> Term:
    r"""Returns concatenation : bint -o bint -o bint, which maps S and T to the word ST; S runs first."""
    b, e = binary(a), endo(a)

    def word(s: Term, t: Term) -> Term:
        return banged(e, e, lambda x, y: lam(a, lambda z: t(bang(x), bang(y))(s(bang(x), bang(y))(z))))

    return lam(b, b, word)


def repeat(a: Type) -> Term:
    r"""Returns repetition : !bint -o bint, S -> SS."""
    e = endo(a)

    def word(s: Term) -> Term:
        return banged(e, e, lambda x, y: lam(a, lambda z: s(bang(x), bang(y))(s(bang(x), bang(y))(z))))

    return banged(binary(a), word)


def evaluate(a: Type) -> Term:
    r"""Returns !int -o !E -o E, ([[n]], X) -> X^n, the master of the higher-order RNN (Example 2.9)."""
    return banged(integer(a), endo(a), lambda n, f: n(bang(f)))


def compose(a: Type) -> Term:
    r"""Returns composition : E -o E -o E, (X, Y) -> X Y."""
    e = endo(a)
    return lam(e, e, lambda f, g: lam(a, lambda z: f(g(z))))


def dereliction(a: Type) -> Term:
    r"""Returns \!x. x : !A -o A. With A = H -o H it is the master of the second-order RNN (Example 2.8)."""
    return banged(a, lambda x: x)


def feed(a: Type) -> Term:
    r"""Returns bint -o !int -o !int -o !E -o E, (S, m, n, X) -> S(X^m, X^n): it feeds two numerals to a word.

    For a word with k zeros and l ones and numerals m, n the value is X^(k m + l n). Each use of a digit
    samples a superposition again: for the word 00 and m = sum_i l_i [[i]] the value is (sum_i l_i X^i)^2, not
    sum_i l_i X^(2 i). The later draft promotes m and n although they are linear there; here they are banged.
    """
    i = integer(a)

    def body(s: Term) -> Term:
        return banged(i, i, endo(a), lambda m, n, f: s(bang(m(bang(f))), bang(n(bang(f)))))

    return lam(binary(a), body)


def _apply(functions: list[Term], argument: Term) -> Term:
    """Applies the functions one after the other, from the first to the last."""
    for function in functions:
        argument = function(argument)
    return argument
