"""The types of second-order intuitionistic linear logic.

A ::= atom | X | 1 | A (x) B | A -o B | A & B | top | A + B | 0 | !A | forall X. A. Hu & Murfet 2017,
section 2.2, has the types of propositional logic; states with several parts need the product &, for instance
in a Neural Turing Machine. With the quantifier (Girard, "Linear logic", 1987) a program works at every type
at once, and so on its own results.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import cast

from llrnn.logic.names import fresh, shown
from llrnn.logic.printing import Layout, written
from llrnn.logic.stackless import Steps, each, stackless


class Type:
    """A type of linear logic; immutable, hashable, and compared by structure."""

    def __str__(self) -> str:
        return self.text()

    def text(self, sized: Set[str] = frozenset()) -> str:
        """Returns the type in print; atoms with a name in `sized` show their dimension, `A[3]`."""
        return written(self, _ARROW, lambda t: _layout(t, sized))

    def leaves(self) -> "Iterator[Type]":
        """Yields every occurrence of a type without parts, from left to right."""
        return (t for t in self._preorder() if not t.parts)

    def _preorder(self) -> "Iterator[Type]":
        pending: list[Type] = [self]
        while pending:
            yield (t := pending.pop())
            pending.extend(reversed(t.parts))

    @property
    def parts(self) -> "list[Type]":
        """The types of which a connective makes this one, from left to right; [] if there is none."""
        return [part for part in vars(self).values() if isinstance(part, Type)]

    def __eq__(self, other: object) -> bool:
        pending: list[tuple[object, object]] = [(self, other)]
        while pending:
            a, b = pending.pop()
            if a is b:
                continue
            if not isinstance(a, Type) or type(a) is not type(b):
                return False
            if parts := a.parts:
                pending.extend(zip(parts, cast(Type, b).parts, strict=True))
            elif vars(a) != vars(b):
                return False
        return True

    def __hash__(self) -> int:
        return hash(tuple((type(t), *([] if t.parts else vars(t).values())) for t in self._preorder()))

    def atoms(self) -> "Iterator[Atom]":
        """Yields every occurrence of an atom, from left to right."""
        return (t for t in self.leaves() if isinstance(t, Atom))

    def variables(self) -> set[str]:
        """Returns the names of the type variables that no quantifier of this type binds."""
        return {t.name for t in self.leaves() if isinstance(t, TypeVariable)}

    def nameless(self) -> "Type":
        """Returns the type with the same name in all its quantifiers: equal types then print alike."""
        return _nameless(self)

    __repr__ = __str__

    def __post_init__(self) -> None:
        for name, part in vars(self).items():
            if not isinstance(part, Type):
                raise ValueError(f"{name}: got {part!r}, expected a type as part of {type(self).__name__}")


@dataclass(frozen=True, repr=False, eq=False)
class Atom(Type):
    """A ground type, denoted by a real vector space of the given dimension.

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


@dataclass(frozen=True, repr=False, eq=False)
class TypeVariable(Type):
    """X, which stands for any type: `ForAll` binds it, and `substitute` puts a type in its place."""

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name: got {self.name!r}, expected a non-empty string")


@dataclass(frozen=True, repr=False, eq=False)
class Unit(Type):
    """The class of the tensor unit 1, with `One` as its instance."""

    def __call__(self) -> "Unit":
        """Returns `One` itself, so that `One()` works like the other constructors."""
        return self


One = Unit()
"""The tensor unit, denoted by the field of real numbers."""


@dataclass(frozen=True, repr=False, eq=False)
class Truth(Type):
    """The class of the unit of &, with `Top` as its instance."""


Top = Truth()
"""The unit of the product &, denoted by the vector space of dimension 0."""


@dataclass(frozen=True, repr=False, eq=False)
class Falsity(Type):
    """The class of the unit of +, with `Void` as its instance."""


Void = Falsity()
"""The unit 0 of +, denoted by the vector space of dimension 0."""


@dataclass(frozen=True, repr=False, eq=False)
class Tensor(Type):
    """A (x) B, denoted by the tensor product of vector spaces."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False, eq=False)
class Lolli(Type):
    """A -o B, denoted by the space of linear maps."""

    domain: Type
    codomain: Type


@dataclass(frozen=True, repr=False, eq=False)
class With(Type):
    """A & B, denoted by the direct sum of vector spaces."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False, eq=False)
class Plus(Type):
    """A + B, denoted by the direct sum of vector spaces, as is A & B."""

    left: Type
    right: Type


@dataclass(frozen=True, repr=False, eq=False)
class Bang(Type):
    """!A, denoted by the cofree cocommutative coalgebra over the denotation of A (Sweedler semantics)."""

    body: Type


@dataclass(frozen=True, repr=False, eq=False)
class _Bound(Type):
    """A variable that a quantifier binds; `depth` counts the quantifiers between the two."""

    depth: int

    def __post_init__(self) -> None:
        """Nothing to check: only `ForAll` makes these."""


@dataclass(frozen=True, repr=False, eq=False)
class ForAll(Type):
    """forall X. A, denoted by the functions that have, for every type B, a value of A with B for X.

    Equality does not depend on the name of the variable.

    Attributes:
      variable: the name X, for print.
      body: A. The constructor takes it with `TypeVariable(X)`; the attribute has each of these replaced by a
        reference to this quantifier. `instantiate` gives A with another type in its place.
    """

    variable: str = field(compare=False)
    body: Type

    def __post_init__(self) -> None:
        TypeVariable(self.variable)  # a name
        if not isinstance(self.body, Type):
            raise ValueError(f"body: got {self.body!r}, expected a type as part of ForAll")

        def closed(t: Type, depth: int) -> Type | None:
            return _Bound(depth) if t == TypeVariable(self.variable) else None

        object.__setattr__(self, "body", _with_leaves(self.body, closed))

    def instantiate(self, of: Type) -> Type:
        """Returns A with `of` in the place of X."""
        return _with_leaves(self.body, lambda t, depth: of if t == _Bound(depth) else None)

    def matches(self, of: Type) -> bool:
        """Returns whether `of` is A with some type in the place of X."""
        found: set[Type] = set()
        return _matches(self.body, of, found) and len(found) <= 1


