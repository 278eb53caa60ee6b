"""A step of forward chaining, and L of them: what turns base atoms into properties and relations.

Layers follow the released code. Both stages normalise first and add to what came in: the mixers all read the
same normalised atoms, and a branch's conclusions are summed; then the boolean operators. Binary atoms are
[B, D2, X, Y] throughout (`operators` says why).

Axis letters: B batch; T tokens; D1 properties; D2 relations.
"""

import functools
import operator
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.linear import normalize
from folnet.modules import MIXERS, Boolean, BooleanPairs

UNARY_AXES = ("batch", "length", "hidden")
BINARY_AXES = ("batch", "relation", "rows", "columns")
"""Names of axes for `flax.linen.logical_axis_rules`: without rules they mean nothing, with rules on a mesh
they say how activations are sharded."""


class ReasonerLayer(nn.Module):
    """One step of forward chaining, equation (3): the mixers, then the boolean operators."""

    config: FOLNetConfig

    def setup(self):
        """The operators, each under its name in Table 2, and bool under its two."""
        for name in (*self.config.unary_operators, *self.config.binary_operators):
            setattr(self, name, MIXERS[name](self.config))
        self.bool_unary = Boolean(self.config)
        pairs = nn.remat(BooleanPairs) if self.config.remat == "relation_boolean" else BooleanPairs
        self.bool_binary = pairs(self.config)
        self.dropout = Dropout(self.config.hidden_dropout_prob)

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        relation: Float[Array, "B D2 T T"],
        mask: Bool[Array, "#B 1 #T #T"] | None = None,
        relation_mask: Bool[Array, "#B 1 #T #T"] | None = None,
        deterministic: bool = True,
    ) -> tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]]:
        """The atoms u(x), u(x, y) after one more step.

        Args:
          unary: u(x).
          relation: u(x, y).
          mask: True where x may look at a, in every kernel that sums over tokens. With cjoin as released
            only masks without an axis of x are possible: padding.
          relation_mask: True where a pair has relations; they are kept at 0 elsewhere. For causal models,
            where it is the mask too: an atom of a later token must not reach an earlier one through a bias.
          deterministic: False to drop.
        """
        u, r = normalized(self.config, unary, relation)
        options = {"mask": mask, "deterministic": deterministic}
        mixed = self.mixed(
            {
                "join": lambda: self.join(r, u, **options),
                "mu": lambda: self.mu(r, mask=mask),
                "cjoin": lambda: self.cjoin(r, u, **options),
                "assoc": lambda: self.assoc(u),
                "trans": lambda: self.trans(r, **options),
                "prod": lambda: self.prod(u, r),
            }
        )
        unary, relation = self.add((unary, relation), mixed, relation_mask, deterministic)
        u, r = normalized(self.config, unary, relation)
        concluded = self.bool_unary(u), self.bool_binary(r, r.swapaxes(2, 3))
        return self.add((unary, relation), concluded, relation_mask, deterministic)

    @nn.nowrap
    def mixed(self, conclusions: Mapping[str, Callable[[], jax.Array]]) -> tuple[jax.Array | None, ...]:
        """What the mixers of each branch conclude, summed in their order; None of a branch without any."""
        return tuple(
            functools.reduce(operator.add, [conclusions[name]() for name in names]) if names else None
            for names in (self.config.unary_operators, self.config.binary_operators)
        )

    def add(self, atoms, concluded, relation_mask=None, deterministic=True):
        """Residual streams with what a stage concluded; None concludes nothing."""
        unary, relation = (
            old if new is None else old + self.dropout(new, deterministic=deterministic)
            for old, new in zip(atoms, concluded, strict=True)
        )
        if relation_mask is not None:
            relation = jnp.where(relation_mask, relation, 0)
        return (
            nn.with_logical_constraint(unary, UNARY_AXES),
            nn.with_logical_constraint(relation, BINARY_AXES),
        )


def normalized(config: FOLNetConfig, unary, relation):
    """Both kinds of atoms, normalised over their predicates."""
    eps = config.layer_norm_eps
    return normalize(unary, eps), normalize(relation, eps, axis=1)


def rematerialized[L: type[nn.Module]](layer: L, remat: str) -> L:
    """A class of layers that keep for the gradient only what the policy of `remat` says, if it is one.

    The last of five arguments of a call is `deterministic`, which is static.
    """
    if remat in ("none", "relation_boolean"):
        return layer
    return nn.remat(layer, static_argnums=(5,), policy=getattr(jax.checkpoint_policies, remat))


class Reasoner(nn.Module):
    """L layers, "layers_0" on, and a normalisation of what they end with."""

    config: FOLNetConfig

    def setup(self):
        layer = rematerialized(ReasonerLayer, self.config.remat)
        self.layers = [layer(self.config) for _ in range(self.config.num_hidden_layers)]

    def __call__(
        self,
        unary: Float[Array, "B T D1"],
        relation: Float[Array, "B D2 T T"],
        mask: Bool[Array, "#B 1 #T #T"] | None = None,
        relation_mask: Bool[Array, "#B 1 #T #T"] | None = None,
        deterministic: bool = True,
    ) -> list[tuple[Float[Array, "B T D1"], Float[Array, "B D2 T T"]]]:
        """Atoms before the first layer and after each, the last normalised; arguments as of the layers."""
        states = [(unary, relation)]
        for layer in self.layers:
            states.append(layer(*states[-1], mask, relation_mask, deterministic))
        states[-1] = normalized(self.config, *states[-1])
        return states
