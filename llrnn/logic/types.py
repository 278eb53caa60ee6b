"""The types of intuitionistic linear logic: atoms, 1, tensor, linear implication, product and bang.

A ::= atom | 1 | A (x) B | A -o B | A & B | !A. Hu & Murfet 2017, section 2.2; states with several parts need
the product &, for instance in a Neural Turing Machine.
"""

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass

from llrnn.logic.printing import Layout, written


class Type:
    """A type of linear logic; immutable, hashable, and compared by structure."""

    def __str__(self) -> str:
        return self.text()

    def text(self, sized: Set[str] = frozenset()) -> str:
        """Returns the type in print; atoms with a name in `sized` show their dimension, `A[3]`."""
        return written(self, _ARROW, lambda t: _layout(t, sized))

    def atoms(self) -> "Iterator[Atom]":
        """Yields every occurrence of an atom, from left to right."""
        pending: list[Type] = [self]
        while pending:
            t = pending.pop()
            if isinstance(t, Atom):
                yield t
            else:
                pending.extend(reversed(list(vars(t).values())))

    __repr__ = __str__

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if not isinstance(part, Type):
                raise ValueError(f"{name}: got {part!r}, expected a type as part of {type(self).__name__}")


@dataclass(frozen=True, repr=False)
class Atom(Type):
    """A type variable, denoted by a real vector space of the given dimension.

    Attributes:
      name: the printed name; atoms with the same name and different dimensions are different types.
      dimension: the dimension of the vector space, at least 1.
    """

    name: str
    dimension: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name: got {self.name!r}, expected a non-empty string")
        integral = isinstance(self.dimension, int) and not isinstance(self.dimension, bool)
        if not integral or self.dimension < 1:
            raise ValueError(
                f"dimension of atom {self.name}: got {self.dimension!r}, expected an integer of at least 1"
            )


@dataclass(frozen=True, repr=False)
class Unit(Type):
    """The class of the tensor unit 1, with `One` as its instance."""

    def __call__(self) -> "Unit":
        """Returns `One` itself, so that `One()` works like the other constructors."""
        return self


One = Unit()
"""The tensor unit, denoted by the field of real numbers."""


@dataclass(frozen=True, repr=False)
class Tensor(Type):
    """A (x) B, denoted by the tensor product of vector spaces."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False)
class Lolli(Type):
    """A -o B, denoted by the space of linear maps."""

    domain: Type
    codomain: Type


@dataclass(frozen=True, repr=False)
class With(Type):
    """A & B, denoted by the direct sum of vector spaces."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False)
class Bang(Type):
    """!A, denoted by the cofree cocommutative coalgebra over the denotation of A (Sweedler semantics)."""

    body: Type


def endo(a: Type) -> Lolli:
    """Returns E = A -o A, the type of operators on A."""
    return Lolli(a, a)


def integer(a: Type) -> Lolli:
    """Returns int_A = !E -o E with E = A -o A, the type of Church numerals."""
    return Lolli(Bang(endo(a)), endo(a))


def binary(a: Type) -> Lolli:
    """Returns bint_A = !E -o !E -o E with E = A -o A, the type of words in two operators."""
    return Lolli(Bang(endo(a)), integer(a))


def bang_free(t: Type) -> bool:
    """Returns whether no ! occurs in t, so that its denotation has finite dimension."""
    match t:
        case Atom() | Unit():
            return True
        case Tensor(a, b) | Lolli(a, b) | With(a, b):
            return bang_free(a) and bang_free(b)
    return False


def dimension(t: Type) -> int:
    """Returns the dimension of the denotation of a type without bangs.

    Raises:
      ValueError: t contains a bang, so that its denotation is infinite-dimensional.
    """
    match t:
        case Atom(_, size):
            return size
        case Unit():
            return 1
        case Tensor(a, b) | Lolli(a, b):
            return dimension(a) * dimension(b)
        case With(a, b):
            return dimension(a) + dimension(b)
    raise ValueError(f"t: got {t}, expected a type without !, whose dimension is finite")


def texts(*types: Type) -> list[str]:
    """Returns types in print for one message: atoms of equal name and different dimensions show both."""
    names = Counter(atom.name for atom in {atom for t in types for atom in t.atoms()})
    sized = {name for name, count in names.items() if count > 1}
    return [t.text(sized) for t in types]


# Binding strength of the connectives: -o binds loosest and associates to the right, ! binds tightest.
_ARROW, _TIMES, _BANG = range(3)


def _layout(t: Type, sized: Set[str]) -> Layout[Type]:
    match t:
        case Atom(name, size):
            return _BANG, [f"{name}[{size}]" if name in sized else name]
        case Unit():
            return _BANG, ["1"]
        case Bang(a):
            return _BANG, ["!", (a, _BANG)]
        case Lolli(a, b):
            return _ARROW, [(a, _TIMES), " -o ", (b, _ARROW)]
        case Tensor(a, b):
            return _TIMES, [(a, _BANG), " (x) ", (b, _BANG)]
        case With(a, b):
            return _TIMES, [(a, _BANG), " & ", (b, _BANG)]
    raise ValueError(f"t: got {t!r}, expected a type")
