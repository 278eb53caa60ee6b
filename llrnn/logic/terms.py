r"""Terms of (differential) linear logic: a dual-context linear lambda calculus.

Barber and Plotkin's calculus has two contexts, one of linear variables, which are used exactly once, and one
of unrestricted variables, which `let !x = t in u` binds. Contraction, weakening and dereliction are then
implicit in the number of uses of x, a promotion is a term `!t` that uses no linear variable, and a cut is a
beta-redex.

For differential linear logic a promotion may carry tangent vectors: `Ket(t, (v1, .., vs))` denotes
|v1 .. vs>_t, the s-th derivative of the Dirac at t (Clift & Murfet, "Cofree coalgebras and differential
linear logic"). `Ket(Zero(A), (v,))` is codereliction and `Ket(x, (v,))` the deriving map. `Sum` and `Zero`
provide the addition that differentiation needs. Terms without these three belong to plain linear logic
(`is_plain`).

Variables carry their types, so every term has its type (`term.type`) from its construction, which checks all
rules but linearity; `check` checks that. `==` is equality up to the names of bound variables. In print
`\!x. u`, a function of a banged argument, abbreviates `\y. let !x = y in u`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from llrnn.logic.printing import Layout, written
from llrnn.logic.types import Bang, Lolli, One, Tensor, Type, Unit, With, texts


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
      skeleton: a hash that ignores names.
    """

    type: Type = field(init=False)
    children: tuple["Term", ...] = field(init=False)
    bound: tuple[str, ...] = field(init=False)
    bound_types: tuple[Type, ...] = field(init=False)
    free: frozenset[str] = field(init=False)
    names: frozenset[str] = field(init=False)
    skeleton: int = field(init=False)  # stored, so that hashing does not recurse

    def _settle(
        self,
        of: Type,
        *children: "Term",
        bound: Mapping[str, Type] = MappingProxyType({}),
        variable: frozenset[str] = frozenset(),
    ) -> None:
        """Sets the fields above; `bound` scopes over the last child, `variable` is the name of a variable."""
        *others, last = (child.free for child in children) if children else (variable,)
        fields = vars(self)  # written directly, since a frozen dataclass forbids assignment
        fields |= {
            "type": of,
            "children": children,
            "bound": tuple(bound),
            "bound_types": tuple(bound.values()),
            "free": last.difference(bound).union(*others),
            "names": variable.union(bound, *(child.names for child in children)),
            "skeleton": hash((type(self).__name__, of, tuple(child.skeleton for child in children))),
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

    def __call__(self, *arguments: "Term") -> "Term":
        """Applies the term, curried: `f(a, b)` is `App(App(f, a), b)`."""
        term: Term = self
        for argument in arguments:
            term = App(term, argument)
        return term

    def __add__(self, other: "Term") -> "Term":
        return Sum((self, other))

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
        _need(isinstance(self.name, str) and bool(self.name), "name", "a non-empty string", self.name)
        _need(isinstance(self.of, Type), "of", f"the type of variable {self.name}", self.of)
        self._settle(self.of, variable=frozenset((self.name,)))


@dataclass(frozen=True, eq=False, repr=False)
class Lam(Term):
    r"""\name : domain. body, of type domain -o body.type; the variable is linear."""

    name: str
    domain: Type
    body: Term

    def __post_init__(self) -> None:
        _need(isinstance(self.domain, Type), "domain", "a type", self.domain)
        need_terms(body=self.body)
        self._settle(Lolli(self.domain, self.body.type), self.body, bound={self.name: self.domain})


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
                f"`{excerpt(self.function)}` : {function}{_bang_advice(of.domain, self.argument)}"
            )
        self._settle(of.codomain, self.function, self.argument)


@dataclass(frozen=True, eq=False, repr=False)
class Star(Term):
    """The proof * of the tensor unit 1."""

    def __post_init__(self) -> None:
        self._settle(One)


