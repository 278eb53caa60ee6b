"""The operators with their projections, which read kernel and premise from the atoms and write the result.

The set of projections, which of them have biases and which share a matrix follow the released code.

Axis letters: B batch; T tokens; X, Y tokens of the conclusion; A tokens summed over; D1 properties; D2
relations; H heads; S features of a head; HS their product.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from folnet import operators
from folnet.affine import Activation, Affine, over_features, over_predicates
from folnet.configuration import FOLNetConfig
from folnet.dropout import drop
from folnet.linear import Linear, PairLinear
from folnet.operators import Dropout


class _Operator(nn.Module):
    """Base class of operators with projections.

    Operators are called with the atoms of the tokens x that conclusions are about. From the tokens summed
    over they take only what `operators` needs. For a whole text both are the same tokens.
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
        """Returns a dropout function. Its key is drawn here, so any transformation may call it."""
        rate = self.config.attention_probs_dropout_prob
        if deterministic or rate == 0:
            return None
        return functools.partial(drop, self.make_rng("dropout"), rate)

    @nn.nowrap
    def _activation(self) -> Activation:
        """Returns the activation; under "reglu" the operators use a gate and no activation."""
        return "relu" if self.config.activation == "reglu" else self.config.activation


class _Mixer(_Operator):
    """An operator that concludes from relations of x to other tokens and from what `read` makes of those."""

    def __call__(
        self,
        relation: Float[Array, "B D2 X A"],
        others: Float[Array, "B A D1"] | Float[Array, "B D2 A Y"] | None = None,
        *,
        mask: Bool[Array, "#B 1 #X #A"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B X D1"] | Float[Array, "B D2 X Y"]:
        """Returns conclusions of x through a, where the mask is True; `others` defaults to the relation."""
        premise = self.read(relation if others is None else others)
        return self.conclude(relation, premise, mask=mask, deterministic=deterministic)


class Join(_Mixer):
    """The operator `operators.join` with its projections."""

    def setup(self):
        self.kernel = self._pair_linear(self.config.num_attention_heads, use_bias=False)
        self.premise = self._linear(self.config.num_attention_heads * self.config.head_size)
        self.writer = self._unary_writer()

    def kernels(
        self, relation: Float[Array, "B D2 X A"], mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B H X A"]:
        """Returns K(x, a), a softmax over a."""
        return operators.softmax_kernel(self.kernel(relation), mask)

    def read(self, others: Float[Array, "B A D1"], premise: Linear | None = None) -> Float[Array, "B A H S"]:
        """Projects the premise, by the operator's own projection or the one given."""
        return self.heads((premise or self.premise)(others))

    def conclude(
        self,
        relation: Float[Array, "B D2 X A"],
        premise: Float[Array, "B A H S"],
        *,
        mask: Bool[Array, "#B 1 #X #A"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B X D1"]:
        kernel, dropout = self.kernel(relation), self._dropout(deterministic)
        return self.writer(self._merge(operators.join(kernel, premise, mask=mask, dropout=dropout)))


class Mu(_Operator):
    """The operator `operators.mu` with its projections."""

    def setup(self):
        """Reads kernel and premise with one projection, as released."""
        self.reader = self._pair_linear(
            self.config.num_attention_heads + self.config.head_size, use_bias=False
        )
        self.writer = self._unary_writer()

    def __call__(
        self, relation: Float[Array, "B D2 X A"], *, mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B X D1"]:
        """Returns the conclusions of x from its relations. The kernel has no dropout."""
        logits, premise = self._read(relation)
        # Summing over tokens before projecting the premise leaves H rows per token to project instead of T.
        pooled = operators.mu(logits, relation, mask=mask)
        return self.writer(self._merge(over_features(pooled, premise)))

    def kernels(
        self, relation: Float[Array, "B D2 X A"], mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B H X A"]:
        """Returns K(x, a), a softmax over a."""
        return operators.softmax_kernel(self._read(relation)[0], mask)

    @nn.nowrap
    def _read(self, relation: Float[Array, "B D2 X A"]) -> tuple[Float[Array, "B H X A"], Affine]:
        """Returns the kernel before its softmax, and the map of the premise."""
        kernel, premise = jnp.split(self.reader.weight, [self.config.num_attention_heads], axis=1)
        return over_predicates(relation, Affine(kernel)), Affine(premise)


class CJoin(_Mixer):
    """`operators.cjoin` on v(x, a), or `cjoin_released` on v(a, x), whose mask cannot depend on x."""

    def setup(self):
        self.kernel = self._linear(self.config.num_attention_heads * self.config.head_size, use_bias=False)
        self.premise = self._pair_linear(self.config.head_size)
        self.writer = self._unary_writer()

    def read(self, others: Float[Array, "B A D1"], kernel: Linear | None = None) -> Float[Array, "B S H A"]:
        """Returns the kernel before its softmax, by the operator's own projection or the one given."""
        logits = (kernel or self.kernel)(others)
        logits = logits.reshape(*logits.shape[:2], self.config.head_size, self.config.num_attention_heads)
        return logits.transpose(0, 2, 3, 1)

    def kernels(
        self, kernel_logits: Float[Array, "B S H A"], mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B S H A"] | Float[Array, "B S H X A"]:
        """Returns K(a), a softmax over a: the same for all x, or over the a that each x may attend to."""
        if mask is None or mask.shape[2] == 1:
            return operators.softmax_kernel(kernel_logits, mask)
        return operators.softmax_kernel(
            jnp.broadcast_to(
                kernel_logits[:, :, :, None], (*kernel_logits.shape[:3], mask.shape[2], mask.shape[3])
            ),
            mask[:, :, None],
        )

    def conclude(
        self,
        relation: Float[Array, "B D2 X A"],
        kernel_logits: Float[Array, "B S H A"],
        *,
        mask: Bool[Array, "#B 1 #X #A"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B X D1"]:
        operator = operators.cjoin if self.config.cjoin == "paper" else operators.cjoin_released
        premise, dropout = self.premise(relation), self._dropout(deterministic)
        return self.writer(self._merge(operator(kernel_logits, premise, mask=mask, dropout=dropout)))


class Assoc(_Operator):
    """The operator `operators.assoc` with its projections."""

    def setup(self):
        """Reads kernel and premise with one projection, as released."""
        self.reader = self._linear(2 * self.config.num_attention_heads * self.config.head_size)
        self.writer = self._binary_writer(self.config.num_attention_heads)

    def __call__(
        self, unary: Float[Array, "B X D1"], others: Float[Array, "B Y D1"] | None = None
    ) -> Float[Array, "B D2 X Y"]:
        """Returns relations of x to the others, by default to the x themselves."""
        kernel, premise = self.read(unary)
        return self.conclude(kernel, premise if others is None else self.read(others)[1])

    def read(self, unary: Float[Array, "B X D1"]) -> tuple[Float[Array, "B X H S"], Float[Array, "B X H S"]]:
        """Returns the kernel, divided by sqrt(S), and the premise."""
        kernel, premise = jnp.split(self.reader(unary), 2, axis=-1)
        # The released code divides both by S^(1/4), so that float16 does not overflow. bfloat16 cannot.
        return self.heads(kernel * self.config.head_size**-0.5), self.heads(premise)

    def conclude(
        self, kernel: Float[Array, "B X H S"], premise: Float[Array, "B Y H S"]
    ) -> Float[Array, "B D2 X Y"]:
        return self.writer(operators.assoc(kernel, premise))


class Prod(_Operator):
    """The operator `operators.prod` with its projections."""

    def setup(self):
        self.kernel = self._linear(self.config.num_attention_heads * self.config.head_size)
        self.premise = self._pair_linear(self.config.head_size)
        self.writer = self._binary_writer(self.config.num_attention_heads)

    def __call__(
        self, unary: Float[Array, "B X D1"], relation: Float[Array, "B D2 X Y"]
    ) -> Float[Array, "B D2 X Y"]:
        """Returns relations of x to y from their other relations."""
        kernel = self.kernels(unary)
        weight, bias = self.premise.weight, self.premise.bias.astype(kernel.dtype)
        # sum_s K_s (W v + b)_s = (W' K) v + K b: projects H kernels per token instead of T pairs per token.
        concluded = operators.prod(over_features(kernel, Affine(weight.T)), relation)
        concluded += (kernel @ bias).transpose(0, 2, 1)[..., None]
        return self.writer(concluded)

    def kernels(self, unary: Float[Array, "B X D1"]) -> Float[Array, "B X H S"]:
        """Returns K(x), divided by sqrt(S)."""
        return self.heads(self.kernel(unary) * self.config.head_size**-0.5)


class Trans(_Mixer):
    """The operator `operators.trans` with its projections."""

    def setup(self):
        """Reads kernel and premise with one projection, as released."""
        self.reader = self._pair_linear(2 * self.config.relation_size, use_bias=False)
        self.writer = self._binary_writer(self.config.relation_size)

    def read(self, others: Float[Array, "B D2 A Y"]) -> Float[Array, "B D2 A Y"]:
        return over_predicates(others, Affine(self.reader.weight[:, self.config.relation_size :]))

    def conclude(
        self,
        relation: Float[Array, "B D2 X A"],
        premise: Float[Array, "B D2 A Y"],
        *,
        mask: Bool[Array, "#B 1 #X #A"] | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "B D2 X Y"]:
        options: dict[str, Any] = {"mask": mask, "implementation": self.config.trans_implementation}
        options["dropout"] = self._dropout(deterministic)
        return self.writer(operators.trans(self._logits(relation), premise, **options))

    def kernels(
        self, relation: Float[Array, "B D2 X A"], mask: Bool[Array, "#B 1 #X #A"] | None = None
    ) -> Float[Array, "B D2 X A"]:
        """Returns K(x, a), a softmax over a."""
        return operators.softmax_kernel(self._logits(relation), mask)

    @nn.nowrap
    def _logits(self, relation: Float[Array, "B D2 X A"]) -> Float[Array, "B D2 X A"]:
        return over_predicates(relation, Affine(self.reader.weight[:, : self.config.relation_size]))


class Boolean(_Operator):
    """`operators.boolean` on unary atoms."""

    def setup(self):
        hidden = self.config.intermediate_size
        self.clause_in = self._linear(hidden)
        self.gate = self._linear(hidden) if self.config.activation == "reglu" else None
        self.clause_out = Linear(self.config, hidden, self.config.hidden_size)

    def __call__(self, unary: Float[Array, "B X D1"]) -> Float[Array, "B X D1"]:
        """Returns the conclusions of x from its other properties."""
        return operators.boolean(
            unary,
            self.clause_in.affine,
            self.clause_out.affine,
            gate=None if self.gate is None else self.gate.affine,
            activation=self._activation(),
        )


class BooleanPairs(_Operator):
    """The operator `operators.boolean_pairs` with its projections."""

    def setup(self):
        both, hidden = 2 * self.config.relation_size, self.config.relation_intermediate_size
        self.clause_in = PairLinear(self.config, both, hidden)
        self.gate = PairLinear(self.config, both, hidden) if self.config.activation == "reglu" else None
        self.clause_out = self._binary_writer(hidden)
        self.clause_skip = self._binary_writer(self.config.relation_size)

    def __call__(
        self, relation: Float[Array, "B D2 X Y"], converse: Float[Array, "B D2 X Y"]
    ) -> Float[Array, "B D2 X Y"]:
        """Returns conclusions of pairs from their relations and the converses (at the same [x, y])."""
        return operators.boolean_pairs(
            relation,
            converse,
            self.clause_in.affine,
            self.clause_out.affine,
            self.clause_skip.affine,
            gate=None if self.gate is None else self.gate.affine,
            activation=self._activation(),
        )


MIXERS: Mapping[str, type[_Operator]] = {
    "join": Join,
    "mu": Mu,
    "cjoin": CJoin,
    "assoc": Assoc,
    "trans": Trans,
    "prod": Prod,
}
