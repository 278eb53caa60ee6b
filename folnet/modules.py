"""The operators with their projections: what reads kernel and premise from the atoms, and what writes back.

Which projections there are, which have biases and which are one matrix, is as released.

Axis letters: B batch; T tokens; X, Y, A tokens of the conclusion, and summed over; D1 properties; D2
relations; H heads, S features of a head.
"""

import functools
from collections.abc import Mapping

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from folnet import operators
from folnet.affine import Affine, over_features, over_predicates
from folnet.configuration import FOLNetConfig
from folnet.dropout import drop
from folnet.linear import Linear, PairLinear
from folnet.operators import Dropout


class _Operator(nn.Module):
    """An operator with its projections.

    They are called with the atoms of the tokens x that conclusions are about, and take from the tokens that
    are summed over only what `operators` needs; for a whole text the two are the same.
    """

    config: FOLNetConfig

    @nn.nowrap
    def _linear(self, outputs: int, use_bias: bool = True) -> Linear:
        return Linear(self.config, self.config.hidden_size, outputs, use_bias)

    @nn.nowrap
    def _pair_linear(self, outputs: int, use_bias: bool = True) -> PairLinear:
        return PairLinear(self.config, self.config.relation_size, outputs, use_bias)

    @nn.nowrap
    def _unary_writer(self) -> Linear:
        width = self.config.num_attention_heads * self.config.head_size
        return Linear(self.config, width, self.config.hidden_size)

    @nn.nowrap
    def _binary_writer(self, inputs: int) -> PairLinear:
        return PairLinear(self.config, inputs, self.config.relation_size)

    @nn.nowrap
    def heads(self, features: Float[Array, "B T HS"]) -> Float[Array, "B T H S"]:
        return features.reshape(*features.shape[:-1], self.config.num_attention_heads, -1)

    @nn.nowrap
    def _merge(self, heads: Float[Array, "B T H S"]) -> Float[Array, "B T HS"]:
        return heads.reshape(*heads.shape[:-2], -1)

    @nn.nowrap
    def _dropout(self, deterministic: bool) -> Dropout | None:
        """A function that drops. Its key is drawn here, so it can be called under any transformation."""
        rate = self.config.attention_probs_dropout_prob
        if deterministic or rate == 0:
            return None
        return functools.partial(drop, self.make_rng("dropout"), rate)


