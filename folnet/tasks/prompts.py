"""GLUE without training (Table 10): a language model fills a masked word in, and words mean classes.

    prompt = PROMPTS["sst2"]                            # "{first} It was [MASK]." with terrible and great
    features = prompt_features(prompt, examples, tokenizer, length=128)
    out = model.apply(..., mlm_positions=features.mask_position[:, None])
    logits = class_logits(out.prediction_logits[:, 0], label_ids(prompt, tokenizer))      # [N, C]
    task.score(examples, predict(task, logits))

The paper takes "the same method and prompt templates" as Gao et al. (2021), "Making Pre-trained Language
Models Better Few-shot Learners": their manual prompts, Table 1 there, with the details of their program. The
number of STS-B is told by two words too, which stand for its bounds.

N examples, T tokens, C classes (2 for a number), V pieces.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int32

from folnet.tasks.interface import Example, SequenceTask
from folnet.tokenization import MASK, WordPieceTokenizer, truncated

GAO = "Gao, Fisch, Chen (ACL 2021), Table 1 (manual templates and label words)"

_FIELDS: Mapping[str, tuple[int, Callable[[str], str]]] = {
    "{first}": (0, lambda text: text),
    # Without its last character, which in most examples is a full stop or a question mark, and always, as in
    # the program of Gao et al.: the template has a sign of its own there.
    "{first-}": (0, lambda text: text[:-1]),
    "{second}": (1, lambda text: text),
    # Goes on with the sentence, so does not begin with a capital; only cased vocabularies see it.
    "{second~}": (1, lambda text: text[:1].lower() + text[1:]),
}
_PART = re.compile("(" + "|".join(map(re.escape, _FIELDS)) + ")")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A sentence to be filled in.

    Attributes:
        template: with `[MASK]` once, `{first}` and, for pairs, `{second}`; `{first-}` is the first text
            without its last character, `{second~}` the second with its first letter in lower case.
        words: the masked word of each class, by number; for a number two: its least and its greatest.
        source: where they are from.
    """

    template: str
    words: tuple[str, ...]
    source: str = GAO

    def __post_init__(self):
        """Raises ValueError: a template without one mask and the first text, or braces that mean nothing."""
        parts = _PART.split(self.template)
        plain = "".join(parts[::2])
        whole = any(part.startswith("{first") for part in parts) and not {*"{}"} & {*plain}
        if plain.count(MASK) != 1 or not whole:
            raise ValueError(
                f"template must have {MASK} once, the first text, and of fields only {', '.join(_FIELDS)}; "
                f"got {self.template!r}"
            )
        if len(set(self.words)) != len(self.words) or len(self.words) < 2:
            raise ValueError(f"words must be different and at least two, got {self.words}")

    def parts(self, example: Example) -> list[tuple[int | None, str]]:
        """The prompt for an example in order: a text and its number (0, 1), or None if the template's."""
        found: list[tuple[int | None, str]] = []
        for part in _PART.split(self.template):
            if part not in _FIELDS:
                found.append((None, part))
                continue
            number, change = _FIELDS[part]
            text = example.second if number else example.first
            if text is None:
                raise ValueError(f"example {example.index} has no second text for {self.template!r}")
            found.append((number, change(text)))
        return [part for part in found if part[1]]

    def fill(self, example: Example) -> str:
        """The prompt for an example, to be read."""
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
"""By the task's name; words in the order of its classes. An uncased vocabulary makes them lower case."""


class PromptFeatures(NamedTuple):
    """Prompts as the model reads them, one segment each."""

    input_ids: Int32[np.ndarray, "N T"]
    token_type_ids: Int32[np.ndarray, "N T"]
    attention_mask: Bool[np.ndarray, "N T"]
    mask_position: Int32[np.ndarray, "N"]
    """Where [MASK] is."""


