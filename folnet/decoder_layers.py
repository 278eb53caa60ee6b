"""One step of forward chaining in a decoder, for a whole text at once or for its next token alone.

What a token concludes from other tokens depends on their premises: properties (join, assoc), kernels (cjoin)
and relations (trans). Premises depend only on the tokens they belong to, so they can be cached, and a decoder
is a loop that computes one token's row of relations from the premises of all tokens before it. The remaining
operators (mu, prod, bool) only read the row itself.

Appendix A.5 does the same with the premises of an encoder's output in front. One layer therefore serves a
whole text, its next token, and both with an input.

Axis letters: B batch; X tokens that conclude; C columns they may attend to: I tokens of an input, then T of
the text; D1 properties; D2 relations; H heads; S features of a head.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from folnet.configuration import FOLNetConfig
from folnet.layers import ReasonerLayer, normalized, rematerialized
from folnet.linear import Linear, PairLinear


@struct.dataclass
class Premises:
    """What a layer reads from tokens for others to conclude from; None for operators that are not used.

    For cjoin it is the kernel before its softmax, which is over the tokens that x may attend to. For trans, Y
    are the columns that the tokens relate to.
    """

    join: Float[Array, "B C H S"] | None = None
    cjoin: Float[Array, "B S H C"] | None = None
    assoc: Float[Array, "B C H S"] | None = None
    trans: Float[Array, "B D2 C Y"] | None = None

    def combine(self, other: "Premises", **how: Callable[[Array, Array], Array]) -> "Premises":
        """Applies a function per operator to both; None where either is None."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in how}
        return Premises(
            **{name: how[name](*pair) for name, pair in pairs.items() if not any(p is None for p in pair)}
        )

    def before(self, new: "Premises") -> "Premises":
        """Concatenates the premises of an input and those of the text that attends to it.

        An input has no relations to the text, so v(a, y) is 0 there. The two-part trans of Appendix A.5 is
        then one sum:

            u(x, y) = sum_(a in T) K(x, a) v_D(a, y)                                         y in T
            u(x, y) = sum_(a in I) K(x, a) v_E(a, y) + sum_(a in T) K(x, a) v_D(a, y)         y in I
        """

        def rows(inputs, own):
            missing = own.shape[3] - inputs.shape[3]
            inputs = jnp.pad(inputs, ((0, 0), (0, 0), (0, 0), (0, missing)))
            return jnp.concatenate((inputs, own), axis=2)

        def along(axis):
            return lambda inputs, own: jnp.concatenate((inputs, own), axis=axis)

        return self.combine(new, join=along(1), cjoin=along(3), assoc=along(1), trans=rows)

    def with_room(self, capacity: int) -> "Premises":
        """Pads with zeros to `capacity` tokens."""

        def after(array, *axes):
            if array is None:
                return None
            return jnp.pad(array, [(0, (capacity - n) * (i in axes)) for i, n in enumerate(array.shape)])

        return Premises(
            after(self.join, 1), after(self.cjoin, 3), after(self.assoc, 1), after(self.trans, 2, 3)
        )

    def with_token(self, new: "Premises", slot: Int[Array, ""]) -> "Premises":
        """Writes the premises of one token at its slot."""

        def at(axis):
            return lambda kept, own: jax.lax.dynamic_update_slice_in_dim(kept, own, slot, axis=axis)

        return self.combine(new, join=at(1), cjoin=at(3), assoc=at(1), trans=at(2))


class DecoderLayer(ReasonerLayer):
    """One step of forward chaining in a decoder, with or without an encoder to read.

    It has the encoder's operators and parameters, with the paper's form of cjoin.
    """

    reads_input: bool = False

    def setup(self):
        """Creates the operators and, with an encoder, a projection per premise that A.5 concatenates."""
        super().setup()
        if not self.reads_input:
            return
        config = self.config
        width = config.num_attention_heads * config.head_size
        # As for the decoder's own premises, join and assoc have biases, cjoin and trans do not.
        for name in {"join", "cjoin", "assoc"}.intersection(config.unary_operators + config.binary_operators):
            linear = Linear(config, config.hidden_size, width, use_bias=name != "cjoin")
            setattr(self, f"{name}_input", linear)
        if "trans" in config.binary_operators:
            self.trans_input = PairLinear(config, config.relation_size, config.relation_size, use_bias=False)

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        relation: Float[Array, "B D2 T C"],
        mask: Bool[Array, "#B 1 T C"],
        inputs: Premises | None,
        deterministic: bool,
    ) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T C"], Premises]:
        """Returns the atoms of whole texts after one more step, and the premises read on the way.

        `mask` is True where x may attend to y, and the relation is 0 elsewhere. `inputs` are the premises of
        the encoder's output, None without an encoder.
        """
        collect = (lambda new: new) if inputs is None else inputs.before
        return self._deduce((unary, relation), mask, collect, _converse_of_text, deterministic=deterministic)

    def step(
        self,
        unary: Float[Array, "B 1 D1"],
        relation: Float[Array, "B D2 1 C"],
        mask: Bool[Array, "B 1 1 C"],
        premises: Premises,
        slot: Int[Array, ""],
    ) -> tuple[Float[Array, "B 1 D1"], Float[Array, "B D2 1 C"], Premises]:
        """Returns the next token's atoms after one more step, and the premises including its own.

        `premises` are those of all tokens before it, with room for this one at `slot`.
        """
        # No earlier token has a relation to this one, so r(y, x) is 0 except for r(x, x).
        own = is_slot(relation.shape[3], slot)
        return self._deduce(
            (unary, relation),
            mask,
            lambda new: premises.with_token(new, slot),
            lambda r: jnp.where(own, r, 0),
        )

    def read_input(self, unary: Float[Array, "B I D1"], relation: Float[Array, "B D2 I I"]) -> Premises:
        """Returns the premises of an encoder's output, by linear projections (Appendix A.5)."""
        return self._premises(
            join=lambda: self.join.read(unary, self.join_input),
            cjoin=lambda: self.cjoin.read(unary, self.cjoin_input),
            assoc=lambda: self.assoc.heads(self.assoc_input(unary)),
            trans=lambda: self.trans_input(relation),
        )

    @nn.nowrap
    def _premises(self, **read: Callable[[], Array]) -> Premises:
        names = self.config.unary_operators + self.config.binary_operators
        return Premises(**{name: made() for name, made in read.items() if name in names})

    def _deduce(self, atoms, mask, collect, converse, *, deterministic=True):
        """Runs both stages of `ReasonerLayer` with premises from `collect` and converses from `converse`."""
        config, options = self.config, {"mask": mask, "deterministic": deterministic}
        u, r = normalized(config, *atoms)
        query, premise = self.assoc.read(u) if "assoc" in config.binary_operators else (None, None)
        read = {"join": lambda: self.join.read(u), "cjoin": lambda: self.cjoin.read(u)}
        read |= {"assoc": lambda: premise, "trans": lambda: self.trans.read(r)}
        premises = collect(self._premises(**read))
        mixed = self.mixed(
            {
                "join": lambda: self.join.conclude(r, premises.join, **options),
                "mu": lambda: self.mu(r, mask=mask),
                "cjoin": lambda: self.cjoin.conclude(r, premises.cjoin, **options),
                "assoc": lambda: self.assoc.conclude(query, premises.assoc),
                "trans": lambda: self.trans.conclude(r, premises.trans, **options),
                "prod": lambda: self.prod(u, r),
            }
        )
        atoms = self.add(atoms, mixed, mask, deterministic)
        u, r = normalized(config, *atoms)
        concluded = self.bool_unary(u), self.bool_binary(r, converse(r))
        return *self.add(atoms, concluded, mask, deterministic), premises