class _Mixer(_Operator):
    """An operator that concludes from a relation of x to others, and from what `read` makes of these."""

    def __call__(
        self,
        relation: Float[Array, "B D2 X A"],
        others: Float[Array, "B A D1"] | Float[Array, "B D2 A Y"] | None = None,
        *,
        mask: Bool[Array, "#B 1 #X #A"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B X D1"] | Float[Array, "B D2 X Y"]:
        """What x concludes through a, where the mask is True; None stands for the relation itself."""
        premise = self.read(relation if others is None else others)
        return self.conclude(relation, premise, mask=mask, deterministic=deterministic)


class Join(_Mixer):
    """`operators.join`."""

    def setup(self):
        self.kernel = self._pair_linear(self.config.num_attention_heads, use_bias=False)
        self.premise = self._linear(self.config.num_attention_heads * self.config.head_size)
        self.writer = self._unary_writer()

    def read(self, others: Float[Array, "B A D1"], premise: Linear | None = None) -> Float[Array, "B A H S"]:
        """The premise, by the operator's own projection or by another."""
        return self.heads((premise or self.premise)(others))

    def conclude(self, relation, premise, *, mask=None, deterministic=True) -> Float[Array, "B X D1"]:
        kernel, dropout = self.kernel(relation), self._dropout(deterministic)
        return self.writer(self._merge(operators.join(kernel, premise, mask=mask, dropout=dropout)))


class Mu(_Operator):
    """`operators.mu`."""

    def setup(self):
        """Kernel and premise in one projection, as released."""
        self.reader = self._pair_linear(
            self.config.num_attention_heads + self.config.head_size, use_bias=False
        )
        self.writer = self._unary_writer()

    def __call__(
        self, relation: Float[Array, "B D2 X A"], *, mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B X D1"]:
        """What x concludes from its relations. The kernel has no dropout."""
        weight = self.reader.weight.astype(relation.dtype)
        kernel, premise = jnp.split(weight, [self.config.num_attention_heads], axis=1)
        # The sum over tokens first, then the projection of the premise: H rows of it a token, not T.
        pooled = operators.mu(over_predicates(relation, Affine(kernel)), relation, mask=mask)
        return self.writer(self._merge(over_features(pooled, Affine(premise))))


class CJoin(_Mixer):
    """`operators.cjoin`, or `cjoin_released`: of v(x, a), or v(a, x), and a mask without an axis of x."""

    def setup(self):
        self.kernel = self._linear(self.config.num_attention_heads * self.config.head_size, use_bias=False)
        self.premise = self._pair_linear(self.config.head_size)
        self.writer = self._unary_writer()

    def read(self, others: Float[Array, "B A D1"], kernel: Linear | None = None) -> Float[Array, "B S H A"]:
        """The kernel before its softmax, by the operator's own projection or by another."""
        logits = (kernel or self.kernel)(others)
        logits = logits.reshape(*logits.shape[:2], self.config.head_size, self.config.num_attention_heads)
        return logits.transpose(0, 2, 3, 1)

    def conclude(self, relation, kernel_logits, *, mask=None, deterministic=True) -> Float[Array, "B X D1"]:
        operator = operators.cjoin if self.config.cjoin == "paper" else operators.cjoin_released
        premise, dropout = self.premise(relation), self._dropout(deterministic)
        return self.writer(self._merge(operator(kernel_logits, premise, mask=mask, dropout=dropout)))


class Assoc(_Operator):
    """`operators.assoc`."""

    def setup(self):
        """Kernel and premise in one projection, as released."""
        self.reader = self._linear(2 * self.config.num_attention_heads * self.config.head_size)
        self.writer = self._binary_writer(self.config.num_attention_heads)

    def __call__(
        self, unary: Float[Array, "B X D1"], others: Float[Array, "B Y D1"] | None = None
    ) -> Float[Array, "B D2 X Y"]:
        """Relations of x to the others; None for those among the x."""
        kernel, premise = self.read(unary)
        return self.conclude(kernel, premise if others is None else self.read(others)[1])

    def read(self, unary: Float[Array, "B X D1"]) -> tuple[Float[Array, "B X H S"], Float[Array, "B X H S"]]:
        """The kernel and the premise, the kernel divided by the square root of S."""
        kernel, premise = jnp.split(self.reader(unary), 2, axis=-1)
        # Released: both by the fourth root, so that half precision does not overflow. bfloat16 cannot.
        return self.heads(kernel * self.config.head_size**-0.5), self.heads(premise)

    def conclude(self, kernel, premise) -> Float[Array, "B D2 X Y"]:
        return self.writer(operators.assoc(kernel, premise))


class Prod(_Operator):
    """`operators.prod`."""

    def setup(self):
        self.kernel = self._linear(self.config.num_attention_heads * self.config.head_size)
        self.premise = self._pair_linear(self.config.head_size)
        self.writer = self._binary_writer(self.config.num_attention_heads)

    def __call__(
        self, unary: Float[Array, "B X D1"], relation: Float[Array, "B D2 X Y"]
    ) -> Float[Array, "B D2 X Y"]:
        """Relations of x to y from others of theirs."""
        kernel = self.heads(self.kernel(unary) * self.config.head_size**-0.5)
        weight, bias = self.premise.weight, self.premise.bias.astype(kernel.dtype)
        # sum_s K_s (W v + b)_s = (W' K) v + K b: the projection is one of H kernels a token, not of T pairs.
        concluded = operators.prod(over_features(kernel, Affine(weight.T)), relation)
        concluded += (kernel @ bias).transpose(0, 2, 1)[..., None]
        return self.writer(concluded)


class Trans(_Mixer):
    """`operators.trans`."""

    def setup(self):
        """Kernel and premise in one projection, as released."""
        self.reader = self._pair_linear(2 * self.config.relation_size, use_bias=False)
        self.writer = self._binary_writer(self.config.relation_size)

    def read(self, others: Float[Array, "B D2 A Y"]) -> Float[Array, "B D2 A Y"]:
        return over_predicates(others, Affine(self.reader.weight[:, self.config.relation_size :]))

    def conclude(self, relation, premise, *, mask=None, deterministic=True) -> Float[Array, "B D2 X Y"]:
        logits = over_predicates(relation, Affine(self.reader.weight[:, : self.config.relation_size]))
        options = {"mask": mask, "implementation": self.config.trans_implementation}
        return self.writer(operators.trans(logits, premise, dropout=self._dropout(deterministic), **options))


class Boolean(_Operator):
    """`operators.boolean` of unary atoms."""

    def setup(self):
        hidden = self.config.intermediate_size
        self.clause_in = self._linear(hidden)
        self.gate = self._linear(hidden) if self.config.activation == "reglu" else None
        self.clause_out = Linear(self.config, hidden, self.config.hidden_size)

    def __call__(self, unary: Float[Array, "B X D1"]) -> Float[Array, "B X D1"]:
        """What x concludes from its other properties."""
        return operators.boolean(
            unary,
            self.clause_in.affine,
            self.clause_out.affine,
            gate=None if self.gate is None else self.gate.affine,
            activation=self.config.activation,
        )


class BooleanPairs(_Operator):
    """`operators.boolean_pairs`."""

    def setup(self):
        both, hidden = 2 * self.config.relation_size, self.config.relation_intermediate_size
        self.clause_in = PairLinear(self.config, both, hidden)
        self.gate = PairLinear(self.config, both, hidden) if self.config.activation == "reglu" else None
        self.clause_out = self._binary_writer(hidden)
        self.clause_skip = self._binary_writer(self.config.relation_size)

    def __call__(
        self, relation: Float[Array, "B D2 X Y"], converse: Float[Array, "B D2 X Y"]
    ) -> Float[Array, "B D2 X Y"]:
        """What a pair concludes from its relations and those the other way round, which lie at [x, y] too."""
        return operators.boolean_pairs(
            relation,
            converse,
            self.clause_in.affine,
            self.clause_out.affine,
            self.clause_skip.affine,
            gate=None if self.gate is None else self.gate.affine,
            activation=self.config.activation,
        )


MIXERS: Mapping[str, type[_Operator]] = {
    "join": Join,
    "mu": Mu,
    "cjoin": CJoin,
    "assoc": Assoc,
    "trans": Trans,
    "prod": Prod,
}
