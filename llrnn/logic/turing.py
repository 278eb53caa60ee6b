r"""Turing machines as proofs: one step of any machine with the symbols 0 and 1 (Clift & Murfet 2018).

J. Clift, D. Murfet, "Encodings of Turing machines in linear logic", arXiv 1805.10770, after Girard. A
configuration is `!bint (x) !bint (x) !nbool`: the tape to the left of the head, with the symbol under the
head as its last digit; the tape to the right, reversed, so that the symbol next to the head is last; and one
of n states, the projection from the product of n copies of A to one of them. Beyond its ends a tape has the
symbol 0.

A step asks words for their last digit and for the rest. Both run the word on triples A & A & A, so the step
over one type A leads from configurations over A & A & A to configurations over A, and a run needs the types
of as many triples of triples. Over every type (`a=None`), configurations are of one type and steps compose.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple, get_args

from llrnn.logic import programs
from llrnn.logic.normalize import normalize
from llrnn.logic.term import App, Term, Var, need_terms
from llrnn.logic.terms import Fst, Ket, Pair, Snd
from llrnn.logic.tracing import bang, banged, both, lam, let_bang, let_pair, polymorphic
from llrnn.logic.types import Atom, Bang, ForAll, Lolli, Tensor, Type, TypeVariable, With, binary, endo

Part = Literal["left", "right", "state"]
"""The parts of a configuration: the tapes to both sides, and the state."""

_MOVES = ("left", "right")
_PARTS: tuple[Part, ...] = get_args(Part)


class Configuration(NamedTuple):
    """What a machine has before it: its state and its tape.

    Attributes:
      state: the number of the state, from 0.
      left: the tape up to the head, whose symbol is the last one; "0" and "1".
      right: the tape beyond the head, reversed: the symbol next to the head is the last one.
    """

    state: int
    left: str
    right: str


@dataclass(frozen=True)
class Machine:
    """A Turing machine.

    Attributes:
      states: the number of states.
      transitions: for each state and symbol, such as (0, "1"), the next state, the symbol to write, and
        "left" or "right". A state in which the machine halts leads to itself.
    """

    states: int
    transitions: Mapping[tuple[int, str], tuple[int, str, str]]

    def __post_init__(self) -> None:
        wanted = {(state, symbol) for state in range(self.states) for symbol in "01"}
        if self.states < 1 or set(self.transitions) != wanted:
            raise ValueError(
                f"transitions: got entries for {sorted(self.transitions)}, expected one for each of "
                f"{self.states} states, at least one, and each of the symbols '0' and '1'"
            )
        for place, (state, symbol, move) in self.transitions.items():
            if state not in range(self.states) or symbol not in ("0", "1") or move not in _MOVES:
                raise ValueError(
                    f"transitions: got {(state, symbol, move)} for {place}, expected a state below "
                    f"{self.states}, the symbol '0' or '1', and 'left' or 'right'"
                )


def simulate(machine: Machine, configuration: Configuration) -> Configuration:
    """Returns the configuration after one step, computed without linear logic."""
    state, left, right = configuration
    state, symbol, move = machine.transitions[state, left[-1:] or "0"]
    if move == "left":
        return Configuration(state, left[:-1], right + symbol)
    return Configuration(state, left[:-1] + symbol + (right[-1:] or "0"), right[:-1])


def configuration_type(machine: Machine, a: Type | None = None) -> Type:
    """Returns `!bint (x) !bint (x) !nbool` over a type, or with quantifiers, as all parts of a proof."""
    left, right, state = map(Bang, _part_types(machine, a))
    return Tensor(left, Tensor(right, state))


def encode(machine: Machine, configuration: Configuration, a: Type | None = None) -> Term:
    """Returns a configuration as a proof : `configuration_type(machine, a)`, in normal form.

    Raises:
      ValueError: the machine has no such state, or a tape has other symbols than "0" and "1".
    """
    state, left, right = configuration
    if state not in range(machine.states):
        raise ValueError(f"configuration: got state {state!r}, expected one of 0 to {machine.states - 1}")
    words = [_made(lambda of, w=word: programs.binary_integer(w, of), a) for word in (left, right)]
    count = machine.states
    number = _made(lambda of: lam(_product([of] * count), lambda p: _component(p, state, count)), a)
    return Pair(bang(words[0]), Pair(bang(words[1]), bang(number)))


def decode(machine: Machine, term: Term) -> Configuration:
    """Returns the configuration that a closed proof of the type of configurations computes.

    Raises:
      ValueError: the proof is not of this type, or is a superposition of configurations.
    """
    need_terms(term=term)
    match normalize(term):
        case Pair(
            left=Ket(point=left, vectors=()),
            right=Pair(left=Ket(point=right, vectors=()), right=Ket(point=state, vectors=())),
        ):
            return Configuration(_number(state, machine.states), _digits(left), _digits(right))
    raise ValueError(f"term: got a proof of {term.type}, expected {configuration_type(machine)} at a point")


def step(machine: Machine, a: Type | None = None) -> Term:
    """Returns one step of a machine, as a proof.

    Args:
      machine: the machine.
      a: a type A; None for every type.

    Returns:
      a term of type C(A & (A & A)) -o C(A), with C(A) = `configuration_type(machine, A)`; of type C -o C with
      C = `configuration_type(machine)` for None.
    """

    def after(s: Term, t: Term, q: Term) -> Term:
        left, right, state = (bang(_after(machine, name, a, s, t, q)) for name in _PARTS)
        return Pair(left, Pair(right, state))

    def opened(left: Term, rest: Term) -> Term:
        return let_pair(
            rest,
            lambda right, state: let_bang(
                left, lambda s: let_bang(right, lambda t: let_bang(state, lambda q: after(s, t, q)))
            ),
        )

    before = configuration_type(machine, None if a is None else _triple(a))
    return lam(before, lambda configuration: let_pair(configuration, opened))


def part(machine: Machine, after: Part, *, by: Part = "left", a: Type | None = None) -> Term:
    """Returns a part of the configuration after a step, as a program of the three parts before it.

    At configurations that are points, a step applies these three programs. They are smooth in each part
    before, and `derivative` differentiates a program in its first input.

    Args:
      machine: the machine.
      after: the part after the step: "left", "right" or "state".
      by: the part before the step that is the first input; the two others follow in this order.
      a: as for `step`.

    Returns:
      a term of type !X -o !Y -o !Z -o B: with parts over A & (A & A) before the step, and B a part over A.

    Raises:
      ValueError: a part has another name.
    """
    for argument, name in (("after", after), ("by", by)):
        if name not in _PARTS:
            raise ValueError(f"{argument}: got {name!r}, expected one of {', '.join(map(repr, _PARTS))}")
    order = sorted(_PARTS, key=lambda name: name != by)
    types = dict(zip(_PARTS, _part_types(machine, None if a is None else _triple(a)), strict=True))

    def body(*given: Term) -> Term:
        before = dict(zip(order, given, strict=True))
        return _after(machine, after, a, *(before[name] for name in _PARTS))

    return banged(*(types[name] for name in order), lambda x, y, z: body(x, y, z))


def run(machine: Machine, configuration: Configuration, steps: int) -> list[Configuration]:
    """Returns the configurations of a run, the first one included, each by cut elimination from the last."""
    program, seen = step(machine), [configuration]
    term = encode(machine, configuration)
    for _ in range(steps):
        term = normalize(program(term))
        seen.append(decode(machine, term))
    return seen


def head(s: Term, zero: Term, one: Term) -> Term:
    """Returns, of two terms of a type A, the one that the last digit of a word over A & A & A chooses.

    The digits write into the third component what the first two keep; the empty word has the digit 0.
    """

    def write(digit: int) -> Term:
        return bang(lam(_triple(zero.type), lambda p: both(*_parts(p)[:2], _parts(p)[digit])))

    return _parts(s(write(0), write(1))(both(zero, one, zero)))[2]


def tail(s: Term, x: Term, y: Term, z: Term) -> Term:
    """Returns what a word over A & A & A without its last digit makes of z : A with the operators x and y."""

    def behind(f: Term) -> Term:
        return lam(_triple(z.type), lambda p: both(_parts(p)[1], f(_parts(p)[1]), _parts(p)[1]))

    return Fst(s(bang(behind(x)), bang(behind(y)))(both(z, z, z)))


def _whole(s: Term, x: Term, y: Term, z: Term) -> Term:
    """Returns what a word over A & A & A makes of z : A."""

    def each(f: Term) -> Term:
        return lam(_triple(z.type), lambda p: both(*(f(part) for part in _parts(p))))

    return Fst(s(bang(each(x)), bang(each(y)))(both(z, z, z)))


def _cases(machine: Machine, s: Term, q: Term, result: Callable[[int, str, str], Term]) -> Term:
    """Returns the result, a term of A, for the transition of the state q and of the last digit of s."""
    by_state = [
        head(s, *(result(*machine.transitions[state, symbol]) for symbol in "01"))
        for state in range(machine.states)
    ]
    return Fst(q(_nested([both(value, value, value) for value in by_state])))


def _left(machine: Machine, s: Term, t: Term, q: Term, of: Type) -> Term:
    """Returns the tape to the left after a step."""

    def body(x: Term, y: Term, z: Term) -> Term:
        def result(_: int, symbol: str, move: str) -> Term:
            rest = tail(s, x, y, z)
            written = (x, y)[int(symbol)](rest)
            return rest if move == "left" else head(t, x(written), y(written))

        return _cases(machine, s, q, result)

    return banged(endo(of), endo(of), lambda x, y: lam(of, lambda z: body(x, y, z)))


def _right(machine: Machine, s: Term, t: Term, q: Term, of: Type) -> Term:
    """Returns the tape to the right after a step."""

    def body(x: Term, y: Term, z: Term) -> Term:
        def result(_: int, symbol: str, move: str) -> Term:
            return (x, y)[int(symbol)](_whole(t, x, y, z)) if move == "left" else tail(t, x, y, z)

        return _cases(machine, s, q, result)

    return banged(endo(of), endo(of), lambda x, y: lam(of, lambda z: body(x, y, z)))


def _state(machine: Machine, s: Term, t: Term, q: Term, of: Type) -> Term:
    """Returns the state after a step; it does not depend on the tape to the right, t."""
    count = machine.states
    return lam(
        _product([of] * count),
        lambda p: _cases(machine, s, q, lambda state, symbol, move: _component(p, state, count)),
    )


def _part_types(machine: Machine, a: Type | None) -> tuple[Type, Type, Type]:
    """Returns the types of both tapes and of the state."""
    word = _over(binary, a)
    return word, word, _over(lambda of: Lolli(_product([of] * machine.states), of), a)


def _after(machine: Machine, name: Part, a: Type | None, s: Term, t: Term, q: Term) -> Term:
    """Returns a part after a step from the tapes s and t and the state q."""
    make = {"left": _left, "right": _right, "state": _state}[name]
    return _made(lambda of: make(machine, _at(s, a, of), _at(t, a, of), _at(q, a, of), of), a)


def _over(make: Callable[[Type], Type], a: Type | None) -> Type:
    return ForAll("X", make(TypeVariable("X"))) if a is None else make(a)


def _made(make: Callable[[Type], Term], a: Type | None) -> Term:
    return polymorphic(lambda X: make(X)) if a is None else make(a)


def _at(term: Term, a: Type | None, of: Type) -> Term:
    return term[_triple(of)] if a is None else term


def _product(types: Sequence[Type]) -> Type:
    """Returns A1 & (A2 & ..)."""
    *front, last = types
    return reduce(lambda product, of: With(of, product), reversed(front), last)


def _triple(of: Type) -> Type:
    return _product([of] * 3)


def _nested(terms: Sequence[Term]) -> Term:
    return both(*terms) if len(terms) > 1 else terms[0]


def _component(product: Term, place: int, count: int) -> Term:
    """Returns a component of A1 & (A2 & .. An), counted from 0."""
    for _ in range(place):
        product = Snd(product)
    return product if place == count - 1 else Fst(product)


def _parts(triple: Term) -> list[Term]:
    return [_component(triple, place, 3) for place in range(3)]


_SOME = Atom("A", 1)


def _digits(word: Term) -> str:
    """Returns the digits of a word, from its normal form on variables."""
    word = word[_SOME] if isinstance(word.type, ForAll) else word
    match word.type:
        case Lolli(domain=Bang(body=Lolli(domain=of))):
            zero, one = (Var(digit, endo(of)) for digit in "01")
            rest, digits = normalize(word(bang(zero), bang(one), Var("z", of))), ""
            while isinstance(rest, App) and isinstance(rest.function, Var):
                digits = rest.function.name + digits
                rest = rest.argument
            if isinstance(rest, Var):
                return digits
    raise ValueError(f"term: got {word} as a part of the tape, expected a word")


def _number(state: Term, count: int) -> int:
    """Returns the number of a state, from its normal form on a variable."""
    state = state[_SOME] if isinstance(state.type, ForAll) else state
    if isinstance(state.type, Lolli):
        product = Var("p", state.type.domain)
        found = normalize(state(product))
        for number in range(count):
            if found == _component(product, number, count):
                return number
    raise ValueError(f"term: got {state} as the state, expected a projection of {count} components")
