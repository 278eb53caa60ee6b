"""The settings of the Transformers that FOLNet is compared with.

Symbols: D1 features per token, H heads of S features, L layers, R relations given with a text.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from folnet.settings import HeadActivation, ModelConfig, check_buckets, expect_integer

RelativePosition = Literal["none", "t5", "shaw"]
RelationAttention = Literal["shaw", "bias"]
Activation = HeadActivation
Remat = Literal["none", "nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable"]


@dataclasses.dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Settings of a Transformer. The defaults are BERT base (Devlin et al. 2019).

    Fields that are not listed mean the same as in `configuration.FOLNetConfig`.

    Attributes:
      intermediate_size: hidden width of the feed-forward layers.
      relative_position: "none"; "t5" adds a learned scalar per head and distance bucket to the attention
        scores, shared by all layers (Raffel et al. 2020); "shaw" adds one learned vector per distance to the
        keys and another to the values, separate for each layer and shared by its heads (Shaw et al. 2018).
      max_distance: for "shaw", distances are clipped to +-max_distance (k in Shaw et al.).
      relation_vocab_size: R, the number of relations that `relation_ids` can name; 0 for none.
      relation_attention: how these relations act. "shaw" adds a vector each to keys and values, as for
        distances: the relation-aware self-attention that Shaw et al. (2018) define for any labelled graph.
        "bias" adds a scalar per head, as T5 does for distances.
      activation: activation of the feed-forward layers, "gelu" (exact) or "relu".
      hidden_dropout_prob: dropout rate of the embeddings and of each addition to the residual stream.
      attention_probs_dropout_prob: dropout rate of the attention weights.
    """

    model_type: ClassVar[str] = "folnet_transformer"
    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "relative_position": get_args(RelativePosition),
        "relation_attention": get_args(RelationAttention),
        "activation": get_args(Activation),
        "remat": get_args(Remat),
        **ModelConfig.choices,
    }

    vocab_size: int = 30522
    absolute_position: bool = True
    relative_position: RelativePosition = "none"
    max_distance: int = 16
    relation_attention: RelationAttention = "shaw"
    activation: Activation = "gelu"
    remat: Remat = "none"

    def __post_init__(self) -> None:
        """Raises ValueError for a field out of range, with its value and what was expected."""
        super().__post_init__()
        expect_integer("max_distance", self.max_distance, 1)
        if self.relative_position == "t5":
            check_buckets(self.relative_attention_num_buckets, self.relative_attention_max_distance)

    @property
    def num_pair_vectors(self) -> int:
        """Number of rows in a layer's tables of vectors for pairs: distances first, then relations."""
        distances = 2 * self.max_distance + 1 if self.relative_position == "shaw" else 0
        return distances + (self.relation_vocab_size if self.relation_attention == "shaw" else 0)


BERT_BASE = TransformerConfig()
"""BERT base, uncased: 109,482,240 parameters with its pooler."""