@dataclass(frozen=True, eq=False, repr=False)
class LetStar(Term):
    """let * = scrutinee in body, where scrutinee : 1 is a scalar that multiplies the body."""

    scrutinee: Term
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        _type_of(self.scrutinee, Unit, "scrutinee of `let * = t in u`", "1")
        self._settle(self.body.type, self.scrutinee, self.body)


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Term):
    """left (x) right, of type A (x) B with left : A and right : B."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self._settle(Tensor(self.left.type, self.right.type), self.left, self.right)


@dataclass(frozen=True, eq=False, repr=False)
class LetPair(Term):
    """let left (x) right = scrutinee in body; both variables are linear."""

    scrutinee: Term
    left: str
    right: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        of = _type_of(self.scrutinee, Tensor, "scrutinee of `let x (x) y = t in u`", "A (x) B")
        if self.left == self.right:
            raise IllTyped(f"right: got {self.right!r}, the same name as left, expected two different names")
        bound = {self.left: of.left, self.right: of.right}
        self._settle(self.body.type, self.scrutinee, self.body, bound=bound)


@dataclass(frozen=True, eq=False, repr=False)
class Both(Term):
    """<left, right>, of type A & B; only one side takes effect, so both use the same linear variables."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self._settle(With(self.left.type, self.right.type), self.left, self.right)


@dataclass(frozen=True, eq=False, repr=False)
class Fst(Term):
    """fst product, the first component, of type A with product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        need_terms(product=self.product)
        self._settle(_type_of(self.product, With, "product of fst", "A & B").left, self.product)


@dataclass(frozen=True, eq=False, repr=False)
class Snd(Term):
    """snd product, the second component, of type B with product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        need_terms(product=self.product)
        self._settle(_type_of(self.product, With, "product of snd", "A & B").right, self.product)


@dataclass(frozen=True, eq=False, repr=False)
class Ket(Term):
    """|vectors>_point, of type !A with the point and all vectors of type A; `!t` is Ket(t).

    The point uses no linear variable; the vectors may.
    """

    point: Term
    vectors: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        need_terms(point=self.point)
        _need(isinstance(self.vectors, tuple), "vectors", "a tuple of terms", self.vectors)
        for vector in self.vectors:
            need_terms(vectors=vector)
            if vector.type != self.point.type:
                got, wanted = texts(vector.type, self.point.type)
                raise IllTyped(
                    f"vectors: got `{excerpt(vector)}` : {got}, expected the type of the point, {wanted}"
                )
        # Ket binds nothing, so the point may be the first child, as in the constructor.
        self._settle(Bang(self.point.type), self.point, *self.vectors)


