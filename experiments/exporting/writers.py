"""FOLNets that write, decoder-only or encoder-decoder, as functions of named arrays: the loop inside.

Their settings do not say which pieces begin and end a text; here it is those of their vocabulary, as for
encoders: a text begins with [CLS], which is also what a decoder starts from, and ends with [SEP].
"""

from typing import Any

import jax.numpy as jnp

from experiments.exporting.encoders import LONGEST_BY_DEFAULT, text_of
from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration, generate, generate_from
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer

WRITERS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (FOLNetForCausalLM, FOLNetForConditionalGeneration)
}


def of_writer(model: Any, params: Any, tokenizer: WordPieceTokenizer | None, new_tokens: int) -> Exportable:
    """Returns a model, of one of `WRITERS`, from texts to what follows them: the most probable tokens.

    Raises:
        ValueError: there is no vocabulary, or no room for `new_tokens`.
    """
    if tokenizer is None:
        raise ValueError(f"a model that writes needs its {VOCABULARY}, which says how a text begins and ends")
    config, goes_on = model.config, isinstance(model, FOLNetForCausalLM)
    most = config.max_position_embeddings if config.absolute_position else None
    longest = most if most is None or not goes_on else most - new_tokens + 1  # the last is not read any more
    if new_tokens < 1 or (longest is not None and longest < 1) or (most is not None and new_tokens > most):
        raise ValueError(f"new_tokens={new_tokens} must be at least 1, and fit the model's {most} positions")
    options = {
        "max_new_tokens": new_tokens,
        "pad_token_id": tokenizer.pad_id,
        "eos_token_id": tokenizer.sep_id,
    }

    def function(params, inputs):
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        if not goes_on:
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
            "input_ids": Input((BATCH, LENGTH), "int32", "tokens, padding after them", pad=0, range=ids),
            "attention_mask": Input((BATCH, LENGTH), "bool", "true where a token is real", default=1, pad=0),
        },
        outputs={
            "tokens": Output((BATCH, new_tokens), "what is written, padding after its end"),
            "count": Output((BATCH,), "of tokens written, the end among them"),
        },
        source={},
        lengths=(min(LONGEST_BY_DEFAULT, longest or LONGEST_BY_DEFAULT),),
        longest=longest,
        text=text_of(tokenizer, closes=not goes_on, writes="tokens"),
    )
