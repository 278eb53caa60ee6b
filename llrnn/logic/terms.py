"""Terms of (differential) linear logic: a dual-context linear lambda calculus.

Barber and Plotkin's calculus has two contexts, one of linear variables, used exactly once, and one of
unrestricted variables, which `let !x = t in u` binds. Contraction, weakening and dereliction are then
implicit in how often x is used, a promotion is a term `!t` that uses no linear variable, and a cut is a
beta-redex.

For differential linear logic a promotion may carry tangent vectors: `Ket(t, (v1, .., vs))` denotes
|v1 .. vs>_t, the s-th derivative of the Dirac at t (Clift & Murfet, "Cofree coalgebras and differential
linear logic"). `Ket(Zero(A), (v,))` is codereliction and `Ket(x, (v,))` the deriving map. `Sum` and `Zero`
are the addition that differentiation needs. Terms without the three are plain linear logic (`is_plain`).

Variables carry their types, so every term knows its own (`term.type`) as soon as it is built; what building
does not check is linearity, which is `check`'s part. `==` is equality up to the names of bound variables.
"""

import re
from dataclasses import dataclass, field

from llrnn.logic.types import Bang, Lolli, One, Tensor, Type, Unit, With


class IllTyped(ValueError):
    """A term that does not follow the rules of the logic; the message names the place and the repair."""


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """A term of linear logic. Immutable, hashable; calling it applies it, `+` is the sum of proofs.

    Attributes:
      type: its type.
      children: its immediate subterms, in order.
      bound: names of the variables it binds, all of them in its last child and nowhere else.
      bound_types: their types.
      free: names of its free variables.
      names: every name that occurs in it, free or bound.
    """

    type: Type = field(init=False)
    children: tuple["Term", ...] = field(init=False)
    bound: tuple[str, ...] = field(init=False)
    bound_types: tuple[Type, ...] = field(init=False)
    free: frozenset[str] = field(init=False)
    names: frozenset[str] = field(init=False)
    skeleton: int = field(init=False)  # a hash that ignores names, kept so that hashing never recurses

    def _settle(
        self,
        of: Type,
        children: tuple["Term", ...],
        bound: tuple[str, ...] = (),
        bound_types: tuple[Type, ...] = (),
    ) -> None:
        free = frozenset[str]()
        names = frozenset(bound)
        for place, child in enumerate(children):
            last = place == len(children) - 1
            free |= child.free.difference(bound) if last and bound else child.free
            names |= child.names
        self._keep(of, children, bound, bound_types, free, names)

    def _keep(
        self,
        of: Type,
        children: tuple["Term", ...],
        bound: tuple[str, ...],
        bound_types: tuple[Type, ...],
        free: frozenset[str],
        names: frozenset[str],
    ) -> None:
        keep = object.__setattr__  # the fields of a frozen dataclass
        keep(self, "type", of)
        keep(self, "children", children)
        keep(self, "bound", bound)
        keep(self, "bound_types", bound_types)
        keep(self, "free", free)
        keep(self, "names", names)
        keep(self, "skeleton", hash((type(self).__name__, of, tuple(child.skeleton for child in children))))

    def remake(self, bound: tuple[str, ...], children: tuple["Term", ...]) -> "Term":
        """The same construct with other bound names and other subterms."""
        raise NotImplementedError

    def __call__(self, *arguments: "Term") -> "Term":
        """Application, curried: `f(a, b)` is `App(App(f, a), b)`."""
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
        from llrnn.logic.printing import show  # printing reads terms; only this method reads it back

        return show(self)

    def __repr__(self) -> str:
        return f"<{self} : {self.type}>"

    def __copy__(self) -> "Term":
        return self

    def __deepcopy__(self, memo: object) -> "Term":
        return self  # immutable, and deeper than Python's own copy could follow