class DecoderReasoner(nn.Module):
    """L layers of a decoder, with or without an encoder to read, followed by a normalization.

    It always uses the paper's form of cjoin. The released form reads v(a, x), how others relate to x, and no
    token before x relates to it.
    """

    config: FOLNetConfig
    reads_input: bool = False

    def setup(self):
        config = self.config.replace(cjoin="paper")
        layer = rematerialized(DecoderLayer, config.remat)
        self.layers = [layer(config, self.reads_input) for _ in range(config.num_hidden_layers)]

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        relation: Float[Array, "B D2 T C"],
        mask: Bool[Array, "#B 1 T C"],
        inputs: tuple[Premises, ...] | None = None,
        deterministic: bool = True,
    ) -> tuple[list[tuple[Float[Array, "B T D1"], Float[Array, "B D2 T C"]]], tuple[Premises, ...]]:
        """Returns the atoms of whole texts before the first layer and after each, and each layer's premises.

        The last atoms are normalized. Arguments are those of `DecoderLayer`, with the input's premises by
        layer.
        """
        states, premises = [(unary, relation)], []
        for number, layer in enumerate(self.layers):
            given = None if inputs is None else inputs[number]
            unary, relation, read = layer(unary, relation, mask, given, deterministic)
            states.append((unary, relation))
            premises.append(read)
        states[-1] = normalized(self.config, unary, relation)
        return states, tuple(premises)

    def kernels(
        self,
        states: Sequence[tuple[Array, Array]],
        premises: tuple[Premises, ...],
        mask: Bool[Array, "#B 1 T C"],
    ) -> tuple[dict[str, Float[Array, "..."]], ...]:
        """Returns those of each layer, for the states and premises that a call returned."""
        layers = zip(self.layers, states[:-1], premises, strict=True)
        return tuple(layer.kernels(*state, mask=mask, cjoin=read.cjoin) for layer, state, read in layers)

    def step(
        self,
        unary: Float[Array, "B 1 D1"],
        relation: Float[Array, "B D2 1 C"],
        mask: Bool[Array, "B 1 1 C"],
        premises: tuple[Premises, ...],
        slot: Int[Array, ""],
    ) -> tuple[Float[Array, "B 1 D1"], Float[Array, "B D2 1 C"], tuple[Premises, ...]]:
        """Returns the next token's last atoms, normalized, and each layer's premises including its own."""
        grown = []
        for layer, kept in zip(self.layers, premises, strict=True):
            unary, relation, kept = layer.step(unary, relation, mask, kept, slot)
            grown.append(kept)
        return *normalized(self.config, unary, relation), tuple(grown)

    def read_input(
        self, unary: Float[Array, "B I D1"], relation: Float[Array, "B D2 I I"]
    ) -> tuple[Premises, ...]:
        """Returns each layer's premises of an encoder's output."""
        return tuple(layer.read_input(unary, relation) for layer in self.layers)


def is_slot(count: int, slot: Int[Array, ""]) -> Bool[Array, "1 1 1 C"]:
    """Returns which of `count` columns is `slot`."""
    return (jnp.arange(count) == slot)[None, None, None]


def _converse_of_text(relation: Float[Array, "B D2 T C"]) -> Float[Array, "B D2 T C"]:
    """Returns r(y, x) at [x, y]; 0 for the input's tokens y, which have no relations to the text."""
    rows, columns = relation.shape[2:]
    own = relation[..., columns - rows :].swapaxes(2, 3)
    return jnp.pad(own, ((0, 0), (0, 0), (0, 0), (columns - rows, 0)))
