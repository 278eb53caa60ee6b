r"""Terms as text: `\!f. \z. f (f z)`.

`\!x. u` abbreviates `\y. let !x = y in u`, which is how a banged argument is taken.
"""

from llrnn.logic.stackless import Steps, stackless
from llrnn.logic.terms import (
    App,
    Both,
    Fst,
    Ket,
    Lam,
    LetBang,
    LetPair,
    LetStar,
    Pair,
    Snd,
    Star,
    Sum,
    Term,
    Var,
    Zero,
)
from llrnn.logic.types import Type

# How tightly a construct holds: a binder reaches as far right as it can, an atom needs no brackets.
_OPEN, _SUM, _PAIR, _APPLY, _ATOM = range(5)


def show(term: Term, types: bool = False) -> str:
    """The term on one line; with `types`, each bound variable of a lambda shows its type."""
    return _show(term, _OPEN, types)


def opens_argument(term: Term) -> bool:
    r"""Whether the term is of the form `\!x. u`, a lambda whose only use of its variable is to open it."""
    return (
        isinstance(term, Lam)
        and isinstance(term.body, LetBang)
        and isinstance(term.body.scrutinee, Var)
        and term.body.scrutinee.name == term.name
        and (term.name == term.body.name or term.name not in term.body.body.free)
    )


def _of(types: bool, of: Type) -> str:
    return f":{of}" if types else ""


@stackless
def _show(term: Term, tightness: int, types: bool) -> "Steps[str]":
    level = _OPEN
    match term:
        case Var(name=name):
            return name
        case Star():
            return "*"
        case Zero():
            return "0"
        case Both():
            left = yield _show.steps(term.left, _OPEN, types)
            right = yield _show.steps(term.right, _OPEN, types)
            return f"<{left}, {right}>"
        case Ket(vectors=()):
            inner = yield _show.steps(term.point, _ATOM, types)
            return f"!{inner}"
        case Ket():
            vectors = []
            for vector in term.vectors:
                vectors.append((yield _show.steps(vector, _OPEN, types)))
            point = yield _show.steps(term.point, _ATOM, types)
            return f"|{', '.join(vectors)}>_{point}"
        case Lam(body=LetBang() as opened) if opens_argument(term):
            body = yield _show.steps(opened.body, _OPEN, types)
            text = f"\\!{opened.name}{_of(types, term.domain)}. {body}"
        case Lam():
            body = yield _show.steps(term.body, _OPEN, types)
            text = f"\\{term.name}{_of(types, term.domain)}. {body}"
        case App():
            function = yield _show.steps(term.function, _APPLY, types)
            argument = yield _show.steps(term.argument, _ATOM, types)
            text, level = f"{function} {argument}", _APPLY
        case Fst() | Snd():
            product = yield _show.steps(term.product, _ATOM, types)
            text, level = f"{type(term).__name__.lower()} {product}", _APPLY
        case Pair():
            left = yield _show.steps(term.left, _APPLY, types)
            right = yield _show.steps(term.right, _APPLY, types)
            text, level = f"{left} (x) {right}", _PAIR
        case Sum():
            parts = []
            for part in term.terms:
                parts.append((yield _show.steps(part, _PAIR, types)))
            text, level = " + ".join(parts), _SUM
        case LetStar() | LetPair() | LetBang():
            scrutinee = yield _show.steps(term.scrutinee, _SUM, types)
            body = yield _show.steps(term.body, _OPEN, types)
            pattern = "*"
            if isinstance(term, LetPair):
                pattern = f"{term.left} (x) {term.right}"
            elif isinstance(term, LetBang):
                pattern = f"!{term.name}"
            text = f"let {pattern} = {scrutinee} in {body}"
        case _:
            raise ValueError(f"term: not a term: {term!r}")
    return text if level >= tightness else f"({text})"
