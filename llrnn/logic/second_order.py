r"""Programs at every type: with a quantifier, integers and words are closed under what is computed from them.

A numeral over one type A has to say beforehand what it iterates. As a numeral of
INTEGER = forall X. !(X -o X) -o X -o X it iterates functions of any type, also of INTEGER itself, so that the
predecessor and exponentiation can be iterated (Girard, "Linear logic", 1987).
"""

from llrnn.logic import programs
from llrnn.logic.term import Term
from llrnn.logic.terms import Fst, Snd
from llrnn.logic.tracing import bang, banged, both, lam, polymorphic
from llrnn.logic.types import ForAll, Type, TypeVariable, With, binary, endo, integer

INTEGER = ForAll("X", integer(TypeVariable("X")))
"""forall X. !(X -o X) -o X -o X, the type of Church numerals at every type."""

BINARY = ForAll("X", binary(TypeVariable("X")))
"""forall X. !(X -o X) -o !(X -o X) -o X -o X, the type of words in two operators at every type."""


def numeral(n: int) -> Term:
    r"""Returns the Church numeral n : INTEGER, /\X. \!f. \z. f (.. (f z)).

    Raises:
      ValueError: n is not an integer of at least 0.
    """
    return polymorphic(lambda X: programs.numeral(n, X))


def binary_integer(word: str) -> Term:
    """Returns a word as a program : BINARY; the digit "0" applies the first operator.

    Raises:
      ValueError: the word has other characters than "0" and "1".
    """
    return polymorphic(lambda X: programs.binary_integer(word, X))


def multiply() -> Term:
    r"""Returns multiplication : !INTEGER -o INTEGER -o INTEGER; it may be iterated in its second argument."""

    def product(m: Term, n: Term) -> Term:
        return polymorphic(lambda X: banged(endo(X), lambda f: n[X](bang(m[X](bang(f))))))

    return banged(INTEGER, lambda m: lam(INTEGER, lambda n: product(m, n)))


def power() -> Term:
    r"""Returns exponentiation : !INTEGER -o INTEGER -o INTEGER, (m, n) -> m^n: n times "m times", from 1."""

    def body(m: Term, n: Term) -> Term:
        return n[INTEGER](bang(lam(INTEGER, lambda k: multiply()(bang(m), k))), numeral(1))

    return banged(INTEGER, lambda m: lam(INTEGER, lambda n: body(m, n)))


def predecessor() -> Term:
    r"""Returns the predecessor : INTEGER -o INTEGER, 0 -> 0 and n + 1 -> n.

    The numeral iterates \p. <snd p, f (snd p)> on pairs X & X, whose first component is one step behind.
    """

    def body(n: Term, of: Type) -> Term:
        pair = With(of, of)

        def behind(f: Term) -> Term:
            return bang(lam(pair, lambda p: both(Snd(p), f(Snd(p)))))

        return banged(endo(of), lambda f: lam(of, lambda z: Fst(n[pair](behind(f), both(z, z)))))

    return lam(INTEGER, lambda n: polymorphic(lambda X: body(n, X)))


def subtract() -> Term:
    """Returns subtraction : INTEGER -o INTEGER -o INTEGER, max(m - n, 0): the predecessor n times."""
    return lam(INTEGER, INTEGER, lambda m, n: n[INTEGER](bang(predecessor()), m))