@dataclass(frozen=True, eq=False, repr=False)
class LetBang(Term):
    """let !name = scrutinee in body; the body may use the variable any number of times."""

    scrutinee: Term
    name: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        of = _type_of(self.scrutinee, Bang, "scrutinee of `let !x = t in u`", "!A")
        self._settle(self.body.type, self.scrutinee, self.body, bound={self.name: of.body})


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Term):
    """A sum of one or more proofs of the same type from the same linear variables."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        several = isinstance(self.terms, tuple) and len(self.terms) > 0
        _need(several, "terms", "a non-empty tuple of terms", self.terms)
        for term in self.terms:
            need_terms(terms=term)
            if term.type != self.terms[0].type:
                got, wanted = texts(term.type, self.terms[0].type)
                raise IllTyped(
                    f"terms: got `{excerpt(term)}` : {got}, expected the type of the first term, "
                    f"`{excerpt(self.terms[0])}` : {wanted}"
                )
        self._settle(self.terms[0].type, *self.terms)


@dataclass(frozen=True, eq=False, repr=False)
class Zero(Term):
    """The zero proof of a type; it accepts any linear context."""

    of: Type

    def __post_init__(self) -> None:
        _need(isinstance(self.of, Type), "of", "a type", self.of)
        self._settle(self.of)


# Binding strength of the constructs: a binder extends as far right as possible, an atom needs no brackets.
_OPEN, _SUM, _PAIR, _APPLY, _ATOM = range(5)


def show(term: Term, types: bool = False) -> str:
    """Returns the term on one line.

    `types` adds the types of the variables that lambdas bind and of zeros, with the dimensions of atoms, so
    that `parse` can read the text.
    """
    return written(term, _OPEN, lambda node: _layout(node, types))


def _layout(term: Term, types: bool) -> Layout[Term]:
    match term:
        case Var():
            return _ATOM, [term.name.partition("#")[0]]  # a variable of a function that is traced is x#7
        case Star():
            return _ATOM, ["*"]
        case Zero():
            return _ATOM, [f"0:{full_text(term.of, tight=True)}" if types else "0"]
        case Both():
            return _ATOM, ["<", (term.left, _OPEN), ", ", (term.right, _OPEN), ">"]
        case Ket(vectors=()):
            return _ATOM, ["!", (term.point, _ATOM)]
        case Ket():
            return _ATOM, ["|", *_joined(", ", term.vectors, _OPEN), ">_", (term.point, _ATOM)]
        case Lam(body=LetBang(scrutinee=Var(name=opened), name=x, body=body)) if opened == term.name and (
            opened == x or opened not in body.free
        ):
            return _OPEN, [f"\\!{x}{f':{full_text(term.domain)}' if types else ''}. ", (body, _OPEN)]
        case Lam():
            return _OPEN, [
                f"\\{term.name}{f':{full_text(term.domain)}' if types else ''}. ",
                (term.body, _OPEN),
            ]
        case App():
            return _APPLY, [(term.function, _APPLY), " ", (term.argument, _ATOM)]
        case Fst() | Snd():
            return _APPLY, [f"{type(term).__name__.lower()} ", (term.product, _ATOM)]
        case Pair():
            return _PAIR, [(term.left, _APPLY), " (x) ", (term.right, _APPLY)]
        case Sum(terms=(only,)):
            return _SUM, ["+ ", (only, _PAIR)]
        case Sum():
            return _SUM, _joined(" + ", term.terms, _PAIR)
        case LetStar():
            pattern = "*"
        case LetPair():
            pattern = f"{term.left} (x) {term.right}"
        case LetBang():
            pattern = f"!{term.name}"
        case _:
            raise ValueError(f"term: got {term!r}, expected a term")
    return _OPEN, [f"let {pattern} = ", (term.scrutinee, _SUM), " in ", (term.body, _OPEN)]


def full_text(of: Type, tight: bool = False) -> str:
    """Returns a type in print with the dimensions of its atoms; `tight` puts operators in brackets."""
    text = of.text({atom.name for atom in of.atoms()})
    return f"({text})" if tight and isinstance(of, (Tensor, With, Lolli)) else text


def _joined(separator: str, terms: Sequence[Term], tightness: int) -> list[str | tuple[Term, int]]:
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
        if len(a.children) != len(b.children):
            return False
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


def _need(holds: bool, argument: str, expected: str, got: object) -> None:
    if not holds:
        raise ValueError(f"{argument}: got {got!r}, expected {expected}")


def need_terms(**arguments: object) -> None:
    """Raises ValueError, naming the argument, if an argument is not a `Term`."""
    for name, value in arguments.items():
        _need(isinstance(value, Term), name, "a term", value)


def _type_of[T: Type](term: Term, kind: type[T], place: str, expected: str) -> T:
    """Returns the term's type; raises IllTyped if it is not of this kind."""
    if not isinstance(term.type, kind):
        raise IllTyped(f"{place}: got `{excerpt(term)}` : {term.type}, expected type {expected}")
    return term.type


def _bang_advice(wanted: Type, argument: Term) -> str:
    if wanted == Bang(argument.type):
        return "; promote it, `!t`, if it uses no linear variable"
    if argument.type == Bang(wanted):
        return "; open it first, `let !x = t in ..`, and use x"
    return ""
