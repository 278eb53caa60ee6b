"""Declarations that state, for each banged input of a proof, where its vector comes from.

Hu & Murfet (2017), Definition 2.4 and (2.10). Axis letters: N coordinates of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args, runtime_checkable

from jaxtyping import Array, Float

from llrnn import logic
from llrnn.cells.base import above, one_of
from llrnn.cells.coupling import TAKES_FEATURES, Coupling
from llrnn.logic.types import dimension, finite_dimensional, texts
from llrnn.logic.values import Value, coerce


@runtime_checkable
class ProgramSpace(Protocol):
    """A space of programs with coordinates: `logic.Span`, `logic.numeral_span`, `logic.word_span`."""

    @property
    def dimension(self) -> int:
        """The number of coordinates, N."""
        ...

    @property
    def type(self) -> logic.Type:
        """The type of the programs."""
        ...

    def denote(self, coordinates: Float[Array, "N"]) -> Value:
        """Returns the superposition of the programs with these coordinates, a value of `type`."""
        ...


@dataclass(frozen=True, eq=False)
class Command:
    """A command vector: a superposition sum_i p_i [[program_i]] of programs.

    Attributes:
      name: name of its parameters.
      programs: closed terms of one type, or a space of programs such as `logic.numeral_span`.
      coupling: the source of p; `llrnn.cells.coupling` has the equations. "predicted" computes p from the
        state. "given" reads p from the input and "table" reads one-hot tokens: the first features of the
        input are those of such commands, in the order of their declarations, and the rest is x. Given
        coordinates that are all 0 are the zero program, with Z h = 0; a normalized cell then keeps its state.
      tokens: the number of tokens of a table; None for as many as programs.
      temperature: divides the logits of p.
      straight_through: use the most probable program, with the gradient of the mixture.
    """

    name: str
    programs: ProgramSpace | tuple[logic.Term, ...]
    coupling: Coupling = "predicted"
    tokens: int | None = None
    temperature: float = 1.0
    straight_through: bool = False

    @property
    def num_features(self) -> int:
        """The number of features that it takes from the front of the input."""
        if self.coupling not in TAKES_FEATURES:
            return 0
        return self.span.dimension if self.tokens is None else self.tokens

    @property
    def span(self) -> ProgramSpace:
        """The programs as a space with coordinates; a tuple of terms becomes a `logic.Span`."""
        return logic.Span(self.programs) if isinstance(self.programs, tuple) else self.programs


@dataclass(frozen=True, eq=False)
class Data:
    """A data vector b = sigma(W h + B) of a bang-free type.

    Attributes:
      name: name of its parameters.
      activation: sigma; None uses the cell's.
      basis: the N vectors that span the subspace of b, with as many columns as the type has dimensions; None
        for the whole space.
    """

    name: str
    activation: Callable[[Array], Array] | None = None
    basis: Float[Array, "N _"] | None = None


@dataclass(frozen=True, eq=False)
class Input:
    """An input vector c = W x of a bang-free type.

    Attributes:
      name: name of its parameters.
      basis: the N vectors that span the subspace of c, with as many columns as the type has dimensions; None
        for the whole space.
      features: the first feature of x that it reads, and the first that it does not; None for all.
    """

    name: str
    basis: Float[Array, "N _"] | None = None
    features: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Weight:
    """A learned vector of a bang-free type, shared by all steps."""

    name: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """A constant of any type, shared by all steps; an operator is a matrix or a linear callable."""

    name: str
    value: Value


type Declaration = Command | Data | Input | Weight | Fixed


def components(state: logic.Type) -> tuple[logic.Type, ...]:
    """Returns the factors of a product of types, from left to right; another type is its own only factor."""
    match state:
        case logic.With(left, right):
            return components(left) + components(right)
    return (state,)


def banged_domains(of: logic.Type, count: int) -> tuple[list[logic.Type], logic.Type]:
    """Splits a type !T1 -o !T2 -o .. -o B into at most `count` of the T1, T2, .. and the remaining B."""
    domains = []
    while len(domains) < count and isinstance(of, logic.Lolli) and isinstance(of.domain, logic.Bang):
        domains.append(of.domain.body)
        of = of.codomain
    return domains, of


def state_type(master: logic.Term, inputs: Sequence[Declaration], name: str = "master") -> logic.Type:
    """Checks a proof and the declarations of its inputs, and returns the type A of its state.

    Args:
      master: the proof, of type !T1 -o .. -o !Tn -o A -o A, or .. -o !A -o A.
      inputs: a declaration for each of T1 .. Tn.
      name: name of the argument `master` in error messages.

    Raises:
      ValueError: the term is not a proof (the message is that of `logic.check`), its type does not have the
        form of Definition 2.4, or a declaration does not match its type.
    """
    of = logic.check(master)
    domains, rest = banged_domains(of, len(inputs))
    for declared, domain in zip(inputs, domains, strict=False):
        _check_declaration(declared, domain)
    if len(domains) < len(inputs):
        raise ValueError(
            f"inputs: got {len(inputs)} declarations, expected {len(domains)}, one per banged input of "
            f"{name} : {of}"
        )
    if isinstance(rest, logic.Lolli):
        state = rest.codomain
        if finite_dimensional(state) and rest.domain in (state, logic.Bang(state)):
            return state
    whole, end = texts(of, rest)
    raise ValueError(
        f"{name}: got type {whole}, which after the {len(inputs)} declared inputs ends in {end}, expected an "
        "end A -o A or !A -o A for a type A without bangs"
    )


def _check_declaration(declared: Declaration, of: logic.Type) -> None:
    what = f"{type(declared).__name__} {declared.name!r}"
    if isinstance(declared, Command):
        one_of(get_args(Coupling))(f"coupling of {what}", declared.coupling)
        above(0)(f"temperature of {what}", declared.temperature)
        if declared.tokens is not None and (declared.coupling != "table" or declared.tokens < 1):
            raise ValueError(
                f"tokens of {what}: got {declared.tokens}, expected None, or at least 1 with coupling='table'"
            )
        if not isinstance(declared.span, ProgramSpace):
            raise ValueError(
                f"programs of {what}: got {declared.programs!r}, expected a tuple of terms or a space of "
                "programs with coordinates, such as logic.numeral_span"
            )
        if declared.span.type != of:
            got, wanted = texts(declared.span.type, of)
            raise ValueError(
                f"programs of {what}: got type {got}, expected {wanted}, under the bang of the proof's input"
            )
        return
    if isinstance(declared, Fixed):
        try:
            coerce(declared.value, of)
        except ValueError as error:
            raise ValueError(f"value of {what}, for the proof's input of type {of}: {error}") from error
        return
    if not finite_dimensional(of):
        raise ValueError(
            f"{what}: got the proof's input !({of}), expected a type without bangs under its bang, whose "
            "dimension is finite"
        )
    if isinstance(declared, Input) and declared.features is not None:
        start, stop = declared.features
        if not 0 <= start < stop:
            raise ValueError(f"features of {what}: got {declared.features}, expected 0 <= start < stop")
    basis = None if isinstance(declared, Weight) else declared.basis
    if basis is not None and (basis.ndim != 2 or basis.shape[1] != dimension(of)):
        raise ValueError(
            f"basis of {what}: got shape {basis.shape}, expected [N, {dimension(of)}] for type {of}"
        )