def substitute(t: Type, types: Mapping[str, Type]) -> Type:
    """Returns a type with others in the place of its free variables; no quantifier captures a variable."""

    def replaced(leaf: Type, depth: int) -> Type | None:
        return types.get(leaf.name) if isinstance(leaf, TypeVariable) else None

    return _with_leaves(t, replaced)


@stackless
def _with_leaves(t: Type, function: Callable[[Type, int], Type | None], depth: int = 0) -> "Steps[Type]":
    """Returns a type with new leaves where `function` of a leaf and of the quantifiers above it gives one."""
    if not t.parts:
        return function(t, depth) or t
    inner = depth + isinstance(t, ForAll)
    return _of_parts(t, (yield from each(_with_leaves.steps(part, function, inner) for part in t.parts)))


@stackless
def _nameless(t: Type) -> "Steps[Type]":
    new = yield from each(_nameless.steps(part) for part in t.parts)
    return _forall("X", *new) if isinstance(t, ForAll) else _of_parts(t, new)


def _of_parts(t: Type, parts: list[Type]) -> Type:
    """Returns the same connective of other parts; the type itself if they are its own."""
    if all(new is part for new, part in zip(parts, t.parts, strict=True)):
        return t
    return _forall(t.variable, *parts) if isinstance(t, ForAll) else type(t)(*parts)


def _forall(variable: str, body: Type) -> ForAll:
    """Returns a quantifier whose body already refers to it."""
    quantified = object.__new__(ForAll)
    vars(quantified).update(variable=variable, body=body)
    return quantified


def _matches(body: Type, of: Type, found: set[Type]) -> bool:
    """Adds to `found` what stands in `of` for the variable of the quantifier above `body`."""
    pending = [(body, of, 0)]
    while pending:
        body, of, depth = pending.pop()
        if body == _Bound(depth):
            if not _closed(of):
                return False
            found.add(of)
        elif type(body) is not type(of) or (not body.parts and body != of):
            return False
        else:
            inner = depth + isinstance(body, ForAll)
            pending.extend((a, b, inner) for a, b in zip(body.parts, of.parts, strict=True))
    return True


def _closed(t: Type) -> bool:
    """Returns whether every reference in a type is to a quantifier of the type itself."""
    pending = [(t, 0)]
    while pending:
        t, depth = pending.pop()
        if isinstance(t, _Bound) and t.depth >= depth:
            return False
        pending.extend((part, depth + isinstance(t, ForAll)) for part in t.parts)
    return True


def endo(a: Type) -> Lolli:
    """Returns E = A -o A, the type of operators on A."""
    return Lolli(a, a)


def integer(a: Type) -> Lolli:
    """Returns int_A = !E -o E with E = A -o A, the type of Church numerals."""
    return Lolli(Bang(endo(a)), endo(a))


def binary(a: Type) -> Lolli:
    """Returns bint_A = !E -o !E -o E with E = A -o A, the type of words in two operators."""
    return Lolli(Bang(endo(a)), integer(a))


def finite_dimensional(t: Type) -> bool:
    """Returns whether t has no !, no quantifier and no variable, so that its values have coordinates."""
    return not any(isinstance(part, (Bang, ForAll, TypeVariable, _Bound)) for part in t._preorder())


def dimension(t: Type) -> int:
    """Returns the dimension of the denotation of a type without bangs and quantifiers.

    Raises:
      ValueError: t has a bang or a quantifier, so that its denotation is infinite-dimensional, or a variable.
    """
    return _dimension(t)


@stackless
def _dimension(t: Type) -> "Steps[int]":
    match t:
        case Atom(_, size):
            return size
        case Unit():
            return 1
        case Truth() | Falsity():
            return 0
        case Tensor() | Lolli() | With() | Plus():
            left, right = yield from each(_dimension.steps(part) for part in t.parts)
            return left + right if isinstance(t, (With, Plus)) else left * right
    raise ValueError(f"t: got {t}, expected a type without ! and quantifiers, whose dimension is finite")


def texts(*types: Type) -> list[str]:
    """Returns types in print for one message, where different types differ.

    Atoms of equal name and different dimensions show both; of type variables that print alike while their
    functions are traced, the later ones get a number.
    """
    leaves = (leaf for t in types for leaf in t.leaves())
    variables = dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, TypeVariable))
    renamed: dict[str, TypeVariable] = {}
    for name in sorted(variables, key=lambda name: name != shown(name)):  # what is not traced keeps its name
        renamed[name] = TypeVariable(fresh(shown(name), {new.name for new in renamed.values()}))
    types = tuple(substitute(t, renamed) for t in types)
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
        case Plus(a, b):
            return _TIMES, [(a, _BANG), " + ", (b, _BANG)]
        case Truth():
            return _BANG, ["top"]
        case Falsity():
            return _BANG, ["0"]
        case TypeVariable(name):
            return _BANG, [shown(name)]
        case ForAll():
            taken = {*map(shown, t.body.variables()), *(atom.name for atom in t.atoms())}
            name = fresh(shown(t.variable), taken)
            return _ARROW, [f"forall {name}. ", (t.instantiate(TypeVariable(name)), _ARROW)]
    raise ValueError(f"t: got {t!r}, expected a type")
