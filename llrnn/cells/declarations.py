"""Where the vectors that a proof is applied to come from: a declaration for each of its banged inputs.

Hu & Murfet (2017), Definition 2.4 and (2.10). Axis letters: N the coordinates of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jaxtyping import Array, Float

from llrnn import logic
from llrnn.cells.recurrent import COUPLINGS
from llrnn.logic.types import bang_free, dimension
from llrnn.logic.values import coerce


class ProgramSpace(Protocol):
    """A space of programs with coordinates: `logic.Span`, `logic.numeral_span`, `logic.word_span`."""

    @property
    def dimension(self) -> int:
        """How many coordinates there are."""

    @property
    def type(self) -> logic.Type:
        """The type of the programs."""

    def denote(self, coordinates: Float[Array, "N"]) -> Any:
        """The value of the programs' type with these coordinates."""


@dataclass(frozen=True, eq=False)
class Command:
    """A command vector: a superposition sum_i p_i [[program_i]] of programs, p = softmax(W h + B).

    Attributes:
      name: of its parameters.
      programs: closed terms of one type, or a space of programs such as `logic.numeral_span`.
      coupling: "predicted", from the state; "given", p is the next features of the input (the commands that
        are given take the first features of the input, in the order of their declarations; the rest is x).
    """

    name: str
    programs: "ProgramSpace | tuple[logic.Term, ...]"
    coupling: str = "predicted"

    @property
    def span(self) -> "ProgramSpace":
        """The span of the programs."""
        return logic.Span(self.programs) if isinstance(self.programs, tuple) else self.programs


@dataclass(frozen=True, eq=False)
class Data:
    """A data vector b = sigma(W h + B) of a bang-free type.

    Attributes:
      name: of its parameters.
      activation: sigma; None takes the cell's.
      basis: [N, dimension of the type], vectors that span the subspace b lies in; None for all of the type.
    """

    name: str
    activation: Callable[[Array], Array] | None = None
    basis: Float[Array, "N _"] | None = None


@dataclass(frozen=True, eq=False)
class Input:
    """An input vector c = W x of a bang-free type.

    Attributes:
      name: of its parameters.
      basis: [N, dimension of the type], vectors that span the subspace c lies in; None for all of the type.
    """

    name: str
    basis: Float[Array, "N _"] | None = None


@dataclass(frozen=True, eq=False)
class Weight:
    """A learned vector of a bang-free type, the same at every step."""

    name: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """A given value of any type, the same at every step; an operator as a matrix or as a linear callable."""

    name: str
    value: Any


type Declaration = Command | Data | Input | Weight | Fixed


def components(state: logic.Type) -> tuple[logic.Type, ...]:
    """The factors of a product of types, from left to right; a type that is no product is its only one."""
    match state:
        case logic.With(left, right):
            return components(left) + components(right)
    return (state,)


def banged_domains(of: logic.Type, count: int) -> tuple[list[logic.Type], logic.Type]:
    """T1, T2, .. of a type !T1 -o !T2 -o .. -o B, at most `count`, and B."""
    domains = []
    while len(domains) < count and isinstance(of, logic.Lolli) and isinstance(of.domain, logic.Bang):
        domains.append(of.domain.body)
        of = of.codomain
    return domains, of


def state_type(master: logic.Term, inputs: Sequence[Declaration], name: str = "master") -> logic.Type:
    """The type A of the state of a proof with these inputs, everything checked.

    Raises:
      ValueError: the term is no proof (`logic.check` says why), its type does not fit Definition 2.4, or a
        declaration does not fit its type; the message names it and shows both.
    """
    of = logic.check(master)
    domains, rest = banged_domains(of, len(inputs))
    for declared, domain in zip(inputs, domains, strict=False):
        _check_declaration(declared, domain)
    if len(domains) < len(inputs):
        raise ValueError(
            f"{name} : {of} has {len(domains)} banged inputs before its state, but {len(inputs)} are declared"
        )
    if isinstance(rest, logic.Lolli):
        state = rest.codomain
        if bang_free(state) and rest.domain in (state, logic.Bang(state)):
            return state
    raise ValueError(
        f"{name} : {of} must end, after the {len(inputs)} declared inputs, in A -o A or !A -o A for a type A "
        f"without bangs; it ends in {rest}"
    )


def _check_declaration(declared: Declaration, of: logic.Type) -> None:
    what = f"{type(declared).__name__} {declared.name!r}"
    if isinstance(declared, Command):
        if declared.coupling not in COUPLINGS:
            raise ValueError(
                f"coupling of {what} must be one of {', '.join(COUPLINGS)}, got {declared.coupling!r}"
            )
        if declared.span.type != of:
            raise ValueError(
                f"{what} spans programs of type {declared.span.type}, but the proof's input is !({of})"
            )
        return
    if isinstance(declared, Fixed):
        try:
            coerce(declared.value, of)
        except ValueError as error:
            raise ValueError(f"{what} is no value of the proof's input type {of}: {error}") from error
        return
    if not bang_free(of):
        raise ValueError(
            f"{what} needs a type without bangs, whose dimension is finite; the proof's input is !({of})"
        )
    basis = None if isinstance(declared, Weight) else declared.basis
    if basis is not None and (basis.ndim != 2 or basis.shape[1] != dimension(of)):
        raise ValueError(f"basis of {what} must be [N, {dimension(of)}] for type {of}, got {basis.shape}")