def prompt_features(
    prompt: Prompt, examples: Sequence[Example], tokenizer: WordPieceTokenizer, length: int = 128
) -> PromptFeatures:
    """[CLS] prompt [SEP].

    Where it is too long the texts are cut at their ends, the longer first, and never the template: Gao et al.
    cut the end of the whole, which may lose the mask.

    Raises:
        ValueError: T has no room for the template, or a pair is needed and there is none.
    """
    rows, positions = [], []
    for example in examples:
        parts = prompt.parts(example)
        # What looks like a special token in an example is text; in the template it is meant.
        ids = [tokenizer.ids([text], special_tokens=number is None)[0] for number, text in parts]
        sizes = {
            number: len(part) for (number, _), part in zip(parts, ids, strict=True) if number is not None
        }
        fixed = sum(len(part) for part in ids) - sum(sizes.values()) + 2
        if length < fixed:
            raise ValueError(
                f"length must be at least {fixed} for the template {prompt.template!r}, got {length}"
            )
        keep = dict(enumerate(truncated(sizes.get(0, 0), sizes.get(1, 0), length - fixed)))
        row: list[int] = []
        for (number, _), part in zip(parts, ids, strict=True):
            if number is None and tokenizer.mask_id in part:
                positions.append(1 + len(row) + part.index(tokenizer.mask_id))
            row += part if number is None else part[: keep[number]]
        rows.append(row)
    return PromptFeatures(*tokenizer.assemble(rows, length=length), np.asarray(positions, np.int32))


def label_ids(prompt: Prompt, tokenizer: WordPieceTokenizer) -> Int32[np.ndarray, "C"]:
    """The pieces of the words that mean the classes.

    Raises:
        ValueError: a word is not one piece of the vocabulary, so that one mask cannot be it; or two are the
            same piece.
    """
    found = tokenizer.ids(prompt.words)
    pieces = zip(prompt.words, found, strict=True)
    if wrong := [word for word, ids in pieces if len(ids) != 1 or ids[0] == tokenizer.unk_id]:
        raise ValueError(f"words must each be one piece of the vocabulary, got others: {', '.join(wrong)}")
    ids = np.asarray([row[0] for row in found], np.int32)
    if len(set(ids.tolist())) != len(ids):
        raise ValueError(f"words must be different pieces, {prompt.words} are not")
    return ids


def class_logits(
    mask_logits: Float[np.ndarray, "N V"], ids: Int32[np.ndarray, "C"]
) -> Float[np.ndarray, "N C"]:
    """Logits of the classes, those of their words at the mask; shapes that do not fit raise ValueError."""
    mask_logits, ids = np.asarray(mask_logits, np.float32), np.asarray(ids)
    fits = mask_logits.ndim == 2 and ids.ndim == 1
    if not fits or (ids.size and not 0 <= ids.min() <= ids.max() < mask_logits.shape[1]):
        raise ValueError(
            f"mask_logits have shape {mask_logits.shape}, expected [N, V] with V above all of {ids}"
        )
    return mask_logits[:, ids]


def predict(task: SequenceTask, logits: Float[np.ndarray, "N C"]) -> np.ndarray:
    """Predictions [N] from logits of words: the class of the greatest; for a number, the mean of its bounds
    weighed with the two words' probabilities among each other.

    Raises:
        ValueError: there are not as many words as the task has classes, or two for a number.
    """
    logits = np.asarray(logits, np.float32)
    wanted = len(task.classes) or 2
    if logits.ndim != 2 or logits.shape[1] != wanted:
        raise ValueError(f"logits have shape {logits.shape}, expected [N, {wanted}] for {task.name}")
    if task.bounds is None:
        return np.argmax(logits, axis=1).astype(np.int32)
    low, high = task.bounds
    # The logistic function of the difference by tanh, which does not overflow.
    greatest = 0.5 * (1 + np.tanh(0.5 * (logits[:, 1] - logits[:, 0])))
    return (low + (high - low) * greatest).astype(np.float32)
