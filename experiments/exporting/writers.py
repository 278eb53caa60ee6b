"""Generating FOLNets, decoder-only or encoder-decoder, as functions of named arrays with the loop inside.

Their config does not say which tokens begin and end a text. As for encoders, a text begins with [CLS], which
is also the decoder's start token, and ends with [SEP].
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from experiments.exporting.encoders import LONGEST_BY_DEFAULT, text_of
from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration, generate, generate_from
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer

WRITERS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (FOLNetForCausalLM, FOLNetForConditionalGeneration)
}


@dataclasses.dataclass(frozen=True)
class Words:
    """The constraint that models write words of their vocabulary, and no [PAD], [CLS] or [MASK].

    Attributes:
        rows: V, the number of rows of the word table, which has more than the vocabulary has words.
        words: this number of words.
        without: the ids that are not written.
    """

    rows: int
    words: int
    without: tuple[int, ...]

    @property
    def never(self) -> list[int]:
        """The ids of all rows that are not written."""
        return sorted({*self.without, *range(self.words, self.rows)})

    def __call__(self, tokens: Int[Array, "R M"], count: Int[Array, ""]) -> Bool[Array, "R V"]:
        """Returns the words that may follow, the same ones everywhere; see `kernels.decoding.Allowed`."""
        allowed = ~np.isin(np.arange(self.rows), self.never)
        return jnp.broadcast_to(jnp.asarray(allowed)[None], (tokens.shape[0], self.rows))


def words_of(model: Any, tokenizer: WordPieceTokenizer) -> Words:
    """Returns the constraint of a model and its tokenizer."""
    without = (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id)
    return Words(model.config.vocab_size, tokenizer.vocab_size, without)


def of_writer(model: Any, params: Any, tokenizer: WordPieceTokenizer | None, new_tokens: int) -> Exportable:
    """Makes a model of one of the `WRITERS` exportable, as greedy generation from texts.

    Raises:
        ValueError: if there is no vocabulary, or `new_tokens` do not fit the model's positions.
    """
    if tokenizer is None:
        raise ValueError(f"tokenizer: got None, expected a {VOCABULARY} for a generating model")
    config, continues = model.config, isinstance(model, FOLNetForCausalLM)
    most = config.max_position_embeddings if config.absolute_position else None
    longest = most if most is None or not continues else most - new_tokens + 1  # the last one is not read
    if new_tokens < 1 or (most is not None and new_tokens > most):
        limit = "at least 1" if most is None else f"1 to {most}, the model's number of positions"
        raise ValueError(f"new_tokens: got {new_tokens}, expected {limit}")
    options = {
        "max_new_tokens": new_tokens,
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.sep_id,
        "allowed": words_of(model, tokenizer),
    }

    def function(params, inputs):
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if not continues:
            start = tokenizer.cls_id
            found = generate_from(
                model, params, ids, attention_mask=mask, decoder_start_token_id=start, **options
            )
            return {"tokens": found.sequences[:, 1:], "count": found.lengths - 1}
        found = generate(model, params, ids, attention_mask=mask, **options)
        begin = jnp.sum(mask, axis=1, dtype=jnp.int32)
        places = begin[:, None] + jnp.arange(new_tokens)[None]
        tokens = jnp.take_along_axis(found.sequences, places, axis=1)
        return {"tokens": tokens, "count": found.lengths - begin}

    ids = (0, config.vocab_size - 1)
    return Exportable(
        kind=f"writer ({type(model).__name__})",
        function=function,
        params=params,
        inputs={
            "input_ids": Input((BATCH, LENGTH), "int32", "tokens, padded at the end", pad=0, range=ids),
            "attention_mask": Input(
                (BATCH, LENGTH), "bool", "true for tokens, false for padding", default=1, pad=0
            ),
        },
        outputs={
            "tokens": Output((BATCH, new_tokens), "generated tokens, padded after the end token"),
            "count": Output((BATCH,), "number of generated tokens, including the end token"),
        },
        source={},
        lengths=(min(LONGEST_BY_DEFAULT, longest or LONGEST_BY_DEFAULT),),
        longest=longest,
        text=text_of(tokenizer, closes=not continues, writes="tokens"),
    )
