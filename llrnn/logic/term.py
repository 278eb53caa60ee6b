"""What all terms have in common: types, names, equality up to bound names, substitution of types, printing.

A term is one construct of the language over its subterms. Here are variables, of terms and of types, and the
constructs that operators of Python make: application, sums, and a program at a type. `llrnn.logic.terms` has
all constructs.
"""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from llrnn.logic.names import fresh, shown
from llrnn.logic.printing import Layout, written
from llrnn.logic.stackless import Steps, each, stackless
from llrnn.logic.types import (
    Bang,
    ForAll,
    Lolli,
    Plus,
    Tensor,
    Type,
    TypeVariable,
    With,
    substitute,
    texts,
)

# Binding strength of the constructs: a binder extends as far right as possible, an atom needs no brackets.
OPEN, SUM, PAIR, APPLY, ATOM = range(5)


class IllTyped(ValueError):
    """A term breaks a rule of the logic; the message gives the place and a repair."""


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """A term of linear logic, immutable and hashable; a call applies it, `+` is the sum of proofs.

    Attributes:
      type: the type of the term.
      children: the immediate subterms, in order.
      bound: names of the variables that the term binds; their scope is the last child.
      bound_types: types of the bound variables.
      free: names of the free variables.
      names: all names in the term, free and bound.
      skeleton: a hash that ignores names and types and is the same in every process.
    """

    type: Type = field(init=False)
    children: tuple["Term", ...] = field(init=False)
    bound: tuple[str, ...] = field(init=False)
    bound_types: tuple[Type, ...] = field(init=False)
    free: frozenset[str] = field(init=False)
    names: frozenset[str] = field(init=False)
    skeleton: int = field(init=False)  # stored, so that hashing does not recurse

    def settle(
        self,
        of: Type,
        *children: "Term",
        bound: Mapping[str, Type] = MappingProxyType({}),
        variable: frozenset[str] = frozenset(),
    ) -> None:
        """Sets the fields above, for constructors.

        `bound` scopes over the last child; `variable` is the name of a variable.
        """
        *others, last = (child.free for child in children) if children else (variable,)
        fields = vars(self)  # written directly, since a frozen dataclass forbids assignment
        fields |= {
            "type": of,
            "children": children,
            "bound": tuple(bound),
            "bound_types": tuple(bound.values()),
            "free": last.difference(bound).union(*others),
            "names": variable.union(bound, *(child.names for child in children)),
            "skeleton": zlib.crc32(repr((type(self).__name__, *(c.skeleton for c in children))).encode()),
        }

    def remake(self, bound: tuple[str, ...], children: tuple["Term", ...]) -> "Term":
        """Returns the same construct with other bound names and other subterms."""
        if not children:
            return self
        names, terms, parts = iter(bound), iter(children), []
        for name in self.__match_args__:  # the arguments of the constructor
            match getattr(self, name):
                case str():
                    parts.append(next(names))
                case Term():
                    parts.append(next(terms))
                case tuple():
                    parts.append(tuple(terms))
                case of:
                    parts.append(of)
        return type(self)(*parts)

    def layout(self, types: bool) -> "Layout[Term]":
        """Returns the binding strength of the construct and the pieces of its text; see `show`."""
        raise NotImplementedError

    def __call__(self, *arguments: "Term") -> "Term":
        """Applies the term, curried: `f(a, b)` is `App(App(f, a), b)`."""
        term: Term = self
        for argument in arguments:
            term = App(term, argument)
        return term

    def __add__(self, other: "Term") -> "Term":
        return Sum((self, other))

    def __getitem__(self, of: Type) -> "Term":
        """Returns a term of a quantified type at a type: `t[A]` is `TypeApp(t, A)`."""
        return TypeApp(self, of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Term) and alpha_equal(self, other)

    def __hash__(self) -> int:
        return self.skeleton

    def __str__(self) -> str:
        return show(self)

    def __repr__(self) -> str:
        return f"<{self} : {self.type}>"

    def __copy__(self) -> "Term":
        return self

    def __deepcopy__(self, memo: object) -> "Term":
        return self  # immutable, and often too deep for Python's recursive copy

    def __reduce__(self) -> tuple[Callable[..., "Term"], tuple[object, ...]]:
        """Pickles the subterms as a list without nesting, since pickle's recursion is Python's, too."""
        numbers: dict[int, int] = {}  # in the list, by the identity of the subterm
        made: list[tuple[type[Term], list[object]]] = []
        pending = [self]
        while pending:
            term = pending[-1]
            missing = [child for child in term.children if id(child) not in numbers]
            pending += missing
            if missing:
                continue
            pending.pop()
            if id(term) in numbers:
                continue
            numbers[id(term)] = len(made)
            parts: list[object] = []
            for name in term.__match_args__:  # the arguments of the constructor
                match getattr(term, name):
                    case Term() as part:
                        parts.append(numbers[id(part)])
                    case tuple() as several:
                        parts.append(tuple(numbers[id(part)] for part in several))
                    case other:
                        parts.append(other)
            made.append((type(term), parts))
        return _unpickled, (made,)


