"""GLUE without training (Table 10): a language model fills in a masked word, and words stand for classes.

    prompt = PROMPTS["sst2"]                            # "{first} It was [MASK]." with terrible and great
    features = prompt_features(prompt, examples, tokenizer, length=128)
    out = model.apply(..., mlm_positions=features.mask_position[:, None])
    logits = class_logits(out.prediction_logits[:, 0], label_ids(prompt, tokenizer))      # [N, C]
    task.score(examples, predict(task, logits))

The paper uses "the same method and prompt templates" as Gao et al. (2021), "Making Pre-trained Language
Models Better Few-shot Learners": their manual prompts (Table 1), with the details of their program. STS-B's
number is predicted with two words, which stand for its bounds.

N examples, T tokens, C classes (2 for a number), V pieces.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32

from folnet.tasks.interface import Example, SequenceTask
from folnet.tokenization import WordPieceTokenizer, truncated
from folnet.wordpieces import MASK

GAO = "Gao, Fisch, Chen (ACL 2021), Table 1 (manual templates and label words)"

_FIELDS: Mapping[str, tuple[int, Callable[[str], str]]] = {
    "{first}": (0, lambda text: text),
    # Always drops the last character, which in most examples is a full stop or a question mark, as in the
    # program of Gao et al.: the template has its own punctuation there.
    "{first-}": (0, lambda text: text[:-1]),
    "{second}": (1, lambda text: text),
    # Continues the sentence, so it starts in lower case; only cased vocabularies are affected.
    "{second~}": (1, lambda text: text[:1].lower() + text[1:]),
}
_PART = re.compile("(" + "|".join(map(re.escape, _FIELDS)) + ")")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A sentence to fill in.

    Attributes:
        template: contains `[MASK]` once, `{first}` and, for pairs, `{second}`; `{first-}` is the first text
            without its last character, `{second~}` the second with its first letter in lower case.
        words: the masked word of each class, by number; for a number, those of its minimum and maximum.
        source: origin of template and words.
    """

    template: str
    words: tuple[str, ...]
    source: str = GAO

    def __post_init__(self):
        """Raises ValueError for a template without one mask and the first text, or with unknown fields."""
        parts = _PART.split(self.template)
        plain = "".join(parts[::2])
        whole = any(part.startswith("{first") for part in parts) and not {*"{}"} & {*plain}
        if plain.count(MASK) != 1 or not whole:
            raise ValueError(
                f"template: got {self.template!r}, expected {MASK} once, the first text, and only the fields "
                f"{', '.join(_FIELDS)}"
            )
        if len(set(self.words)) != len(self.words) or len(self.words) < 2:
            raise ValueError(f"words: got {self.words}, expected at least two, all different")

    def parts(self, example: Example) -> list[tuple[int | None, str]]:
        """Returns the parts of an example's prompt: each text and its number (None for the template's)."""
        found: list[tuple[int | None, str]] = []
        for part in _PART.split(self.template):
            if part not in _FIELDS:
                found.append((None, part))
                continue
            number, change = _FIELDS[part]
            text = example.second if number else example.first
            if text is None:
                raise ValueError(
                    f"example {example.index}: got no second text, expected one for {self.template!r}"
                )
            found.append((number, change(text)))
        return [part for part in found if part[1]]

    def fill(self, example: Example) -> str:
        """Returns an example's prompt as a string."""
        return "".join(text for _, text in self.parts(example))


_INFERENCE, _SIMILARITY = "{first-}? [MASK], {second~}", "{first} [MASK], {second~}"

PROMPTS: Mapping[str, Prompt] = {
    "mnli": Prompt(_INFERENCE, ("Yes", "Maybe", "No")),
    "qqp": Prompt(_SIMILARITY, ("No", "Yes")),
    "qnli": Prompt(_INFERENCE, ("Yes", "No")),
    "sst2": Prompt("{first} It was [MASK].", ("terrible", "great")),
    "cola": Prompt("{first} This is [MASK].", ("incorrect", "correct")),
    "stsb": Prompt(_SIMILARITY, ("No", "Yes")),
    "mrpc": Prompt(_SIMILARITY, ("No", "Yes")),
    "rte": Prompt(_INFERENCE, ("Yes", "No")),
}
"""Prompts by task name, with words in the order of its classes. Uncased vocabularies lowercase them."""


