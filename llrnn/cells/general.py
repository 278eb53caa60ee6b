"""The linear logic recurrent neural network: the recurrent cell of a proof (Hu & Murfet 2017, Definition
2.4).

    master : !T1 -o .. -o !Tn -o A -o A                                                          (2.8)

is a proof; h in [[A]] is the state. At each step a vector is found for every banged input, and the operator
that the proof denotes at these vectors, Z = [[master]]_nl(v1, .., vn), acts on the state:

    h' = sigma(Z h + H h + U x + B)                                                              (2.11)
    h' = sigma(Z_in h + H h + U x + B) + Z_out h           (the later draft, with a second proof)

Where a vector comes from is declared, one declaration for each banged input:

    Command   p = softmax(W h + B), coordinates in a span of programs                            (2.10)
    Data      b = sigma(W h + B)                                                                 (2.10)
    Input     c = W x                                                                            (2.10)
    Weight    a learned vector, the I and J of the multiplicative RNN (2.6), the V of Example 2.10
    Fixed     a given value, the rotation R of the Neural Turing Machine

The step of an NTM is not linear in its state (its memory is applied to its address, which it also moves), so
a proof may use the state more than once: master may end in !A -o A, with A a product of types, and Z h is
  then
[[master]]_nl(v1, .., vn, h). Example 2.10 of the draft has A -o A, which has no such proof.

Axis letters: B batch (any number of leading axes), I input features, D the dimension of A, N the coordinates
  of a vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype, Initializer
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn import logic
from llrnn.cells.recurrent import COUPLINGS, unit
from llrnn.logic.types import bang_free, dimension
from llrnn.logic.values import coerce, flatten, unflatten

_TAKEN = ("hidden", "input")  # the parameters H and U, B


class ProgramSpace(Protocol):
    """A space of programs with coordinates: `logic.Span`, `logic.numeral_span`, `logic.word_span`."""

    @property
    def dimension(self) -> int:
        """How many coordinates there are."""
        ...

    @property
    def type(self) -> logic.Type:
        """The type of the programs."""
        ...

    def denote(self, coordinates: Float[Array, "N"]) -> Any:
        """The value of the programs' type with these coordinates."""
        ...


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
    """A given value, the same at every step, of any type (an operator as a matrix or as a linear
    callable).
    """

    name: str
    value: Any


type Declaration = Command | Data | Input | Weight | Fixed


def components(state: logic.Type) -> tuple[logic.Type, ...]:
    """The factors of a product of types, from left to right; a type that is no product is its only one."""
    match state:
        case logic.With(left, right):
            return components(left) + components(right)
    return (state,)


