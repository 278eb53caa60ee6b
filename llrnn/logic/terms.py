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

The sum A + B has no binder of its own: `case t of p` applies one of a product p of two functions. A program
at every type is `/\X. t`, and `t @A` is that program at A.

Variables carry their types, so every term has its type (`term.type`) from its construction, which checks all
rules but linearity and the scope of type variables; `check` checks these. `==` is equality up to the names of
bound variables. In print `\!x. u`, a function of a banged argument, abbreviates `\y. let !x = y in u`.
"""

from dataclasses import dataclass

from llrnn.logic.names import shown
from llrnn.logic.printing import Layout
from llrnn.logic.term import (
    APPLY,
    ATOM,
    OPEN,
    PAIR,
    SUM,
    App,
    IllTyped,
    Sum,
    Term,
    TypeApp,
    TypeLam,
    Var,
    excerpt,
    full_text,
    joined,
    need,
    need_terms,
    type_argument,
    type_of,
)
from llrnn.logic.types import (
    Bang,
    Falsity,
    Lolli,
    One,
    Plus,
    Tensor,
    Top,
    Type,
    Unit,
    With,
    texts,
)

__all__ = [
    "Absurd",
    "App",
    "Both",
    "Case",
    "Fst",
    "Inl",
    "Inr",
    "Ket",
    "Lam",
    "LetBang",
    "LetPair",
    "LetStar",
    "Pair",
    "Snd",
    "Star",
    "Sum",
    "Trivial",
    "TypeApp",
    "TypeLam",
    "Var",
    "Zero",
]


@dataclass(frozen=True, eq=False, repr=False)
class Lam(Term):
    r"""\name : domain. body, of type domain -o body.type; the variable is linear."""

    name: str
    domain: Type
    body: Term

    def __post_init__(self) -> None:
        need(isinstance(self.domain, Type), "domain", "a type", self.domain)
        need_terms(body=self.body)
        self.settle(Lolli(self.domain, self.body.type), self.body, bound={self.name: self.domain})

    def layout(self, types: bool) -> Layout[Term]:
        r"""A function of a banged argument that it opens at once is `\!x. u`."""
        name, domain, body = f"\\{shown(self.name)}", self.domain, self.body
        match body:
            case LetBang(scrutinee=Var(name=opened), name=x, body=inner) if opened == self.name and (
                opened == x or opened not in inner.free
            ):
                name, body = f"\\!{shown(x)}", inner
        return OPEN, [f"{name}{f':{full_text(domain)}' if types else ''}. ", (body, OPEN)]


@dataclass(frozen=True, eq=False, repr=False)
class Star(Term):
    """The proof * of the tensor unit 1."""

    def __post_init__(self) -> None:
        self.settle(One)

    def layout(self, types: bool) -> Layout[Term]:
        return ATOM, ["*"]


@dataclass(frozen=True, eq=False, repr=False)
class LetStar(Term):
    """let * = scrutinee in body, where scrutinee : 1 is a scalar that multiplies the body."""

    scrutinee: Term
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        type_of(self.scrutinee, Unit, "scrutinee of `let * = t in u`", "1")
        self.settle(self.body.type, self.scrutinee, self.body)

    def layout(self, types: bool) -> Layout[Term]:
        return _let_layout("*", self)


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Term):
    """left (x) right, of type A (x) B with left : A and right : B."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self.settle(Tensor(self.left.type, self.right.type), self.left, self.right)

    def layout(self, types: bool) -> Layout[Term]:
        return PAIR, [(self.left, APPLY), " (x) ", (self.right, APPLY)]


@dataclass(frozen=True, eq=False, repr=False)
class LetPair(Term):
    """let left (x) right = scrutinee in body; both variables are linear."""

    scrutinee: Term
    left: str
    right: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        of = type_of(self.scrutinee, Tensor, "scrutinee of `let x (x) y = t in u`", "A (x) B")
        if self.left == self.right:
            raise IllTyped(f"right: got {self.right!r}, the same name as left, expected two different names")
        bound = {self.left: of.left, self.right: of.right}
        self.settle(self.body.type, self.scrutinee, self.body, bound=bound)

    def layout(self, types: bool) -> Layout[Term]:
        return _let_layout(f"{shown(self.left)} (x) {shown(self.right)}", self)


