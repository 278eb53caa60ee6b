"""The types of intuitionistic linear logic: atoms, 1, tensor, linear implication, product and bang.

A ::= atom | 1 | A (x) B | A -o B | A & B | !A. Hu & Murfet 2017, section 2.2; the product & is what product
states (the memory of a Neural Turing Machine) need.
"""

from dataclasses import dataclass

from llrnn.logic.printing import Layout, written


class Type:
    """A type of linear logic. Types are immutable, hashable and equal when alike."""

    def __str__(self) -> str:
        return written(self, _ARROW, _layout)

    __repr__ = __str__

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if not isinstance(part, Type):
                raise ValueError(f"{name}: {type(self).__name__} is made of types, got {part!r}")


@dataclass(frozen=True, repr=False)
class Atom(Type):
    """A variable for a type, denoted by a real vector space of the given dimension.

    Attributes:
      name: how the atom is printed; atoms of one name and different dimensions are different types.
      dimension: of the vector space, at least 1.
    """

    name: str
    dimension: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name: an atom needs a non-empty string, got {self.name!r}")
        integral = isinstance(self.dimension, int) and not isinstance(self.dimension, bool)
        if not integral or self.dimension < 1:
            raise ValueError(
                f"dimension: atom {self.name} needs an integer of at least 1, got {self.dimension!r}"
            )


@dataclass(frozen=True, repr=False)
class Unit(Type):
    """The class of the tensor unit 1; its only instance in use is `One`."""

    def __call__(self) -> "Unit":
        """`One()` is `One`, for those who expect a constructor."""
        return self


One = Unit()
"""The tensor unit, denoted by the field of real numbers."""


@dataclass(frozen=True, repr=False)
class Tensor(Type):
    """A (x) B, denoted by the tensor product."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False)
class Lolli(Type):
    """A -o B, denoted by the space of linear maps."""

    domain: Type
    codomain: Type


@dataclass(frozen=True, repr=False)
class With(Type):
    """A & B, denoted by the direct sum."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False)
class Bang(Type):
    """!A, denoted by the cofree cocommutative coalgebra over the denotation of A (Sweedler semantics)."""

    body: Type


def endo(a: Type) -> Lolli:
    """E = A -o A, the type of operators on A."""
    return Lolli(a, a)


def integer(a: Type) -> Lolli:
    """int_A = !E -o E with E = A -o A, the type of Church numerals."""
    return Lolli(Bang(endo(a)), endo(a))


def binary(a: Type) -> Lolli:
    """bint_A = !E -o !E -o E with E = A -o A, the type of binary integers (words in two operators)."""
    return Lolli(Bang(endo(a)), integer(a))


def bang_free(t: Type) -> bool:
    """Whether no ! occurs in t, so that its denotation has finite dimension."""
    match t:
        case Atom() | Unit():
            return True
        case Tensor(a, b) | Lolli(a, b) | With(a, b):
            return bang_free(a) and bang_free(b)
    return False


def dimension(t: Type) -> int:
    """The dimension of the denotation of a type without bangs.

    Raises:
      ValueError: t contains a bang, whose denotation has no finite dimension.
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
    raise ValueError(f"t: only a type without ! has a finite dimension, got {t}")


# How tightly each connective holds its arguments: -o loosest and to the right, ! tightest.
_ARROW, _TIMES, _BANG = range(3)


def _layout(t: Type) -> Layout[Type]:
    match t:
        case Atom(name, _):
            return _BANG, [name]
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
    raise ValueError(f"t: not a type: {t!r}")