@dataclass(frozen=True, eq=False, repr=False)
class Var(Term):
    """A variable, linear or unrestricted according to what binds it.

    Attributes:
      name: its name.
      of: its type; an unrestricted variable bound by `let !x = t` has type A where t : !A.
    """

    name: str
    of: Type

    def __post_init__(self) -> None:
        _need(isinstance(self.name, str) and bool(self.name), "name", "a non-empty string", self.name)
        _need(isinstance(self.of, Type), "of", f"the type of variable {self.name}", self.of)
        names = frozenset((self.name,))
        self._keep(self.of, (), (), (), names, names)

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return self


@dataclass(frozen=True, eq=False, repr=False)
class Lam(Term):
    r"""\name : domain. body, of type domain -o body.type; the variable is linear."""

    name: str
    domain: Type
    body: Term

    def __post_init__(self) -> None:
        _need(isinstance(self.domain, Type), "domain", "a type", self.domain)
        need_terms(body=self.body)
        self._settle(Lolli(self.domain, self.body.type), (self.body,), (self.name,), (self.domain,))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Lam(bound[0], self.domain, children[0])


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
                f"`{excerpt(self.function)}` : {of} is applied to `{excerpt(self.argument)}` : "
                f"{self.argument.type}, but is not a function; only a term of type A -o B can be applied"
            )
        if of.domain != self.argument.type:
            raise IllTyped(
                f"`{excerpt(self.function)}` : {of} expects an argument of type {of.domain}, but "
                f"`{excerpt(self.argument)}` has type {self.argument.type}"
                f"{_bang_advice(of.domain, self.argument)}"
            )
        self._settle(of.codomain, (self.function, self.argument))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return App(*children)


@dataclass(frozen=True, eq=False, repr=False)
class Star(Term):
    """The proof of 1."""

    def __post_init__(self) -> None:
        self._settle(One, ())

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return self


@dataclass(frozen=True, eq=False, repr=False)
class LetStar(Term):
    """let * = scrutinee in body, with scrutinee : 1 (a scalar that multiplies the body)."""

    scrutinee: Term
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        if not isinstance(self.scrutinee.type, Unit):
            raise _wrong_scrutinee("let * = t in u", "1", self.scrutinee)
        self._settle(self.body.type, (self.scrutinee, self.body))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return LetStar(*children)


@dataclass(frozen=True, eq=False, repr=False)
class Pair(Term):
    """left (x) right, of type A (x) B."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self._settle(Tensor(self.left.type, self.right.type), (self.left, self.right))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Pair(*children)


@dataclass(frozen=True, eq=False, repr=False)
class LetPair(Term):
    """let left (x) right = scrutinee in body; both variables are linear."""

    scrutinee: Term
    left: str
    right: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        if not isinstance(self.scrutinee.type, Tensor):
            raise _wrong_scrutinee("let x (x) y = t in u", "A (x) B", self.scrutinee)
        if self.left == self.right:
            raise IllTyped(f"let {self.left} (x) {self.right} = .. binds one name twice; use two names")
        opened = (self.scrutinee.type.left, self.scrutinee.type.right)
        self._settle(self.body.type, (self.scrutinee, self.body), (self.left, self.right), opened)

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return LetPair(children[0], bound[0], bound[1], children[1])


@dataclass(frozen=True, eq=False, repr=False)
class Both(Term):
    """<left, right>, of type A & B: either can be taken, so both use the same linear variables."""

    left: Term
    right: Term

    def __post_init__(self) -> None:
        need_terms(left=self.left, right=self.right)
        self._settle(With(self.left.type, self.right.type), (self.left, self.right))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Both(*children)


@dataclass(frozen=True, eq=False, repr=False)
class Fst(Term):
    """The first of product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        self._settle(_product_type("fst", self.product).left, (self.product,))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Fst(*children)


@dataclass(frozen=True, eq=False, repr=False)
class Snd(Term):
    """The second of product : A & B."""

    product: Term

    def __post_init__(self) -> None:
        self._settle(_product_type("snd", self.product).right, (self.product,))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Snd(*children)