def _unpickled(made: list[tuple[type[Term], list[Any]]]) -> Term:
    """Returns the last term of a list in which integers stand for terms before; see `Term.__reduce__`."""
    terms: list[Term] = []
    for kind, parts in made:
        arguments: list[Any] = []
        for part in parts:
            match part:
                case int():
                    arguments.append(terms[part])
                case tuple():
                    arguments.append(tuple(terms[number] for number in part))
                case other:
                    arguments.append(other)
        terms.append(kind(*arguments))
    return terms[-1]


@dataclass(frozen=True, eq=False, repr=False)
class Var(Term):
    """A variable; its binder makes it linear or unrestricted.

    Attributes:
      name: the name of the variable.
      of: the type of the variable; `let !x = t` with t : !A binds an unrestricted x : A.
    """

    name: str
    of: Type

    def __post_init__(self) -> None:
        need(isinstance(self.name, str) and bool(self.name), "name", "a non-empty string", self.name)
        need(isinstance(self.of, Type), "of", f"the type of variable {self.name}", self.of)
        self.settle(self.of, variable=frozenset((self.name,)))

    def layout(self, types: bool) -> Layout[Term]:
        return ATOM, [shown(self.name)]


@dataclass(frozen=True, eq=False, repr=False)
class App(Term):
    """Application of function : A -o B to argument : A."""

    function: Term
    argument: Term

    def __post_init__(self) -> None:
        need_terms(function=self.function, argument=self.argument)
        of = self.function.type
        if not isinstance(of, Lolli):
            raise IllTyped(
                f"function: got `{excerpt(self.function)}` : {of}, expected a type A -o B for the argument "
                f"`{excerpt(self.argument)}` : {self.argument.type}"
            )
        if of.domain != self.argument.type:
            got, wanted, function = texts(self.argument.type, of.domain, of)
            raise IllTyped(
                f"argument: got `{excerpt(self.argument)}` : {got}, expected type {wanted} for "
                f"`{excerpt(self.function)}` : {function}{bang_advice(of.domain, self.argument)}"
            )
        self.settle(of.codomain, self.function, self.argument)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, [(self.function, APPLY), " ", (self.argument, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Term):
    """A sum of one or more proofs of the same type from the same linear variables."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        several = isinstance(self.terms, tuple) and len(self.terms) > 0
        need(several, "terms", "a non-empty tuple of terms", self.terms)
        for term in self.terms:
            need_terms(terms=term)
            if term.type != self.terms[0].type:
                got, wanted = texts(term.type, self.terms[0].type)
                raise IllTyped(
                    f"terms: got `{excerpt(term)}` : {got}, expected the type of the first term, "
                    f"`{excerpt(self.terms[0])}` : {wanted}"
                )
        self.settle(self.terms[0].type, *self.terms)

    def layout(self, types: bool) -> Layout[Term]:
        if len(self.terms) == 1:
            return SUM, ["+ ", (self.terms[0], PAIR)]
        return SUM, joined(" + ", self.terms, PAIR)


@dataclass(frozen=True, eq=False, repr=False)
class TypeLam(Term):
    r"""/\X. body, of type forall X. body.type; no free variable of the body may have X in its type."""

    variable: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(body=self.body)
        self.settle(ForAll(self.variable, self.body.type), self.body)

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        """Returns the same construct with another body."""
        return TypeLam(self.variable, *children)

    def renamed(self, variable: str) -> "TypeLam":
        """Returns the same program with another name of X, which must not be free in it."""
        return TypeLam(variable, with_types(self.body, {self.variable: TypeVariable(variable)}))

    def layout(self, types: bool) -> Layout[Term]:
        return OPEN, [f"/\\{shown(self.variable)}. ", (self.body, OPEN)]


@dataclass(frozen=True, eq=False, repr=False)
class TypeApp(Term):
    """function @of: the program `function` : forall X. A at a type, of type A with `of` for X."""

    function: Term
    of: Type

    def __post_init__(self) -> None:
        need_terms(function=self.function)
        need(isinstance(self.of, Type), "of", f"a type for `{excerpt(self.function)}`", self.of)
        quantified = type_of(self.function, ForAll, "function of `t @A`", "forall X. A")
        self.settle(quantified.instantiate(self.of), self.function)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, [(self.function, APPLY), f" @{type_argument(self.of, types)}"]


def show(term: Term, types: bool = False) -> str:
    """Returns the term on one line.

    `types` adds the types of the variables that lambdas bind and of zeros, absurdities and injections, with
    the dimensions of atoms, so that `parse` can read the text.
    """
    return written(term, OPEN, lambda node: node.layout(types))


def full_text(of: Type) -> str:
    """Returns a type in print with the dimensions of its atoms."""
    return of.text({atom.name for atom in of.atoms()})


def type_argument(of: Type, types: bool) -> str:
    """Returns a type in print, in brackets if it has an operator; `types` adds the dimensions of atoms."""
    text = full_text(of) if types else str(of)
    return f"({text})" if isinstance(of, (Tensor, With, Plus, Lolli, ForAll)) else text


def joined(separator: str, terms: Sequence[Term], tightness: int) -> list[str | tuple[Term, int]]:
    return [piece for term in terms for piece in (separator, (term, tightness))][1:]


def excerpt(term: Term, width: int = 72) -> str:
    """Returns the term on one line of at most `width` characters; a long text loses its middle."""
    text = str(term)
    half = (width - 4) // 2
    return text if len(text) <= width else f"{text[:half]} .. {text[-half:]}"


def alpha_equal(left: Term, right: Term) -> bool:
    """Returns whether two terms are equal up to the names of bound variables."""
    pending: list[tuple[Term, Term, dict[str, object], dict[str, object]]] = [(left, right, {}, {})]
    while pending:
        a, b, ours, theirs = pending.pop()
        if type(a) is not type(b) or a.skeleton != b.skeleton or a.type != b.type:
            return False
        if a is b and all(ours.get(name) is theirs.get(name) for name in a.free):
            continue
        if isinstance(a, Var) and isinstance(b, Var):
            x, y = ours.get(a.name), theirs.get(b.name)
            if x is not y or (x is None and a.name != b.name):
                return False
            continue
        if len(a.children) != len(b.children):  # which hashes alone do not exclude
            return False
        if isinstance(a, TypeApp) and isinstance(b, TypeApp) and a.of != b.of:  # their types may be equal
            return False
        if isinstance(a, TypeLam) and isinstance(b, TypeLam) and a.variable != b.variable:
            name = fresh("X", type_variables(a) | type_variables(b))
            a, b = a.renamed(name), b.renamed(name)
        last = len(a.children) - 1
        for place, (c, d) in enumerate(zip(a.children, b.children, strict=True)):
            if place == last and a.bound:
                marks = [object() for _ in a.bound]  # one object per binder, reached by either name
                inner = {**ours, **dict(zip(a.bound, marks, strict=True))}
                other = {**theirs, **dict(zip(b.bound, marks, strict=True))}
                pending.append((c, d, inner, other))
            else:
                pending.append((c, d, ours, theirs))
    return True


@stackless
def rename(term: Term, names: dict[str, str]) -> "Steps[Term]":
    """Renames free variables of a term; the new names must not occur in it, not even bound."""
    if not any(name in term.free for name in names):
        return term
    if isinstance(term, Var):
        return Var(names[term.name], term.of)
    children = []
    for place, child in enumerate(term.children):
        hidden = term.bound if place == len(term.children) - 1 else ()
        visible = {old: new for old, new in names.items() if old not in hidden}
        children.append((yield rename.steps(child, visible)))
    return term.remake(term.bound, tuple(children))


@stackless
def with_types(term: Term, types: Mapping[str, Type]) -> "Steps[Term]":
    """Returns a term with types in the place of its free type variables; nothing is captured."""
    if isinstance(term, TypeLam):
        term = apart(term, types.values())
        inner = {name: of for name, of in types.items() if name != term.variable}
        return TypeLam(term.variable, (yield with_types.steps(term.body, inner)))
    children = iter((yield from each(with_types.steps(child, types) for child in term.children)))
    parts: list[Any] = []
    for name in term.__match_args__:  # the arguments of the constructor
        match getattr(term, name):
            case Type() as of:
                parts.append(substitute(of, types))
            case Term():
                parts.append(next(children))
            case tuple():
                parts.append(tuple(children))
            case bound:
                parts.append(bound)
    return type(term)(*parts)


def type_variables(term: Term) -> set[str]:
    """Returns the names of the type variables in a term that no `TypeLam` of the term binds."""
    found: set[str] = set()
    pending, seen = [(term, frozenset[str]())], set[tuple[int, frozenset[str]]]()
    while pending:
        node, bound = pending.pop()
        if (id(node), bound) in seen:
            continue
        seen.add((id(node), bound))
        parts = [getattr(node, name) for name in node.__match_args__]
        found.update(*(part.variables() - bound for part in parts if isinstance(part, Type)))
        if isinstance(node, TypeLam):
            bound |= {node.variable}
        pending.extend((child, bound) for child in node.children)
    return found


def apart(term: TypeLam, others: Iterable[Term | Type]) -> TypeLam:
    """Returns the term with another name of its type variable if `others` have that name free."""
    found = [other.variables() if isinstance(other, Type) else type_variables(other) for other in others]
    taken = set[str]().union(*found)
    if term.variable not in taken:
        return term
    return term.renamed(fresh(term.variable, taken | type_variables(term)))


def need(holds: bool, argument: str, expected: str, got: object) -> None:
    if not holds:
        raise ValueError(f"{argument}: got {got!r}, expected {expected}")


def need_terms(**arguments: object) -> None:
    """Raises ValueError, naming the argument, if an argument is not a `Term`."""
    for name, value in arguments.items():
        need(isinstance(value, Term), name, "a term", value)


def type_of[T: Type](term: Term, kind: type[T], place: str, expected: str) -> T:
    """Returns the term's type; raises IllTyped if it is not of this kind."""
    if not isinstance(term.type, kind):
        raise IllTyped(f"{place}: got `{excerpt(term)}` : {term.type}, expected type {expected}")
    return term.type


def bang_advice(wanted: Type, argument: Term) -> str:
    if wanted == Bang(argument.type):
        return "; promote it, `!t`, if it uses no linear variable"
    if argument.type == Bang(wanted):
        return "; open it first, `let !x = t in ..`, and use x"
    return ""