class PromptFeatures(NamedTuple):
    """Prompts in the form the model reads, one segment each."""

    input_ids: Int32[np.ndarray, "N T"]
    token_type_ids: Int32[np.ndarray, "N T"]
    attention_mask: Bool[np.ndarray, "N T"]
    mask_position: Int32[np.ndarray, "N"]
    """Position of [MASK]."""


def prompt_features(
    prompt: Prompt, examples: Sequence[Example], tokenizer: WordPieceTokenizer, length: int = 128
) -> PromptFeatures:
    """Tokenizes prompts to [CLS] prompt [SEP].

    If a prompt is too long, its texts are truncated at their ends, the longer first, and never the template.
    Gao et al. truncate the end of the whole prompt, which may remove the mask.

    Raises:
        ValueError: If T is too small for the template, or an example lacks a second text.
    """
    rows, positions = [], []
    for example in examples:
        parts = prompt.parts(example)
        # Text in an example that looks like a special token stays text; in the template it is special.
        ids = [tokenizer.ids([text], special_tokens=number is None)[0] for number, text in parts]
        sizes = {
            number: len(part) for (number, _), part in zip(parts, ids, strict=True) if number is not None
        }
        fixed = sum(len(part) for part in ids) - sum(sizes.values()) + 2
        if length < fixed:
            raise ValueError(
                f"length: got {length}, expected at least {fixed} for the template {prompt.template!r}"
            )
        keep = dict(enumerate(truncated(sizes.get(0, 0), sizes.get(1, 0), length - fixed)))
        row: list[int] = []
        for (number, _), part in zip(parts, ids, strict=True):
            if tokenizer.mask_id in part:
                positions.append(1 + len(row) + part.index(tokenizer.mask_id))
            row += part if number is None else part[: keep[number]]
        rows.append(row)
    return PromptFeatures(*tokenizer.assemble(rows, length=length), np.asarray(positions, np.int32))


def label_ids(prompt: Prompt, tokenizer: WordPieceTokenizer) -> Int32[np.ndarray, "C"]:
    """Returns the ids of the words that stand for the classes.

    Raises:
        ValueError: If a word is not a single piece of the vocabulary, or two words are the same piece.
    """
    found = tokenizer.ids(prompt.words)
    pieces = zip(prompt.words, found, strict=True)
    if wrong := [word for word, ids in pieces if len(ids) != 1 or ids[0] == tokenizer.unk_id]:
        raise ValueError(f"words: got {', '.join(wrong)}, expected words of one piece each")
    ids = np.asarray([row[0] for row in found], np.int32)
    if len(set(ids.tolist())) != len(ids):
        raise ValueError(f"words: got {prompt.words}, expected different pieces")
    return ids


def class_logits(
    mask_logits: Float[np.ndarray, "N V"], ids: Int32[np.ndarray, "C"]
) -> Float[np.ndarray, "N C"]:
    """Returns the classes' logits, those of their words at the mask; raises ValueError for bad shapes."""
    mask_logits, ids = np.asarray(mask_logits, np.float32), np.asarray(ids)
    fits = mask_logits.ndim == 2 and ids.ndim == 1
    if not fits or (ids.size and not 0 <= ids.min() <= ids.max() < mask_logits.shape[1]):
        raise ValueError(
            f"mask_logits: got shape {mask_logits.shape}, expected [N, V] with V above all of {ids}"
        )
    return mask_logits[:, ids]


def predict(task: SequenceTask, logits: Float[np.ndarray, "N C"]) -> np.ndarray:
    """Computes predictions [N] from logits of words.

    The prediction is the class with the greatest logit or, for a number, the mean of its bounds weighted by
    the probabilities of the two words relative to each other.

    Raises:
        ValueError: If the number of words differs from that of the task's classes (two for a number).
    """
    logits = np.asarray(logits, np.float32)
    wanted = len(task.classes) or 2
    if logits.ndim != 2 or logits.shape[1] != wanted:
        raise ValueError(f"logits: got shape {logits.shape}, expected [N, {wanted}] for {task.name}")
    if task.bounds is None:
        return np.argmax(logits, axis=1).astype(np.int32)
    low, high = task.bounds
    # The logistic function of the difference, computed with tanh, which does not overflow.
    greatest = 0.5 * (1 + np.tanh(0.5 * (logits[:, 1] - logits[:, 0])))
    return (low + (high - low) * greatest).astype(np.float32)
