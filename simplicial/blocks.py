"""The relational and simplicial Transformer blocks of Clift et al. (2020), and stacks of them.

A block receives its attention and feed-forward layers as attributes, so that a stack can share them between
blocks as the paper does; each block has its own LayerNorms. Following Remark 4.1, there is one LayerNorm
before the projections and one after the residual sum; the only other one normalises the 2-simplicial
attention's output (Remark 2.3).

Axis letters: B batch (any number of leading axes), N standard entities, M virtual entities, V features of an
entity, F output features of an attention.
"""

import functools

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from kernels import Logit, checks
from kernels.normalization import LayerNorm
from simplicial.attention import (
    OneSimplicialAttention,
    TwoSimplicialAttention,
    as_rows,
    check_context,
    check_entities,
    joined_heads,
)

Dense = functools.partial(nn.Dense, kernel_init=nn.initializers.glorot_uniform())
"""Dense layer with Keras' initialisation."""


def virtual_entities(key: PRNGKeyArray, shape: tuple[int, int], dtype: Dtype) -> Float[Array, "M V"]:
    """Draws uniformly from [-0.05, 0.05), as Keras initialises an embedding."""
    return nn.initializers.uniform(0.1)(key, shape, dtype) - 0.05


class FeedForward(nn.Module):
    """g_theta of equations (3) and (12): dense layers with `hidden` and `features` outputs, a ReLU between.

    `dtype` is the dtype of the products; None promotes inputs and parameters.
    """

    hidden: int = 64
    features: int = 64
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B N F"]) -> Float[Array, "*B N V"]:
        """Applies both layers to each entity separately."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = nn.relu(Dense(self.hidden, name="hidden", **types)(as_rows(inputs)))
        output = Dense(self.features, name="output", **types)(hidden)
        return output.reshape(*inputs.shape[:-1], self.features)


class RelationalBlock(nn.Module):
    """e' = LayerNorm(e + g(attention(LayerNorm(e)))), equation (3). Attributes as in `SimplicialBlock`."""

    attention: OneSimplicialAttention
    feed_forward: FeedForward
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        entities: Float[Array, "*B N V"],
        *,
        entity_mask: Bool[Array, "*#B #N"] | None = None,
        mask: Bool[Array, "*#B #N #N"] | None = None,
    ) -> Float[Array, "*B N V"]:
        """Returns updated entities. Masks and errors are as in `SimplicialBlock`."""
        check_entities("entities", entities, self.feed_forward.features)
        entity_mask = checks.mask(entity_mask, entities.shape[:-1], "[..., N]", "entity_mask")
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        normed = LayerNorm(name="input_norm", **types)(entities)
        attended = self.attention(normed, context_mask=entity_mask, mask=mask)
        return LayerNorm(name="output_norm", **types)(entities + self.feed_forward(attended))


class SimplicialBlock(nn.Module):
    """Both attentions in parallel, over standard and virtual entities: equations (12) to (14).

    Standard entities attend to standard entities and to pairs of virtual entities. Virtual entities attend to
    all entities; in place of the 2-simplicial attention's output they use their own u, which carries their
    content from block to block.

    Attributes:
      attention: 1-simplicial attention.
      two_simplicial: 2-simplicial attention.
      feed_forward: g; its `features` equal the entities' V.
      dtype: output dtype of the LayerNorms; their sums use at least float32.
      param_dtype: dtype of the LayerNorms' parameters.
    """

    attention: OneSimplicialAttention
    two_simplicial: TwoSimplicialAttention
    feed_forward: FeedForward
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        entities: Float[Array, "*B N V"],
        virtual: Float[Array, "*#B M V"],
        *,
        entity_mask: Bool[Array, "*#B #N"] | None = None,
        mask: Bool[Array, "*#B #N #N"] | None = None,
        pair_mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> tuple[Float[Array, "*B N V"], Float[Array, "*B M V"]]:
        """Returns updated standard and virtual entities.

        Args:
          entities: standard entities.
          virtual: virtual entities, [*B, M, V] or, shared by the batch, [M, V].
          entity_mask: False where a standard entity is padding. No entity attends to padding, and the output
            at padding is unspecified.
          mask: True where standard entity i may attend to standard entity j.
          pair_mask: True where standard entity i may attend to the pair (j, k) of virtual entities.

        Raises:
          ValueError: an argument has the wrong shape or dtype.
        """
        check_entities("entities", entities, self.feed_forward.features)
        check_context("virtual", virtual, "entities", entities)
        pairs = (*entities.shape[:-1], *virtual.shape[-2:-1] * 2)
        pair_mask = checks.mask(pair_mask, pairs, "[..., N, M, M]", "pair_mask")
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        input_norm, pair_norm, output_norm = (
            LayerNorm(name=name, **types) for name in ("input_norm", "pair_norm", "output_norm")
        )
        normed, normed_virtual = input_norm(entities), input_norm(virtual)
        attended, attended_virtual = self.attention.with_virtual(
            normed, normed_virtual, entity_mask=entity_mask, mask=mask
        )
        keys = self.two_simplicial.keys(normed_virtual)
        pairs = self.two_simplicial.attend(normed, keys, mask=pair_mask)
        own = joined_heads(keys.value)

        def updated(old, attended, other):
            # The 2-simplicial part is float32 whatever the compute dtype is.
            both = jnp.concatenate([attended, pair_norm(other).astype(attended.dtype)], axis=-1)
            return output_norm(old + self.feed_forward(both))

        def batched(x):
            return jnp.broadcast_to(x, (*entities.shape[:-2], *x.shape[-2:]))

        return updated(entities, attended, pairs), updated(batched(virtual), attended_virtual, batched(own))


