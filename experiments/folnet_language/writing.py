"""Texts from trained models.

    writer = open_writer("runs/books")
    [[written]] = writer(["The while statement"], 20)

A text begins with [CLS] and ends with [SEP], in training and here.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.exporting.writers import WRITERS, words_of
from folnet import FOLNetForCausalLM, FOLNetForConditionalGeneration, pretrained
from folnet.tokenization import WordPieceTokenizer
from logic_zoo import hub


class Written(NamedTuple):
    """A text that a model wrote, without the prompt.

    Attributes:
        text: its words.
        ended: whether it ended with [SEP], instead of a text to stop at or the maximum number of tokens.
        score: of a beam search: its log-probability, divided by the length penalty.
    """

    text: str
    ended: bool
    score: float | None


@dataclasses.dataclass(frozen=True)
class Writer:
    """A model that writes, with its parameters and its tokenizer."""

    model: FOLNetForCausalLM | FOLNetForConditionalGeneration
    params: Any
    tokenizer: WordPieceTokenizer

    @property
    def continues(self) -> bool:
        """Whether the model continues a text, instead of writing another one."""
        return isinstance(self.model, FOLNetForCausalLM)

    def __call__(
        self, texts: Sequence[str], new_tokens: int, *, stop: Sequence[str] = (), **options: Any
    ) -> list[list[Written]]:
        """Continues texts, or answers inputs.

        Args:
            texts: B texts; [CLS] is put before each.
            new_tokens: maximum number of tokens to write.
            stop: texts that end what is written, besides [SEP].
            **options: those of `folnet.generate`, such as `num_beams`, or `sampling` with a `key`.

        Returns:
            For each text, what was written: one text, or `num_return_sequences`.

        Raises:
            ValueError: an argument does not fit, or a text is too long for the model's positions.
        """
        ends = self.tokenizer.ids(list(stop))
        if () in map(tuple, ends):
            raise ValueError(f"stop: got {list(stop)!r}, expected texts with at least one token each")
        return self.continued(self.read(texts), new_tokens, stop_sequences=ends, **options)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the tokens that the model reads: [CLS] text, and [SEP] if it is not to be continued."""
        end = [] if self.continues else [self.tokenizer.sep_id]
        return [[self.tokenizer.cls_id, *ids, *end] for ids in self.tokenizer.ids(list(texts))]

    def continued(
        self, tokens: Sequence[Sequence[int]], new_tokens: int, **options: Any
    ) -> list[list[Written]]:
        """Does what `__call__` does, for tokens that `read` returned."""
        if not tokens:
            return []
        tokenizer, width = self.tokenizer, max(map(len, tokens))
        ids = np.full((len(tokens), width), tokenizer.pad_id, np.int32)
        for row, some in enumerate(tokens):
            ids[row, : len(some)] = some
        lengths = np.asarray([len(some) for some in tokens])
        if not self.continues:
            options["decoder_start_token_id"] = tokenizer.cls_id
        model: Any = self.model
        found = model.generate(
            self.params,
            ids,
            attention_mask=np.arange(width)[None] < lengths[:, None],
            max_new_tokens=new_tokens,
            pad_token_id=tokenizer.pad_id,
            eos_token_id=tokenizer.sep_id,
            allowed=words_of(model, tokenizer),
            **options,
        )
        each = options.get("num_return_sequences", 1)
        starts = np.repeat(lengths if self.continues else np.ones_like(lengths), each)
        sequences, ends = np.asarray(found.sequences), np.asarray(found.lengths)
        scores = [None] * len(ends) if found.scores is None else np.asarray(found.scores).tolist()
        written = [
            Written(tokenizer.decode(row[start:end]), row[end - 1] == tokenizer.sep_id, score)
            for row, start, end, score in zip(sequences, starts, ends, scores, strict=True)
        ]
        return [written[row : row + each] for row in range(0, len(written), each)]


def open_writer(path: Path | str, *, step: int | None = None) -> Writer:
    """Opens a trained model.

    Args:
        path: a run's directory, a released folder, a folder for `from_pretrained` with a vocabulary, or
            "user/model" on a hub (see `logic_zoo.hub`).
        step: step of a run's checkpoint; the last one by default.

    Raises:
        ValueError: there is no such model, or it does not write.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    # Here, since `measures` writes with this module, and `train`, which `load` needs, measures.
    from experiments.folnet_language import load

    if load.is_run(path):
        trained = load.load(path, step=step)
        return Writer(trained.model, trained.params, trained.tokenizer)
    directory = hub.directory_of(path)
    _, name = pretrained.read_config(directory)
    if name not in WRITERS:
        raise ValueError(f"{path}: got a {name!r}, expected one of {', '.join(map(repr, WRITERS))}")
    model, params = WRITERS[name].from_pretrained(directory)
    return Writer(model, params, WordPieceTokenizer.from_pretrained(directory))