@dataclass(frozen=True, eq=False, repr=False)
class Both(Term):
    """<left, right>, of type A & B; only one side takes effect, so both use the same linear variables."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self.settle(With(self.left.type, self.right.type), self.left, self.right)

    def layout(self, types: bool) -> Layout[Term]:
        return ATOM, ["<", (self.left, OPEN), ", ", (self.right, OPEN), ">"]


@dataclass(frozen=True, eq=False, repr=False)
class Fst(Term):
    """fst product, the first component, of type A with product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        need_terms(product=self.product)
        self.settle(type_of(self.product, With, "product of fst", "A & B").left, self.product)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, ["fst ", (self.product, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Snd(Term):
    """snd product, the second component, of type B with product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        need_terms(product=self.product)
        self.settle(type_of(self.product, With, "product of snd", "A & B").right, self.product)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, ["snd ", (self.product, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Trivial(Term):
    """<>, the proof of the unit `Top` of &; it accepts any linear context."""

    def __post_init__(self) -> None:
        self.settle(Top)

    def layout(self, types: bool) -> Layout[Term]:
        return ATOM, ["<>"]


@dataclass(frozen=True, eq=False, repr=False)
class Inl(Term):
    """inl term, of type A + B with term : A and B given as `right`."""

    term: Term
    right: Type

    def __post_init__(self) -> None:
        need_terms(term=self.term)
        need(isinstance(self.right, Type), "right", "a type", self.right)
        self.settle(Plus(self.term.type, self.right), self.term)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, [f"inl{_annotation(self.right, types)} ", (self.term, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Inr(Term):
    """inr term, of type A + B with term : B and A given as `left`."""

    left: Type
    term: Term

    def __post_init__(self) -> None:
        need(isinstance(self.left, Type), "left", "a type", self.left)
        need_terms(term=self.term)
        self.settle(Plus(self.left, self.term.type), self.term)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, [f"inr{_annotation(self.left, types)} ", (self.term, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Case(Term):
    r"""case scrutinee of branches, of type C with scrutinee : A + B and branches : (A -o C) & (B -o C).

    Often the branches are <\x. t, \y. u>. Only one takes effect, so both use the same linear variables.
    """

    scrutinee: Term
    branches: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, branches=self.branches)
        of = type_of(self.scrutinee, Plus, "scrutinee of `case t of u`", "A + B")
        both = type_of(self.branches, With, "branches of `case t of u`", "(A -o C) & (B -o C)")
        if (
            not isinstance(both.left, Lolli)
            or not isinstance(both.right, Lolli)
            or (both.left.domain, both.right.domain) != (of.left, of.right)
            or both.left.codomain != both.right.codomain
        ):
            got, wanted = texts(both, of)
            raise IllTyped(
                f"branches: got `{excerpt(self.branches)}` : {got}, expected a type (A -o C) & (B -o C) for "
                f"`{excerpt(self.scrutinee)}` : A + B = {wanted}"
            )
        self.settle(both.left.codomain, self.scrutinee, self.branches)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, ["case ", (self.scrutinee, ATOM), " of ", (self.branches, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Absurd(Term):
    """absurd scrutinee, of any type, given as `of`, with scrutinee : `Void`; accepts any linear context."""

    scrutinee: Term
    of: Type

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee)
        need(isinstance(self.of, Type), "of", "a type", self.of)
        type_of(self.scrutinee, Falsity, "scrutinee of `absurd t`", "0")
        self.settle(self.of, self.scrutinee)

    def layout(self, types: bool) -> Layout[Term]:
        return APPLY, [f"absurd{_annotation(self.of, types)} ", (self.scrutinee, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class Ket(Term):
    """|vectors>_point, of type !A with the point and all vectors of type A; `!t` is Ket(t).

    The point uses no linear variable; the vectors may.
    """

    point: Term
    vectors: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        need_terms(point=self.point)
        need(isinstance(self.vectors, tuple), "vectors", "a tuple of terms", self.vectors)
        for vector in self.vectors:
            need_terms(vectors=vector)
            if vector.type != self.point.type:
                got, wanted = texts(vector.type, self.point.type)
                raise IllTyped(
                    f"vectors: got `{excerpt(vector)}` : {got}, expected the type of the point, {wanted}"
                )
        # Ket binds nothing, so the point may be the first child, as in the constructor.
        self.settle(Bang(self.point.type), self.point, *self.vectors)

    def layout(self, types: bool) -> Layout[Term]:
        if not self.vectors:
            return ATOM, ["!", (self.point, ATOM)]
        return ATOM, ["|", *joined(", ", self.vectors, OPEN), ">_", (self.point, ATOM)]


@dataclass(frozen=True, eq=False, repr=False)
class LetBang(Term):
    """let !name = scrutinee in body; the body may use the variable any number of times."""

    scrutinee: Term
    name: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        of = type_of(self.scrutinee, Bang, "scrutinee of `let !x = t in u`", "!A")
        self.settle(self.body.type, self.scrutinee, self.body, bound={self.name: of.body})

    def layout(self, types: bool) -> Layout[Term]:
        return _let_layout(f"!{shown(self.name)}", self)


@dataclass(frozen=True, eq=False, repr=False)
class Zero(Term):
    """The zero proof of a type; it accepts any linear context."""

    of: Type

    def __post_init__(self) -> None:
        need(isinstance(self.of, Type), "of", "a type", self.of)
        self.settle(self.of)

    def layout(self, types: bool) -> Layout[Term]:
        return ATOM, [f"0:{type_argument(self.of, True)}" if types else "0"]


def _let_layout(pattern: str, let: "LetStar | LetPair | LetBang") -> Layout[Term]:
    return OPEN, [f"let {pattern} = ", (let.scrutinee, SUM), " in ", (let.body, OPEN)]


def _annotation(of: Type, types: bool) -> str:
    return f":{type_argument(of, True)}" if types else ""