class SimplicialTransformer(nn.Module):
    """Blocks that share attention, B and feed-forward weights; each block has its own LayerNorms.

    Attributes:
      num_virtual_entities: M. With 0, blocks are relational and have no 2-simplicial attention.
      num_blocks: number of blocks.
      features: V, also the output features of the 1-simplicial attention and the feed-forward's hidden size.
      num_heads: heads of the 1-simplicial attention.
      num_two_simplicial_heads: heads of the 2-simplicial attention.
      two_simplicial_features: total output features of the 2-simplicial heads.
      dtype: dtype of the products, None to promote inputs and parameters. Softmax and LayerNorm sums and all
        2-simplicial logits use at least float32.
      param_dtype: dtype of the parameters.
      logit: logit of the 2-simplicial attention; see `TwoSimplicialAttention`, as for `learned_bilinear`.
      learned_bilinear: whether B is a parameter.
    """

    num_virtual_entities: int = 2
    num_blocks: int = 2
    features: int = 64
    num_heads: int = 2
    num_two_simplicial_heads: int = 1
    two_simplicial_features: int = 48
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32
    logit: Logit = "unsigned"
    learned_bilinear: bool = True

    @nn.compact
    def __call__(
        self,
        entities: Float[Array, "*B N V"],
        *,
        entity_mask: Bool[Array, "*#B #N"] | None = None,
        mask: Bool[Array, "*#B #N #N"] | None = None,
        pair_mask: Bool[Array, "*#B #N #M #M"] | None = None,
    ) -> Float[Array, "*B N V"]:
        """Returns the standard entities after all blocks. Masks are as in `SimplicialBlock`.

        Raises:
          ValueError: a field is out of range, or an argument has the wrong shape or dtype.
        """
        if self.num_virtual_entities < 0:
            raise ValueError(f"num_virtual_entities: got {self.num_virtual_entities}, expected at least 0")
        if self.num_blocks < 1:
            raise ValueError(f"num_blocks: got {self.num_blocks}, expected at least 1")
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        shared = {
            "attention": OneSimplicialAttention(self.num_heads, self.features, name="attention", **types),
            "feed_forward": FeedForward(self.features, self.features, name="feed_forward", **types),
        }
        masks = {"entity_mask": entity_mask, "mask": mask}
        if not self.num_virtual_entities:
            if pair_mask is not None:
                raise ValueError("pair_mask: got a mask, expected None without virtual entities")
            for i in range(self.num_blocks):
                entities = RelationalBlock(**shared, name=f"block_{i}", **types)(entities, **masks)
            return entities
        two_simplicial = TwoSimplicialAttention(
            self.num_two_simplicial_heads,
            self.two_simplicial_features,
            logit=self.logit,
            learned_bilinear=self.learned_bilinear,
            name="two_simplicial",
            **types,
        )
        shape = (self.num_virtual_entities, self.features)
        virtual = self.param("virtual_entities", virtual_entities, shape, self.param_dtype)
        for i in range(self.num_blocks):
            block = SimplicialBlock(two_simplicial=two_simplicial, **shared, name=f"block_{i}", **types)
            entities, virtual = block(entities, virtual, pair_mask=pair_mask, **masks)
        return entities