def state_type(master: logic.Term, inputs: Sequence[Declaration], name: str = "master") -> logic.Type:
    """The type A of the state of a proof with these inputs, everything checked.

    Raises:
      ValueError: the term is no proof (`logic.check` says why), its type does not fit Definition 2.4, or a
        declaration does not fit its type; the message names it and shows both.
    """
    of = logic.check(master)
    rest = of
    for place, declared in enumerate(inputs):
        if not (isinstance(rest, logic.Lolli) and isinstance(rest.domain, logic.Bang)):
            raise ValueError(
                f"{name} : {of} has {place} banged inputs before its state, but {len(inputs)} are declared"
            )
        _check_declaration(declared, rest.domain.body)
        rest = rest.codomain
    if isinstance(rest, logic.Lolli):
        state = rest.codomain
        if bang_free(state) and rest.domain in (state, logic.Bang(state)):
            return state
    raise ValueError(
        f"{name} : {of} must end, after the {len(inputs)} declared inputs, in A -o A or !A -o A for a type "
        f"A without "
        f"bangs; it ends in {rest}"
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


def _scale(of: logic.Type) -> float:
    """Standard deviation of a random vector's coordinates: a linear map keeps lengths, others have unit
    entries.
    """
    return dimension(of.domain) ** -0.5 if isinstance(of, logic.Lolli) else 1.0


class LLRNNCell(nn.RNNCellBase):
    """The recurrent cell of a proof (Definition 2.4); the module's docstring has the equations.

    The carry is h, [*B, D], the coordinates of a value of A (products one factor after the other, linear maps
    as matrices row by row). The factors of a product are counted from 0, left to right; three of Example
    2.10's constraints are stated by them: which of them the controller reads, and which of them sigma, H, U
    and B act on.

    Attributes:
      master: the proof, of type !T1 -o .. -o !Tn -o A -o A, or .. -o !A -o A.
      inputs: a declaration for each of T1 .. Tn, in order.
      master_out: a second proof of the same type, whose Z_out h is added outside sigma; None for none.
      controller: the factors that commands, data and H are maps of; None for all. They are the cell's output.
      inside: the factors of Z h inside sigma, with H h, U x and B; the others of h' are those of Z h as they
        are. None for all; () makes the cell linear, without H, U and B.
      normalize: divide h' by its length.
      initial: the value of A to start from; None for 0.
      activation: sigma.
      kernel_init, recurrent_kernel_init, bias_init: of U and the maps of commands and data; of H; of biases.
      dtype: dtype of the maps' products; None takes it from inputs and parameters.
      param_dtype: dtype of the parameters, of the state and of what the proof denotes.
    """

    master: logic.Term
    inputs: tuple[Declaration, ...] = ()
    master_out: logic.Term | None = None
    controller: tuple[int, ...] | None = None
    inside: tuple[int, ...] | None = None
    normalize: bool = False
    initial: Any = None
    activation: Callable[[Array], Array] = nn.relu
    kernel_init: Initializer = nn.initializers.lecun_normal()
    recurrent_kernel_init: Initializer = nn.initializers.orthogonal()
    bias_init: Initializer = nn.initializers.zeros_init()
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """One: an input is a vector."""
        return 1

    @nn.nowrap
    def validate(self) -> logic.Type:
        """The type A of the state; raises ValueError, naming the field, when the fields do not make a
        cell.
        """
        of = state_type(self.master, self.inputs)
        if self.master_out is not None:
            other = state_type(self.master_out, self.inputs, "master_out")
            if other != of:
                raise ValueError(f"master_out must act on the state of master, {of}, got {other}")
        names = [declared.name for declared in self.inputs]
        for name in names:
            if names.count(name) > 1 or name in _TAKEN:
                raise ValueError(
                    f"inputs must have names of their own, not {', '.join(_TAKEN)}; got {name!r} among "
                    f"{names}"
                )
        count = len(components(of))
        for field in ("controller", "inside"):
            chosen = getattr(self, field)
            if chosen is not None and any(not 0 <= k < count for k in chosen):
                raise ValueError(
                    f"{field} must be None or factors 0 .. {count - 1} of the state {of}, got {chosen}"
                )
        if self.controller == ():
            raise ValueError("controller must be None or name at least one factor of the state, got ()")
        return of

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B D"]:
        """The state before the first input, `initial` or 0.

        Args:
          rng: not used.
          input_shape: the shape [*B, I] of one input.
        """
        of = self.validate()
        if self.initial is None:
            start = jnp.zeros(dimension(of), self.param_dtype)
        else:
            start = flatten(coerce(self.initial, of), of).astype(self.param_dtype)
        return jnp.broadcast_to(start, (*input_shape[:-1], *start.shape))

    @nn.compact
    def __call__(
        self, carry: Float[Array, "*B D"], inputs: Float[Array, "*B I"]
    ) -> tuple[Float[Array, "*B D"], Float[Array, "*B _"]]:
        """One step: (carry h, inputs x) to (h', the controller's factors of h')."""
        of = self.validate()
        size = dimension(of)
        if carry.shape != (*inputs.shape[:-1], size):
            raise ValueError(
                f"carry must be [*B, {size}] with the batch axes of inputs, got {carry.shape} and "
                f"{inputs.shape}"
            )
        seen = carry[..., self.coordinates(of, self.controller)]
        given, inputs = self.take_given(inputs)
        vectors, shared = {}, {}  # coordinates that differ along the batch, and values that do not
        for declared, domain in zip(self.inputs, input_types(self.master, len(self.inputs)), strict=True):
            match declared:
                case Command(coupling="given"):
                    vectors[declared.name] = given[declared.name].astype(carry.dtype)
                case Command():
                    logits = self.dense(declared.name, declared.span.dimension)(seen)
                    vectors[declared.name] = nn.softmax(logits.astype(carry.dtype))
                case Data():
                    width = dimension(domain) if declared.basis is None else len(declared.basis)
                    b = (declared.activation or self.activation)(self.dense(declared.name, width)(seen))
                    vectors[declared.name] = self.in_basis(b.astype(carry.dtype), declared.basis)
                case Input():
                    width = dimension(domain) if declared.basis is None else len(declared.basis)
                    deviation = _scale(domain) if declared.basis is None else 1.0
                    drawn = nn.initializers.normal(deviation)
                    c = self.dense(declared.name, width, use_bias=False, kernel_init=drawn)(inputs)
                    vectors[declared.name] = self.in_basis(c.astype(carry.dtype), declared.basis)
                case Weight():
                    drawn = nn.initializers.normal(_scale(domain))
                    weight = self.param(declared.name, drawn, (dimension(domain),), self.param_dtype)
                    shared[declared.name] = unflatten(weight.astype(carry.dtype), domain)
                case Fixed():
                    shared[declared.name] = declared.value

        term = self.apply_proof(self.master, of, vectors, shared, carry)
        inside = self.coordinates(of, self.inside)
        new = term
        if inside.size:
            affine = self.dense(
                "hidden", inside.size, use_bias=False, kernel_init=self.recurrent_kernel_init
            )(seen) + self.dense("input", inside.size)(inputs)
            activated = self.activation(term[..., inside] + affine.astype(carry.dtype))
            new = term.at[..., inside].set(activated)
        if self.master_out is not None:
            new = new + self.apply_proof(self.master_out, of, vectors, shared, carry)
        new = (unit(new) if self.normalize else new).astype(carry.dtype)
        return new, new[..., self.coordinates(of, self.controller)]

    @nn.nowrap
    def apply_proof(
        self,
        proof: logic.Term,
        of: logic.Type,
        vectors: dict[str, Float[Array, "*B N"]],
        shared: dict[str, Any],
        hidden: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """Z h: what the proof denotes at the vectors, applied to every state of the batch."""
        value = logic.denote(proof)
        domains = input_types(proof, len(self.inputs))

        def of_one(vectors: dict[str, Float[Array, "N"]], hidden: Float[Array, "D"]) -> Float[Array, "D"]:
            result = value
            for declared, domain in zip(self.inputs, domains, strict=True):
                if declared.name in shared:
                    point = shared[declared.name]
                elif isinstance(declared, Command):
                    point = declared.span.denote(vectors[declared.name])
                else:
                    point = unflatten(vectors[declared.name], domain)
                result = result(point)
            return flatten(result(unflatten(hidden, of)), of)

        function = of_one
        for _ in range(hidden.ndim - 1):
            function = jax.vmap(function)
        return function(vectors, hidden)

    @nn.nowrap
    def take_given(self, inputs: Float[Array, "*B _"]) -> tuple[dict[str, Array], Float[Array, "*B I"]]:
        """The coordinates of the commands that are given, and x, the rest of the input."""
        given = {}
        for declared in self.inputs:
            if isinstance(declared, Command) and declared.coupling == "given":
                count = declared.span.dimension
                if inputs.shape[-1] <= count:
                    raise ValueError(
                        f"inputs must have more features than the {count} that are given to Command "
                        f"{declared.name!r}, "
                        f"got {inputs.shape}"
                    )
                given[declared.name], inputs = inputs[..., :count], inputs[..., count:]
        return given, inputs

    @nn.nowrap
    def in_basis(self, coordinates: Float[Array, "*B N"], basis: Float[Array, "N M"] | None) -> Array:
        """Coordinates in a subspace as coordinates in the whole space."""
        return coordinates if basis is None else coordinates @ jnp.asarray(basis, coordinates.dtype)

    @nn.nowrap
    def coordinates(self, of: logic.Type, chosen: tuple[int, ...] | None) -> Any:
        """The coordinates in h of the chosen factors of the state, in order."""
        starts, total = [], 0
        for factor in components(of):
            starts.append((total, total + dimension(factor)))
            total += dimension(factor)
        ranges = starts if chosen is None else [starts[k] for k in chosen]
        return np.concatenate([np.arange(0), *(np.arange(*ends) for ends in ranges)])

    @nn.nowrap
    def dense(
        self, name: str, features: int, *, use_bias: bool = True, kernel_init: Initializer | None = None
    ) -> nn.Dense:
        """A named affine map."""
        return nn.Dense(
            features,
            use_bias=use_bias,
            kernel_init=kernel_init or self.kernel_init,
            bias_init=self.bias_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name=name,
        )


def input_types(proof: logic.Term, count: int) -> list[logic.Type]:
    """T1 .. Tn, the types under the bangs of a proof's first n arguments."""
    domains, rest = [], proof.type
    for _ in range(count):
        assert isinstance(rest, logic.Lolli)
        assert isinstance(rest.domain, logic.Bang)
        domains.append(rest.domain.body)
        rest = rest.codomain
    return domains
