r"""The cell of a proof from text, for configs and command lines.

    cell_of_text(8, r"\!m:!int. \!n:!int. \!x:!E. \!y:!E. n !(\z:H. y (m !x z))",
                 ("m: given numerals 3", "n: given numerals 3", "x: input", "y: input"))

`llrnn.logic.parsing` has the grammar of proofs. A declaration is `NAME: SOURCE`, where SOURCE is

    input                        an `Input`, W x
    input I:J                    an `Input` that reads the features I .. J - 1 of x
    data                         a `Data` vector, sigma(W h + B)
    weight                       a `Weight`
    roll K                       a `Fixed` operator on an atom, the rotation of its coordinates by K places
    command P or given P         a `Command`, predicted or given, on the programs P
    from_input P                 a `Command` that is predicted from the input
    both P                       a `Command` that is predicted from state and input
    table P                      a `Command` with a learned program for each of as many tokens
        where P is
        numerals L               the numerals 0 .. L over the type that the proof asks for
        words L                  all binary words of length L over that type
        t; t; ..                 the programs of these terms

The initial state is a text for each factor of its type, such as ("0", "unit 0", "unit 0", "1e-6") for the
state (h, r, w, M) of a Neural Turing Machine, whose addresses start at location 0:

    NUMBER                       all coordinates of the factor
    unit K                       the unit vector K, counted from 0
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from flax import linen as nn
from jaxtyping import Array

from llrnn import logic
from llrnn.cells.coupling import Coupling
from llrnn.cells.declarations import (
    Command,
    Data,
    Declaration,
    Fixed,
    Input,
    ProgramSpace,
    Weight,
    banged_domains,
    components,
    state_type,
)
from llrnn.cells.general import LLRNNCell
from llrnn.logic.types import dimension
from llrnn.logic.values import Value, unflatten

_COUPLINGS: Mapping[str, Coupling] = MappingProxyType(
    {"command": "predicted", "given": "given", "from_input": "input", "both": "both", "table": "table"}
)
_NUMBER = r"\d{1,18}"  # `int` refuses thousands of digits
_SOURCES = f"input, input I:J, data, weight, roll K, or PROGRAMS after {', '.join(_COUPLINGS)}"


def cell_of_text(
    features: int,
    proof: str = r"\!x:!E. x",
    inputs: tuple[str, ...] = ("x: input",),
    controller: tuple[int, ...] | None = None,
    inside: tuple[int, ...] | None = None,
    normalize: bool = False,
    activation: Callable[[Array], Array] = nn.relu,
    temperature: float = 1.0,
    straight_through: bool = False,
    initial: tuple[str, ...] | None = None,
) -> LLRNNCell:
    """Returns the cell of a proof that is given as text; by default the second-order cell.

    Args:
      features: the dimension of the atom H.
      proof: the master. It may use the types H, E = H -o H, int and bint (over H) and atoms with their
        dimension such as `W[64]`, and the terms 0 .. 9 (numerals), plus, mult, square, concat, repeat,
        compose, evaluate and feed (over H).
      inputs: a declaration for each banged input of the proof, in order; the module's docstring has the form.
      controller: as for `LLRNNCell`.
      inside: as for `LLRNNCell`.
      normalize: as for `LLRNNCell`.
      activation: as for `LLRNNCell`.
      temperature: of every `Command`.
      straight_through: of every `Command`.
      initial: the initial state, a text for each factor of its type, from left to right; the module's
        docstring has the form. None for 0, or for the first unit vector with inside=(): the cell is then
        linear, and 0 would stay 0.

    Raises:
      ValueError: the proof, a declaration or the initial state cannot be read, or the proof is none of its
        type.
    """
    types, terms = _names_over(logic.Atom("H", features))
    try:
        master = logic.parse(proof, types, terms)
    except ValueError as error:
        raise ValueError(f"proof: {error}") from error
    domains, _ = banged_domains(master.type, len(inputs))
    if len(domains) < len(inputs):
        raise ValueError(
            f"inputs: got {len(inputs)} declarations, expected {len(domains)}, one per banged input of "
            f"proof : {master.type}"
        )
    read = [_declared(text, of, types, terms) for text, of in zip(inputs, domains, strict=True)]
    hardened = {"temperature": temperature, "straight_through": straight_through}
    read = tuple(dataclasses.replace(d, **hardened) if isinstance(d, Command) else d for d in read)
    state = state_type(master, read, "proof")
    if initial is not None:
        start = _initial(initial, state)
    else:
        start = unflatten(np.eye(dimension(state))[0], state) if inside == () else None
    return LLRNNCell(
        master,
        read,
        controller=controller,
        inside=inside,
        normalize=normalize,
        initial=start,
        activation=activation,
    )


def _names_over(h: logic.Atom) -> tuple[Mapping[str, logic.Type], Mapping[str, logic.Term]]:
    """Returns the types and the terms over an atom that a text may name."""
    types = {h.name: h, "E": logic.endo(h), "int": logic.integer(h), "bint": logic.binary(h)}
    library = (
        logic.plus,
        logic.mult,
        logic.square,
        logic.concat,
        logic.repeat,
        logic.compose,
        logic.evaluate,
        logic.feed,
    )
    numerals = {str(n): logic.numeral(n, h) for n in range(10)}
    return types, numerals | {program.__name__: program(h) for program in library}


def _initial(texts: tuple[str, ...], state: logic.Type) -> Value:
    """Returns the value of the state's type that a text for each of its factors describes."""
    factors = components(state)
    if len(texts) != len(factors):
        raise ValueError(
            f"initial: got {len(texts)} texts, expected {len(factors)}, one per factor of the state {state}"
        )
    parts = []
    for text, factor in zip(texts, factors, strict=True):
        size = dimension(factor)
        if (found := re.fullmatch(f"unit ({_NUMBER})", text.strip())) and int(found[1]) < size:
            parts.append(np.eye(size)[int(found[1])])
            continue
        try:
            parts.append(np.full(size, float(text)))
        except ValueError as error:
            raise ValueError(
                f"initial: got {text!r} for the factor {factor}, expected a number, or `unit K` with K from "
                f"0 to {size - 1}"
            ) from error
    return unflatten(np.concatenate(parts), state)