@dataclass(frozen=True, eq=False, repr=False)
class Ket(Term):
    """|vectors>_point, of type !A with the point and every vector of type A; `!t` is Ket(t).

    The point uses no linear variable; each vector may use its own.
    """

    point: Term
    vectors: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        need_terms(point=self.point)
        _need(isinstance(self.vectors, tuple), "vectors", "a tuple of terms", self.vectors)
        for vector in self.vectors:
            need_terms(vectors=vector)
            if vector.type != self.point.type:
                raise IllTyped(
                    f"a vector of a ket has the type of its point, {self.point.type}, but "
                    f"`{excerpt(vector)}` has type {vector.type}"
                )
        # Ket binds nothing, so that the point may come first, as it is written.
        self._settle(Bang(self.point.type), (self.point, *self.vectors))

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Ket(children[0], tuple(children[1:]))


@dataclass(frozen=True, eq=False, repr=False)
class LetBang(Term):
    """let !name = scrutinee in body; the variable is unrestricted in the body: any number of uses."""

    scrutinee: Term
    name: str
    body: Term

    def __post_init__(self) -> None:
        need_terms(scrutinee=self.scrutinee, body=self.body)
        if not isinstance(self.scrutinee.type, Bang):
            raise _wrong_scrutinee("let !x = t in u", "!A", self.scrutinee)
        opened = (self.scrutinee.type.body,)
        self._settle(self.body.type, (self.scrutinee, self.body), (self.name,), opened)

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return LetBang(children[0], bound[0], children[1])


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Term):
    """A sum of at least one proof of the same type from the same linear variables."""

    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        _need(
            isinstance(self.terms, tuple) and len(self.terms) > 0,
            "terms",
            "a non-empty tuple of terms",
            self.terms,
        )
        for term in self.terms:
            need_terms(terms=term)
            if term.type != self.terms[0].type:
                raise IllTyped(
                    f"the terms of a sum have one type, but `{excerpt(self.terms[0])}` : "
                    f"{self.terms[0].type} is added to `{excerpt(term)}` : {term.type}"
                )
        self._settle(self.terms[0].type, self.terms)

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return Sum(children)


@dataclass(frozen=True, eq=False, repr=False)
class Zero(Term):
    """The zero proof of a type; it accepts any linear context."""

    of: Type

    def __post_init__(self) -> None:
        _need(isinstance(self.of, Type), "of", "a type", self.of)
        self._settle(self.of, ())

    def remake(self, bound: tuple[str, ...], children: tuple[Term, ...]) -> Term:
        return self


def excerpt(term: Term, width: int = 72) -> str:
    """The term printed on one line of at most `width` characters, its middle left out if need be."""
    text = re.sub(r"#\d+", "", str(term))  # variables of a function that is being traced are not named yet
    half = (width - 4) // 2
    return text if len(text) <= width else f"{text[:half]} .. {text[-half:]}"


def alpha_equal(left: Term, right: Term) -> bool:
    """Whether two terms differ at most in the names of bound variables."""
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
                marks = [object() for _ in a.bound]  # one binder, one object, known under two names
                inner = {**ours, **dict(zip(a.bound, marks, strict=True))}
                other = {**theirs, **dict(zip(b.bound, marks, strict=True))}
                pending.append((c, d, inner, other))
            else:
                pending.append((c, d, ours, theirs))
    return True


def _need(holds: bool, argument: str, expected: str, got: object) -> None:
    if not holds:
        raise ValueError(f"{argument}: expected {expected}, got {got!r}")


def need_terms(**arguments: object) -> None:
    for name, value in arguments.items():
        _need(isinstance(value, Term), name, "a term", value)


def _wrong_scrutinee(form: str, wanted: str, scrutinee: Term) -> IllTyped:
    return IllTyped(
        f"`{form}` takes apart a term of type {wanted}, but `{excerpt(scrutinee)}` has type {scrutinee.type}"
    )


def _product_type(name: str, product: Term) -> With:
    need_terms(product=product)
    if not isinstance(product.type, With):
        raise IllTyped(f"{name} needs a term of type A & B, but `{excerpt(product)}` has type {product.type}")
    return product.type


def _bang_advice(wanted: Type, argument: Term) -> str:
    if wanted == Bang(argument.type):
        return "; promote it, `!t`, which needs that it uses no linear variable"
    if argument.type == Bang(wanted):
        return "; open it first, `let !x = t in ..`, and use x"
    return ""
