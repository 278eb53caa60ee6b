"""A Transformer with multiplicative gates where the TP-Transformer binds fillers to roles.

The TP-Transformer multiplies what a head retrieves by a vector that is linear in the querying cell, r = W z
+ b of equation (3) in Schlag et al. (2019). A linear gate would be the same function under another name, so
the control has to take from r what makes it a role: that it ranges over a vector space, with either sign,
so that one filler bound to different roles gives vectors that differ as much as the roles. A gate sigmoid(W
z + b) in (0, 1) only scales down what was retrieved, feature by feature. Whatever a product with a function
of the querying cell brings by itself, such as second-order terms, this model has as well, with the same
parameters and almost the same operations. It is the elementwise gate of each head after attention that Qiu
et al. (2025), "Gated Attention for Large Language Models", found best.

The embedding of equation (2) is gated likewise, by 2 sigmoid(W e + b), which is 1 where the role W e + b +
1 of the TP-Transformer is.
"""

from typing import ClassVar

import jax
from jaxtyping import Array, Float

from tp_transformer.attention import MultiHeadAttention, TPMultiHeadAttention
from tp_transformer.layers import Embedding
from tp_transformer.model import EncoderDecoder


class GatedMultiHeadAttention(TPMultiHeadAttention):
    """Attention whose heads multiply retrieved values by a gate in (0, 1), feature by feature.

    Parameters have the names and shapes of TP-attention; the gates are sown as its roles are.
    """

    def relation(self, inputs_q: Float[Array, "*B T I"], features: int) -> Float[Array, "*B T H D"]:
        """Computes the gates, sigmoid(W z + b)."""
        return jax.nn.sigmoid(super().relation(inputs_q, features))


class GatedEmbedding(Embedding):
    """An embedding multiplied by gates in (0, 2)."""

    def relation(self, e: Float[Array, "B T I"]) -> Float[Array, "B T I"]:
        """Computes the gates, 2 sigmoid(W e + b)."""
        return 2 * jax.nn.sigmoid(self.role(e, self.features))


class GatedTransformer(EncoderDecoder):
    """The Transformer with gated attention throughout, and a gated embedding.

    It has the parameters of a TP-Transformer of the same sizes, initialized alike.
    """

    binds_roles: ClassVar[bool] = True
    attention_class: ClassVar[type[MultiHeadAttention]] = GatedMultiHeadAttention
    embedding_class: ClassVar[type[Embedding]] = GatedEmbedding