def _declared(
    text: str, of: logic.Type, types: Mapping[str, logic.Type], terms: Mapping[str, logic.Term]
) -> Declaration:
    name, _, source = (part.strip() for part in text.partition(":"))
    kind, _, rest = source.partition(" ")
    match kind:
        case "input" | "data" | "weight" if name and not rest:
            return {"input": Input, "data": Data, "weight": Weight}[kind](name)
        case "input" if name and (found := re.fullmatch(f"({_NUMBER}):({_NUMBER})", rest)):
            return Input(name, features=(int(found[1]), int(found[2])))
        case "roll" if name and re.fullmatch(rf"-?{_NUMBER}", rest):
            if not (isinstance(of, logic.Lolli) and of.domain == of.codomain):
                raise ValueError(f"inputs: got {text!r} for type {of}, expected a type A -o A for `roll`")
            return Fixed(name, np.roll(np.eye(dimension(of.domain)), int(rest), axis=0))
        case _ if kind in _COUPLINGS and name and rest:
            return Command(name, _programs(text, rest, of, types, terms), _COUPLINGS[kind])
    raise ValueError(f"inputs: got {text!r}, expected `NAME: SOURCE` with a source of {_SOURCES}")


def _programs(
    text: str,
    programs: str,
    of: logic.Type,
    types: Mapping[str, logic.Type],
    terms: Mapping[str, logic.Term],
) -> ProgramSpace | tuple[logic.Term, ...]:
    kind, _, size = programs.partition(" ")
    if kind in ("numerals", "words") and re.fullmatch(_NUMBER, size):
        span, typed = {
            "numerals": (logic.numeral_span, logic.integer),
            "words": (logic.word_span, logic.binary),
        }[kind]
        match of:
            case logic.Lolli(logic.Bang(logic.Lolli(a, _)), _) if typed(a) == of:
                return span(int(size), a)
        raise ValueError(
            f"inputs: got {text!r} for type {of}, expected the type of {kind}, such as {typed(types['H'])}"
        )
    try:
        return tuple(logic.parse(part, types, terms) for part in programs.split(";"))
    except ValueError as error:
        raise ValueError(f"inputs: got {text!r}, expected numerals L, words L or terms: {error}") from error
