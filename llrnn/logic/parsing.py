r"""Terms and types from text: `parse` reads what `show(term, types=True)` prints.

    t ::= \x:T. t | \!x:!T. t | /\X. t | let * = t in t | let x (x) y = t in t | let !x = t in t | s
    s ::= p + .. + p | + p                    p ::= a (x) a | a
    a ::= a e | a @B | fst e | snd e | inl:B e | inr:B e | case e of e | absurd:B e | e
    e ::= x | * | 0:B | !e | <t, t> | <> | |t, .., t>_e | (t)
    T ::= forall X. T | P -o T | P            P ::= B (x) B | B & B | B + B | B
    B ::= A[3] | A | X | 1 | 0 | top | !B | (T)

A binder extends as far to the right as possible. `\!x:!T. t` is short for `\x:!T. let !x = x in t`, `+ t` is
a sum of one proof, `0:T` the zero proof of T; `inl:B` has the right side of its type A + B, `inr:A` the left
one, `absurd:C` its type. A name is a letter or `_` followed by letters, digits, `_` and
`'`; a term may also have numbers as names. `(x)` is always the tensor: write an argument x without brackets.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from llrnn.logic.stackless import Steps, stackless
from llrnn.logic.term import App, IllTyped, Sum, Term, TypeApp, TypeLam, Var, type_variables
from llrnn.logic.terms import (
    Absurd,
    Both,
    Case,
    Fst,
    Inl,
    Inr,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Pair,
    Snd,
    Star,
    Trivial,
    Zero,
)
from llrnn.logic.types import (
    Atom,
    Bang,
    ForAll,
    Lolli,
    One,
    Plus,
    Tensor,
    Top,
    Type,
    TypeVariable,
    Void,
    With,
)

_WORDS = re.compile(r"\s*(?:(\(x\)|-o|>_|/\\|[\\!.:=<>,|+*()\[\]&@])|([^\W\d][\w']*|\d+)|(\S))")
_PREFIXES = ("fst", "snd", "inl", "inr", "case", "absurd")
_KEYWORDS = frozenset({"let", "in", "of", "forall", "top", *_PREFIXES})
_LONGEST = 18  # digits of a dimension: more than any array has, and fewer than `int` refuses to read
_NONE: Mapping = MappingProxyType({})


class ParseError(ValueError):
    """A text is not a term or a type; the message has the line, the column and what was expected."""


def parse(text: str, types: Mapping[str, Type] = _NONE, terms: Mapping[str, Term] = _NONE) -> Term:
    r"""Returns the term that a text stands for; the module's docstring has the grammar.

    `parse(show(t, types=True), terms=..)` equals t for every term t whose names are names of the grammar.

    Args:
      text: the term, such as `\!f:!(A -o A). \z:A. f (f z)`.
      types: the types that names stand for, such as {"A": Atom("A", 8)}. An atom may also be written with its
        dimension, `A[8]`.
      terms: the terms that names stand for, where no binder hides them: free variables, `{"x": Var("x", A)}`,
        and programs, `{"2": numeral(2, A)}`.

    Raises:
      ParseError: the text is not a term, or a binder would capture a free variable of a given term or type.
      IllTyped: a part of the term breaks a rule of the logic. `check` also checks linearity.
    """
    reader = _Reader(text, types, terms)
    term = _term(reader, {})
    reader.expect_end()
    return term


def parse_type(text: str, types: Mapping[str, Type] = _NONE) -> Type:
    """Returns the type that a text stands for, such as `!(A[8] -o A[8]) -o 1`; for `types` see `parse`.

    Raises:
      ParseError: the text is not a type.
    """
    reader = _Reader(text, types, _NONE)
    of = _type(reader, {})
    reader.expect_end()
    return of


class _Reader:
    """The words of a text, with their places, and the first one that has not been read."""

    def __init__(self, text: str, types: Mapping[str, Type], terms: Mapping[str, Term]):
        if not isinstance(text, str):
            raise ParseError(f"text: got {text!r}, expected a string")
        self.text, self.types, self.terms = text, types, terms
        found = list(_WORDS.finditer(text))
        self.words = [match[match.lastindex or 0] for match in found] + [""]
        self.places = [match.start(match.lastindex or 0) for match in found] + [len(text.rstrip())]
        self.at = 0

    @property
    def word(self) -> str:
        """The next word; the empty string at the end."""
        return self.words[self.at]

    def place(self, at: int) -> str:
        """Returns the line and the column of a word, counted from 1."""
        before = self.text[: self.places[at]]
        return f"line {before.count('\n') + 1}, column {len(before) - before.rfind('\n')}"

    def wrong(self, expected: str, hint: str = "", at: int | None = None) -> ParseError:
        """Returns the error that a word, the next one by default, is not what was expected."""
        at = self.at if at is None else at
        got = f"`{self.words[at]}`" if self.words[at] else "the end"
        return ParseError(f"{self.place(at)}: got {got}, expected {expected}{hint}")

    def take(self, *words: str) -> str | None:
        """Reads and returns the next word if it is one of `words`."""
        if self.word not in words:
            return None
        self.at += 1
        return self.words[self.at - 1]

    def expect(self, word: str, where: str) -> None:
        """Reads a word that has to come next."""
        if not self.take(word):
            raise self.wrong(f"`{word}` {where}")

    def expect_end(self) -> None:
        """Raises ParseError if there are words left."""
        if self.word:
            hint = "; `(x)` is the tensor, write an argument x without brackets" * (self.word == "(x)")
            raise self.wrong("an operator, an argument or the end", hint)

    def is_name(self) -> bool:
        """Returns whether the next word is a name."""
        return bool(re.match(r"[^\W\d]", self.word)) and self.word not in _KEYWORDS

    def name(self, what: str) -> str:
        """Reads a name."""
        if not self.is_name():
            raise self.wrong(f"{what}, a name")
        self.at += 1
        return self.words[self.at - 1]

    def built(self, at: int, form: Callable[..., Term], *parts: object) -> Term:
        """Returns a term; an error of its types gets the place of the word from which it extends."""
        try:
            return form(*parts)
        except IllTyped as error:
            raise IllTyped(f"{self.place(at)}: {error}") from None


# The types of the variables in scope; a type variable X has the key `/\X`.
type _Scope = dict[str, Type]


@stackless
def _term(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    at = reader.at
    if reader.take("/\\"):
        name = reader.name("a type variable after `/\\`")
        reader.expect(".", f"after `/\\{name}`")
        return TypeLam(name, (yield _term.steps(reader, scope | _type_variable(name))))
    if reader.take("\\"):
        opened = reader.take("!")
        name = reader.name("a variable after `\\`")
        reader.expect(":", f"and the type of {name}")
        start = reader.at
        of = yield _type.steps(reader, scope)
        if opened and not isinstance(of, Bang):
            raise ParseError(f"{reader.place(start)}: got type {of}, expected a type !A for `\\!{name}`")
        reader.expect(".", f"after the type of {name}")
        body = yield _term.steps(reader, scope | {name: of.body if opened else of})
        if opened:
            body = LetBang(Var(name, of), name, body)
        return Lam(name, of, body)
    form: Callable[[Term, Term], Term]
    if not reader.take("let"):
        return (yield _sum.steps(reader, scope))
    if reader.take("*"):
        form = LetStar
    elif reader.take("!"):
        name = reader.name("a variable after `let !`")
        form = lambda t, u: LetBang(t, name, u)  # noqa: E731
    elif reader.is_name():
        left = reader.name("a variable")
        reader.expect("(x)", f"after `let {left}`")
        right = reader.name(f"a variable after `let {left} (x)`")
        form = lambda t, u: LetPair(t, left, right, u)  # noqa: E731
    else:
        raise reader.wrong("`*`, `!x` or `x (x) y` after `let`")
    reader.expect("=", "after the pattern of `let`")
    scrutinee = yield _sum.steps(reader, scope)
    # A let that the scrutinee does not fit is refused before its body is read.
    wanted = reader.built(at, form, scrutinee, Star())
    reader.expect("in", "after the term that `let` opens")
    body = yield _term.steps(reader, scope | dict(zip(wanted.bound, wanted.bound_types, strict=True)))
    return form(scrutinee, body)


@stackless
def _sum(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    at = reader.at
    several = reader.take("+")
    terms = [(yield _pair.steps(reader, scope))]
    while reader.take("+"):
        terms.append((yield _pair.steps(reader, scope)))
    return reader.built(at, Sum, tuple(terms)) if several or len(terms) > 1 else terms[0]


@stackless
def _pair(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    left = yield _apply.steps(reader, scope)
    if not reader.take("(x)"):
        return left
    return Pair(left, (yield _apply.steps(reader, scope)))


@stackless
def _apply(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    term = yield _prefixed.steps(reader, scope)
    while reader.word in ("*", "!", "<", "|", "(", "@") or reader.is_name() or reader.word.isdigit():
        start = reader.at
        if reader.take("@"):
            term = reader.built(start, TypeApp, term, (yield _basic.steps(reader, scope)))
        else:
            term = reader.built(start, App, term, (yield _atom.steps(reader, scope)))
    return term


@stackless
def _prefixed(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    at = reader.at
    word = reader.take(*_PREFIXES)
    of = None
    if word in ("inl", "inr", "absurd"):
        reader.expect(":", f"and a type after `{word}`")
        of = yield _basic.steps(reader, scope)
    term = yield _atom.steps(reader, scope)
    match word:
        case "fst" | "snd":
            return reader.built(at, Fst if word == "fst" else Snd, term)
        case "inl" | "absurd":
            return reader.built(at, Inl if word == "inl" else Absurd, term, of)
        case "inr":
            return reader.built(at, Inr, of, term)
        case "case":
            reader.expect("of", "after the term of `case`")
            return reader.built(at, Case, term, (yield _atom.steps(reader, scope)))
    return term


@stackless
def _atom(reader: _Reader, scope: _Scope) -> "Steps[Term]":
    at = reader.at
    if reader.take("*"):
        return Star()
    if reader.take("!"):
        return Ket((yield _atom.steps(reader, scope)))
    if reader.take("("):
        term = yield _term.steps(reader, scope)
        reader.expect(")", f"for the bracket of {reader.place(at)}")
        return term
    if reader.take("<"):
        if reader.take(">"):
            return Trivial()
        left = yield _term.steps(reader, scope)
        reader.expect(",", f"after the first component of `<` of {reader.place(at)}")
        right = yield _term.steps(reader, scope)
        reader.expect(">", f"for `<` of {reader.place(at)}")
        return Both(left, right)
    if reader.take("|"):
        vectors = [(yield _term.steps(reader, scope))]
        while reader.take(","):
            vectors.append((yield _term.steps(reader, scope)))
        reader.expect(">_", f"or `,` for `|` of {reader.place(at)}")
        point = yield _atom.steps(reader, scope)
        return reader.built(at, Ket, point, tuple(vectors))
    if reader.word == "0" and reader.words[reader.at + 1] == ":":
        reader.at += 2
        return Zero((yield _basic.steps(reader, scope)))
    if not (reader.is_name() or reader.word.isdigit()):
        hint = "; `(x)` is the tensor, write an argument x without brackets" * (reader.word == "(x)")
        raise reader.wrong("a term", hint)
    reader.at += 1
    name = reader.words[at]
    if name in scope:
        return Var(name, scope[name])
    if name not in reader.terms:
        known = sorted({*(name for name in scope if name[0] != "/"), *reader.terms})
        raise reader.wrong(f"a bound variable or one of {', '.join(known) or 'no names'}", at=at)
    given = reader.terms[name]
    return _uncaptured(reader, given, {*given.free, *_keys(type_variables(given))}, scope, at)


def _uncaptured[T: Term | Type](reader: _Reader, given: T, free: set[str], scope: _Scope, at: int) -> T:
    if captured := sorted(free & scope.keys()):
        what = "term" if isinstance(given, Term) else "type"
        raise reader.wrong(f"a {what} without the free variable {captured[0]}, which is bound here", at=at)
    return given


def _keys(type_variables: Iterable[str]) -> set[str]:
    return {f"/\\{name}" for name in type_variables}


def _type_variable(name: str) -> _Scope:
    r"""Returns the scope of the type variable that a quantifier or `/\X` binds."""
    return {f"/\\{name}": TypeVariable(name)}


@stackless
def _type(reader: _Reader, scope: _Scope) -> "Steps[Type]":
    if reader.take("forall"):
        name = reader.name("a type variable after `forall`")
        reader.expect(".", f"after `forall {name}`")
        return ForAll(name, (yield _type.steps(reader, scope | _type_variable(name))))
    left = yield _product.steps(reader, scope)
    return Lolli(left, (yield _type.steps(reader, scope))) if reader.take("-o") else left


@stackless
def _product(reader: _Reader, scope: _Scope) -> "Steps[Type]":
    left = yield _basic.steps(reader, scope)
    kind = reader.take("(x)", "&", "+")
    if not kind:
        return left
    return {"(x)": Tensor, "&": With, "+": Plus}[kind](left, (yield _basic.steps(reader, scope)))


@stackless
def _basic(reader: _Reader, scope: _Scope) -> "Steps[Type]":
    at = reader.at
    if reader.take("!"):
        return Bang((yield _basic.steps(reader, scope)))
    if reader.take("("):
        of = yield _type.steps(reader, scope)
        reader.expect(")", f"for the bracket of {reader.place(at)}")
        return of
    if constant := reader.take("1", "0", "top"):
        return {"1": One, "0": Void, "top": Top}[constant]
    name = reader.name("a type: `1`, `0`, `top`, `!`, `(`")
    if reader.take("["):
        size = reader.word
        if not size.isdecimal() or len(size) > _LONGEST or int(size) < 1:
            raise reader.wrong(f"the dimension of {name}, at least 1 and at most {_LONGEST} digits")
        reader.at += 1
        reader.expect("]", f"after the dimension of {name}")
        return Atom(name, int(size))
    if f"/\\{name}" in scope:
        return scope[f"/\\{name}"]
    if name not in reader.types:
        known = ", ".join(sorted(reader.types)) or "no names"
        raise reader.wrong(f"one of {known}, or the dimension of the atom as in `{name}[8]`", at=at)
    given = reader.types[name]
    return _uncaptured(reader, given, _keys(given.variables()), scope, at)
