"""The linear logic RNN: the recurrent cell of a proof (Hu & Murfet 2017, Definition 2.4).

    master : !T1 -o .. -o !Tn -o A -o A                                                          (2.8)

is a proof; h in [[A]] is the state. Each step computes a vector for every banged input. The operator that
the proof denotes at these vectors, Z = [[master]]_nl(v1, .., vn), then acts on the state:

    h' = sigma(Z h + H h + U x + B)                                                              (2.11)
    h' = sigma(Z_in h + H h + U x + B) + Z_out h           (the later draft, with a second proof)

A declaration for each banged input states where its vector comes from:

    Command   p = softmax(W h + B), coordinates in a span of programs; or from the input         (2.10)
    Data      b = sigma(W h + B)                                                                 (2.10)
    Input     c = W x                                                                            (2.10)
    Weight    a learned vector: I and J of the multiplicative RNN (2.6), V of Example 2.10
    Fixed     a constant: the rotation R of the Neural Turing Machine

The step of an NTM is not linear in its state, because it both moves its address and applies its memory to
it. A proof may therefore use the state more than once: master may end in !A -o A, with A a product of types,
and Z h is then [[master]]_nl(v1, .., vn, h). Example 2.10 of the draft asks for a proof that ends in A -o A;
none exists.

Axis letters: B batch (any number of leading axes), I input features, D dimension of A, N coordinates of a
vector.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray

from llrnn import logic
from llrnn.cells import coupling as couplings
from llrnn.cells import declarations
from llrnn.cells.base import Cell
from llrnn.cells.declarations import Command, Data, Declaration, Fixed, Input, Weight
from llrnn.cells.recurrent import unit_or
from llrnn.logic.types import dimension, texts
from llrnn.logic.values import Value, coerce, flatten, unflatten

_TAKEN = ("hidden", "input")  # names of the parameters H and U, B


def _scale(of: logic.Type) -> float:
    """Returns the initial standard deviation of coordinates: 1, or for a linear map so as to keep lengths."""
    return dimension(of.domain) ** -0.5 if isinstance(of, logic.Lolli) else 1.0


def read_features(declared: Input, inputs: Float[Array, "*B I"]) -> Float[Array, "*B _"]:
    """Returns the features of x that a declared input reads.

    Raises:
      ValueError: it reads features that x does not have.
    """
    if declared.features is None:
        return inputs
    start, stop = declared.features
    if stop > inputs.shape[-1]:
        raise ValueError(
            f"features of Input {declared.name!r}: got {declared.features}, expected at most the "
            f"{inputs.shape[-1]} features of the input that commands do not take"
        )
    return inputs[..., start:stop]


class LLRNNCell(Cell):
    """The recurrent cell of a proof (Definition 2.4); the module's docstring has the equations.

    The carry is h, [*B, D], the coordinates of a value of A: the factors of a product one after the other,
    linear maps as matrices row by row. `controller` and `inside` number the factors of a product from 0, left
    to right; they express three constraints of Example 2.10: which factors the controller reads, and which
    ones sigma, H, U and B act on.

    Attributes:
      master: the proof, of type !T1 -o .. -o !Tn -o A -o A, or .. -o !A -o A.
      inputs: a declaration for each of T1 .. Tn, in order.
      master_out: a second proof of the same type, whose Z_out h is added outside sigma, or None.
      controller: the factors that commands, data and H read; None for all. They are the cell's output.
      inside: the factors of Z h that are added to H h + U x + B inside sigma; the other factors of h' equal
        those of Z h. None for all; () makes the cell linear, without H, U and B.
      normalize: divide h' by its length; an h' of length 0, as from a given command of zeros, keeps h.
      initial: the initial value of A; None for 0.
      activation: sigma.
      param_dtype: as in `Cell`, and the dtype of the proof's denotation.
    """

    master: logic.Term
    inputs: tuple[Declaration, ...] = ()
    master_out: logic.Term | None = None
    controller: tuple[int, ...] | None = None
    inside: tuple[int, ...] | None = None
    normalize: bool = False
    initial: Value = None
    activation: Callable[[Array], Array] = nn.relu

    @nn.nowrap
    def validate(self) -> logic.Type:
        """Returns the type A of the state; raises ValueError, naming the field, if a field is not allowed."""
        of = declarations.state_type(self.master, self.inputs)
        if self.master_out is not None:
            other = declarations.state_type(self.master_out, self.inputs, "master_out")
            if other != of:
                got, wanted = texts(other, of)
                raise ValueError(
                    f"master_out: got a proof on the state {got}, expected {wanted} as in master"
                )
            if self.domains(self.master_out) != self.domains(self.master):
                got, wanted = texts(self.master_out.type, self.master.type)
                raise ValueError(f"master_out: got type {got}, expected the inputs of master, {wanted}")
        names = [declared.name for declared in self.inputs]
        for each in self.inputs:  # flax has one set of names for parameters and for what is recorded
            if isinstance(each, Command) and each.coupling != "given":
                names.append(each.name + couplings.COORDINATES)
                names += {"both": [each.name + "_input"], "table": [each.name + couplings.TABLE]}.get(
                    each.coupling, []
                )
        for name in names:
            if names.count(name) > 1 or name in _TAKEN:
                raise ValueError(
                    f"inputs: got {name!r} among the names {names}, expected distinct names other than "
                    f"{', '.join(map(repr, _TAKEN))}"
                )
        count = len(declarations.components(of))
        for field in ("controller", "inside"):
            chosen = getattr(self, field)
            if chosen is not None and any(not 0 <= k < count for k in chosen):
                raise ValueError(
                    f"{field}: got {chosen}, expected None or factors 0 .. {count - 1} of the state {of}"
                )
        if self.inside is not None and len(set(self.inside)) < len(self.inside):
            raise ValueError(f"inside: got {self.inside}, expected distinct factors of the state")
        if self.controller == ():
            raise ValueError("controller: got (), expected None or at least one factor of the state")
        return of

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> Float[Array, "*B D"]:
        """Returns the initial state, `initial` or 0, for inputs of shape [*B, I]."""
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
        """Runs one step: maps the carry h and the inputs x to h' and the controller's factors of h'."""
        of = self.validate()
        self.check_state("carry", carry, inputs, dimension(of))
        seen = carry[..., self.coordinates(of, self.controller)]
        taken, inputs = self.take_features(inputs)
        vectors, shared = {}, {}  # coordinates with batch axes, and values without
        for declared, domain in zip(self.inputs, self.domains(self.master), strict=True):
            match declared:
                case Command(coupling="given"):
                    vectors[declared.name] = taken[declared.name].astype(carry.dtype)
                case Command(name=name, span=span, coupling=coupling):
                    tokens = taken.get(name, inputs)
                    logits = self.command_logits(name, span.dimension, coupling, seen, inputs, tokens)
                    vectors[name] = couplings.coordinates(
                        logits.astype(carry.dtype), declared.temperature, declared.straight_through
                    )
                    self.sow("intermediates", name + couplings.COORDINATES, vectors[name])
                case Data(basis=basis) | Input(basis=basis):
                    width = dimension(domain) if basis is None else len(basis)
                    if isinstance(declared, Data):
                        sigma = declared.activation or self.activation
                        vector = sigma(self.dense(declared.name, width)(seen)).astype(carry.dtype)
                    else:
                        drawn = nn.initializers.normal(_scale(domain) if basis is None else 1.0)
                        mapped = self.dense(declared.name, width, use_bias=False, kernel_init=drawn)
                        vector = mapped(read_features(declared, inputs)).astype(carry.dtype)
                    if basis is not None:
                        vector = vector @ jnp.asarray(basis, vector.dtype)
                    vectors[declared.name] = vector
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
            affine = self.affine(inside.size, seen, inputs)
            activated = self.activation(term[..., inside] + affine.astype(carry.dtype))
            new = term.at[..., inside].set(activated)
        if self.master_out is not None:
            new = new + self.apply_proof(self.master_out, of, vectors, shared, carry)
        new = (unit_or(new, carry) if self.normalize else new).astype(carry.dtype)
        return new, new[..., self.coordinates(of, self.controller)]

    @nn.nowrap
    def apply_proof(
        self,
        proof: logic.Term,
        of: logic.Type,
        vectors: dict[str, Float[Array, "*B N"]],
        shared: dict[str, Value],
        hidden: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """Computes Z h: applies the proof's denotation at the vectors to every state of the batch."""
        value = logic.denote(proof)

        def of_one(vectors: dict[str, Float[Array, "N"]], hidden: Float[Array, "D"]) -> Float[Array, "D"]:
            result = value
            for declared, domain in zip(self.inputs, self.domains(proof), strict=True):
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
    def domains(self, proof: logic.Term) -> list[logic.Type]:
        """Returns T1 .. Tn, the types under the bangs of a proof's inputs."""
        return declarations.banged_domains(proof.type, len(self.inputs))[0]

    @nn.nowrap
    def take_features(self, inputs: Float[Array, "*B _"]) -> tuple[dict[str, Array], Float[Array, "*B I"]]:
        """Splits the input into the features of given commands and tables, by name, and x."""
        taken = {}
        for declared in self.inputs:
            if isinstance(declared, Command) and (count := declared.num_features):
                if inputs.shape[-1] <= count:
                    what = "coordinates" if declared.coupling == "given" else "tokens"
                    raise ValueError(
                        f"inputs: got shape {inputs.shape}, expected more than {count} features, the "
                        f"{what} of Command {declared.name!r}"
                    )
                taken[declared.name], inputs = inputs[..., :count], inputs[..., count:]
        return taken, inputs

    @nn.nowrap
    def coordinates(self, of: logic.Type, chosen: tuple[int, ...] | None) -> Int[np.ndarray, "_"]:
        """Returns the positions in h of the chosen factors of the state, in order."""
        ends = np.cumsum([dimension(factor) for factor in declarations.components(of)])
        factors = np.split(np.arange(ends[-1]), ends[:-1])
        return np.concatenate([np.arange(0), *(factors if chosen is None else [factors[k] for k in chosen])])
