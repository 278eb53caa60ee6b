"""FOLNet encoders with their heads, and Transformers with the same heads, as functions of named arrays."""

from typing import Any

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Function, Input, Output
from folnet import (
    FOLNet,
    FOLNetConfig,
    FOLNetForMaskedLM,
    FOLNetForMultipleChoice,
    FOLNetForPreTraining,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    FOLNetForTokenClassification,
    Transformer,
)
from folnet.tokenization import WordPieceTokenizer

LONGEST_BY_DEFAULT = 128
CHOICES = "choices"
WORDS = "prediction_logits"

ENCODERS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        FOLNet,
        Transformer,
        FOLNetForPreTraining,
        FOLNetForMaskedLM,
        FOLNetForSequenceClassification,
        FOLNetForTokenClassification,
        FOLNetForMultipleChoice,
        FOLNetForQuestionAnswering,
    )
}


def of_encoder(
    model: Any, params: Any, tokenizer: WordPieceTokenizer | None = None, *, masks_padding: bool = True
) -> Exportable:
    """Makes a model of one of the `ENCODERS` exportable, with the outputs and output names of its class.

    Without a tokenizer the exported model accepts no text. `masks_padding` says whether `run_exported` passes
    an attention mask that marks the padding of a text.
    """
    config, name = model.config, type(model).__name__
    choices = (CHOICES,) if isinstance(model, FOLNetForMultipleChoice) else ()
    text = None
    if tokenizer and not choices and tokenizer.vocab_size <= config.vocab_size:  # else it does not match
        fills = WORDS if name in ("FOLNetForPreTraining", "FOLNetForMaskedLM") else None
        text = text_of(tokenizer, types="token_type_ids", masks_padding=masks_padding, fills=fills)
    shape = (BATCH, *choices, LENGTH)
    outputs = _outputs(name, config)

    def make(model) -> Function:
        def function(params, inputs):
            found = model.apply(
                {"params": params}, inputs["input_ids"], inputs["token_type_ids"], inputs["attention_mask"]
            )
            return {name: getattr(found, field) for name, (field, _) in outputs.items()}

        return function

    def with_kernels(names: tuple[str, ...]) -> Function:
        return make(model.clone(config=config.replace(trans_implementation=names)))

    function = make(model)
    has_kernels = isinstance(config, FOLNetConfig) and "trans" in config.binary_operators
    return Exportable(
        kind=f"encoder ({name})",
        function=function,
        params=params,
        inputs={
            "input_ids": Input(shape, "int32", "tokens", pad=0, range=(0, config.vocab_size - 1)),
            "token_type_ids": Input(
                shape, "int32", "segments", default=0, pad=0, range=(0, config.type_vocab_size - 1)
            ),
            "attention_mask": Input(shape, "bool", "true for tokens, false for padding", default=1, pad=0),
        },
        outputs={name: output for name, (_, output) in outputs.items()},
        source={},
        lengths=(min(LONGEST_BY_DEFAULT, config.max_position_embeddings),),
        shortest=2,  # the special tokens
        longest=config.max_position_embeddings if config.absolute_position else None,
        text=text,
        derivable=function,
        with_kernels=with_kernels if has_kernels else None,
    )


def _outputs(name: str, config: Any) -> dict[str, tuple[str, Output]]:
    """Returns, by output name, the field of the model's output and its description."""
    classes = Output((BATCH, config.num_labels), "logits of the classes")
    words = Output((BATCH, LENGTH, config.vocab_size), "logits of the words at each position")
    tokens = Output((BATCH, LENGTH, config.hidden_size), "hidden state of each token")
    pooled = Output((BATCH, config.hidden_size), "pooled state of the first token, for the whole text")
    encoded = {
        "last_hidden_state": ("last_hidden_state", tokens),
        "pooler_output": ("pooler_output", pooled),
    }
    places = Output((BATCH, LENGTH), "logit of each token")
    pairs = {}
    if isinstance(config, FOLNetConfig):
        relations = Output((BATCH, LENGTH, LENGTH, config.relation_size), "state of each pair of tokens")
        pairs = {"relation_hidden_state": ("relation_hidden_state", relations)}
    return {
        "FOLNet": encoded | pairs,
        "Transformer": encoded,
        "FOLNetForPreTraining": {
            WORDS: ("prediction_logits", words),
            "seq_relationship_logits": (
                "seq_relationship_logits",
                Output((BATCH, 2), "logits of the sentence-pair objective"),
            ),
        },
        "FOLNetForMaskedLM": {WORDS: ("logits", words)},
        "FOLNetForSequenceClassification": {"logits": ("logits", classes)},
        "FOLNetForTokenClassification": {
            "logits": (
                "logits",
                Output((BATCH, LENGTH, config.num_labels), "logits of the classes of each token"),
            )
        },
        "FOLNetForMultipleChoice": {"logits": ("logits", Output((BATCH, CHOICES), "logits of the choices"))},
        "FOLNetForQuestionAnswering": {
            "start_logits": ("start_logits", places),
            "end_logits": ("end_logits", places),
        },
    }[name]


def text_of(
    tokenizer: WordPieceTokenizer,
    *,
    types: str | None = None,
    closes: bool = True,
    masks_padding: bool = True,
    fills: str | None = None,
    writes: str | None = None,
) -> dict[str, Any]:
    """Returns the `text` of an `Exportable` that reads, and possibly writes, word pieces.

    Args:
        tokenizer: its vocabulary and casing.
        types: name of the input for segment ids, or None.
        closes: whether the first segment ends with [SEP].
        masks_padding: whether the attention mask marks padding.
        fills: name of the output with logits of words, for filling [MASK], or None.
        writes: name of the output with generated tokens, or None.
    """
    return {
        "kind": "wordpieces",
        "vocabulary": list(tokenizer.vocabulary),
        "lowercase": tokenizer.lowercase,
        "inputs": {"ids": "input_ids", "types": types, "mask": "attention_mask"},
        "closes": closes,
        "masks_padding": masks_padding,
        "fills": fills,
        "writes": writes,
    }
