"""One step of forward chaining, and a stack of L: from base atoms to properties and relations.

Layers follow the released code. A layer has two stages, each of which normalizes its inputs and adds its
results to them. In the first, all mixers read the same normalized atoms and each branch sums their
conclusions; the second applies the boolean operators. Binary atoms are [B, D2, X, Y] throughout (see
`operators` for the reason).

Axis letters: B batch; T tokens; D1 properties; D2 relations. A decoder's step has its own axes: X tokens that
conclude, C columns they read.
"""

import functools
import operator
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float

from folnet.configuration import FOLNetConfig
from folnet.dropout import Dropout
from folnet.modules import MIXERS, Boolean, BooleanPairs
from kernels.normalization import normalize

UNARY_AXES = ("batch", "length", "hidden")
BINARY_AXES = ("batch", "relation", "rows", "columns")
"""Axis names for `flax.linen.logical_axis_rules`. On a mesh, such rules shard the activations; without rules
the names have no effect."""


class ReasonerLayer(nn.Module):
    """One step of forward chaining, equation (3): the mixers, then the boolean operators."""

    config: FOLNetConfig

    def setup(self):
        """Creates each mixer under its name in Table 2, and the two boolean operators."""
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
        """Returns the atoms u(x), u(x, y) after one more step.

        Args:
          unary: u(x).
          relation: u(x, y).
          mask: True where x may attend to a, in every kernel that sums over tokens. The released form of
            cjoin only supports masks that do not depend on x (padding).
          relation_mask: True where a pair has relations; elsewhere they are kept at 0. Causal models pass
            the same array as `mask`: an atom of a later token must not reach an earlier one through a bias.
          deterministic: False enables dropout.
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

    def kernels(
        self,
        unary: Float[Array, "B X D1"],
        relation: Float[Array, "B D2 X C"],
        mask: Bool[Array, "#B 1 #X #C"] | None = None,
        cjoin: Float[Array, "B S H C"] | None = None,
    ) -> dict[str, Float[Array, "..."]]:
        """Returns what each mixer weights its premises with: K of Table 2, by the operator's name.

        Those of join, mu, cjoin and trans are softmaxes over tokens, 0 where the mask is False: [B, H, X, A],
        [B, S, H, A] for cjoin ([B, S, H, X, A] if the mask depends on x) and [B, D2, X, A] for trans. Those
        of assoc and prod are vectors of each token, [B, X, H, S]. There is no dropout. Kernels of the boolean
        operators are parameters.

        Args:
          unary: u(x) before the layer.
          relation: u(x, y) before the layer.
          mask: as in `__call__`.
          cjoin: the kernel of cjoin before its softmax; None for that of u.
        """
        u, r = normalized(self.config, unary, relation)
        kernels = {
            "join": lambda: self.join.kernels(r, mask),
            "mu": lambda: self.mu.kernels(r, mask),
            "cjoin": lambda: self.cjoin.kernels(self.cjoin.read(u) if cjoin is None else cjoin, mask),
            "assoc": lambda: self.assoc.read(u)[0],
            "trans": lambda: self.trans.kernels(r, mask),
            "prod": lambda: self.prod.kernels(u),
        }
        return {name: kernels[name]() for name in self.config.unary_operators + self.config.binary_operators}

    @nn.nowrap
    def mixed(
        self, conclusions: Mapping[str, Callable[[], jax.Array]]
    ) -> tuple[jax.Array | None, jax.Array | None]:
        """Returns each branch's sum of its mixers' conclusions, in order; None if it has no mixers."""
        unary, relation = (
            functools.reduce(operator.add, [conclusions[name]() for name in names]) if names else None
            for names in (self.config.unary_operators, self.config.binary_operators)
        )
        return unary, relation

    def add(
        self,
        atoms: tuple[Float[Array, "B X D1"], Float[Array, "B D2 X C"]],
        concluded: tuple[Float[Array, "B X D1"] | None, Float[Array, "B D2 X C"] | None],
        relation_mask: Bool[Array, "#B 1 #X #C"] | None,
        deterministic: bool,
    ) -> tuple[Float[Array, "B X D1"], Float[Array, "B D2 X C"]]:
        """Adds a stage's conclusions to the residual streams; None stands for no conclusion."""
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


def normalized(
    config: FOLNetConfig, unary: Float[Array, "B X D1"], relation: Float[Array, "B D2 X C"]
) -> tuple[Float[Array, "B X D1"], Float[Array, "B D2 X C"]]:
    """Normalizes both kinds of atoms over their predicates."""
    eps = config.layer_norm_eps
    return normalize(unary, eps), normalize(relation, eps, axis=1)


def rematerialized[L: type[nn.Module]](layer: L, remat: str) -> L:
    """Wraps a layer class in `nn.remat` with the policy that `remat` names, if it names one.

    Calls take five arguments; the last, `deterministic`, is static.
    """
    if remat in ("none", "relation_boolean"):
        return layer
    return nn.remat(layer, static_argnums=(5,), policy=getattr(jax.checkpoint_policies, remat))


class Reasoner(nn.Module):
    """L layers, named "layers_0" and so on, followed by a normalization."""

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
        """Returns the atoms before the first layer and after each, the last ones normalized.

        Arguments are those of `ReasonerLayer`.
        """
        states = [(unary, relation)]
        for layer in self.layers:
            states.append(layer(*states[-1], mask, relation_mask, deterministic))
        states[-1] = normalized(self.config, *states[-1])
        return states

    def kernels(
        self, states: Sequence[tuple[Array, Array]], mask: Bool[Array, "#B 1 #T #T"] | None = None
    ) -> tuple[dict[str, Float[Array, "..."]], ...]:
        """Returns those of each layer, for the states that a call returned."""
        pairs = zip(self.layers, states[:-1], strict=True)
        return tuple(layer.kernels(unary, relation, mask) for layer, (unary, relation) in pairs)
