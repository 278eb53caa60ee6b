"""Stories read sentence by sentence: windows of text as inputs, and a model that reads and then deduces.

A fact is said in a sentence or in two successive ones, so an encoder reads every two successive sentences
alone. What it finds of two people wherever they are mentioned is what a looped model is given to deduce from,
in place of a graph: of a FOLNet its unary and binary atoms, of a Transformer its states.

Names are tokens that are drawn for each story, as Sinha et al. (2019) anonymize them.

Axis letters: B stories; W windows; T tokens; N people; D features; C classes.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from experiments import baselines
from experiments.kinship import parts
from experiments.kinship.encoders import EncoderClassifier, positions_of
from experiments.kinship.inputs import Arrays, Source, named, tokenizer
from experiments.kinship.pairs import CLASSES, PairClassifier
from experiments.kinship.parts import PairConfig
from folnet import FOLNetConfig, TransformerConfig, kinship
from folnet.kinship.rules import Pair
from folnet.looped import LoopedFOLNet
from folnet.tasks.clutrr_graphs import Published
from folnet.tokenization import WordPieceTokenizer

NOBODY = -1
"""The number of a person at tokens that are none, and the name of a person who is not there."""
_ABSENT, _BOUND = 1e-3, 20.0  # see `_gathered`


def sentences(text: kinship.NumberedText) -> list[kinship.NumberedText]:
    """Returns the sentences of a story, which end at a full stop, an exclamation or a question mark."""
    found: list[list[str | int]] = [[]]
    for piece in text:
        if isinstance(piece, int):
            found[-1].append(piece)
            continue
        for place, part in enumerate(re.split(r"(?<=[.!?])\s+", piece)):
            if place:
                found.append([])
            if part.strip():
                found[-1].append(part)
    return [tuple(sentence) for sentence in found if sentence]


def windows[Token](of_sentences: Sequence[list[Token]], length: int) -> list[list[Token]]:
    """Returns every two successive sentences that have at most `length` tokens, and each other one alone.

    Sentences that are longer are cut off.
    """
    cut = [sentence[:length] for sentence in of_sentences]
    found, read = [], -1
    for place, sentence in enumerate(cut):
        both = sentence + cut[place + 1] if place + 1 < len(cut) else []
        if both and len(both) <= length:
            found.append(both)
            read = place + 1
        elif read < place:
            found.append(sentence)
            read = place
    return found


@functools.cache
def learned(directory: str, train_lengths: tuple[int, ...], size: int) -> WordPieceTokenizer:
    """Returns a tokenizer with at most `size` pieces, learned from the words of published training data."""
    source = Published(directory, train_lengths)
    stories = (source.numbered_text(index) for index in range(len(source)))
    words = (" ".join(piece for piece in story if isinstance(piece, str)) for story in stories)
    return WordPieceTokenizer.train(words, size)


def tokenizer_of(data: parts.DataConfig, size: int) -> WordPieceTokenizer:
    """Returns the tokenizer of published stories, or that of generated ones."""
    return learned(data.clutrr, data.train_lengths, size) if data.clutrr else tokenizer()


@dataclasses.dataclass(frozen=True)
class Stories:
    """A `Reader` of stories, for models that answer for pairs.

    Its arrays: `input_ids` [B, W, T], the tokens of each window, names after all others; `mentions` of the
    same shape, the person at each token; `names` [B, N], each person's name; `query` [B, 2]; `pairs`
    [B, N, N], as of `folnet.kinship.pair_labels`; `facts` [B, N, N], the relations that the story states;
    `labels` [B].

    Attributes:
        words: the tokenizer of everything but names.
        vocabulary: the number of its tokens with which models are made, at least its size.
        people: N, the maximum number of people.
        names: the number of names, at least as large.
        windows: W, the maximum number of windows.
        length: T; a window begins with [CLS].
        within: as in `inputs.Graph`.
        rules: as in `inputs.Graph`.
        selves: as in `inputs.Graph`.
    """

    words: WordPieceTokenizer
    vocabulary: int
    people: int
    names: int
    windows: int
    length: int
    within: int | None = None
    rules: Mapping[Pair, int] = dataclasses.field(default_factory=lambda: kinship.COMPOSITIONS)
    selves: bool = False

    def __call__(self, source: Source, indices: Iterable[int]) -> Arrays:
        """Returns the arrays of stories.

        Raises:
            ValueError: a story has more windows.
        """
        indices = [int(index) for index in indices]
        problems = source.draw(indices)
        rows, people = len(indices), self.people
        ids = np.zeros((rows, self.windows, self.length), np.int32)
        mentions = np.full_like(ids, NOBODY)
        names = np.full((rows, people), NOBODY, np.int32)
        facts = np.full((rows, people, people), -1, np.int32)
        texts = [sentences(source.numbered_text(index)) for index in indices]
        words = [piece for story in texts for part in story for piece in part if isinstance(piece, str)]
        pieces = self._pieces(tuple(dict.fromkeys(words)))
        for row, (index, problem) in enumerate(zip(indices, problems, strict=True)):
            names[row, : problem.num_people] = named(source, index, self.names)[: problem.num_people]
            for x, relation, y in problem.facts:
                facts[row, x, y] = relation
            tokens = [
                [token for piece in part for token in self._tokens(piece, pieces, names[row])]
                for part in texts[row]
            ]
            found = windows(tokens, self.length - 1)
            if len(found) > self.windows:
                raise ValueError(
                    f"reading.windows: got {self.windows}, expected at least {len(found)}, the number of "
                    f"windows of story {index}"
                )
            for place, window in enumerate(found):
                ids[row, place, 0] = self.words.cls_id
                ids[row, place, 1 : 1 + len(window)] = [token for token, _ in window]
                mentions[row, place, 1 : 1 + len(window)] = [person for _, person in window]
        labels = kinship.pair_labels(
            problems, num_people=people, within=self.within, rules=self.rules, selves=self.selves
        )
        return {
            "input_ids": ids,
            "mentions": mentions,
            "names": names,
            "query": np.array([problem.query for problem in problems], np.int32),
            "pairs": labels[:, 1:, 1:],  # without [CLS], which is nobody
            "facts": facts,
            "labels": np.array([problem.label for problem in problems], np.int32),
        }

    def _pieces(self, texts: tuple[str, ...]) -> dict[str, list[int]]:
        found = self.words.ids(list(texts))
        return {text: [int(piece) for piece in ids] for text, ids in zip(texts, found, strict=True)}

    def _tokens(
        self, piece: str | int, pieces: Mapping[str, list[int]], names: np.ndarray
    ) -> Iterator[tuple[int, int]]:
        """Yields the tokens of a piece of a story, each with its person."""
        if isinstance(piece, int):
            yield self.vocabulary + int(names[piece]), piece
        else:
            yield from ((token, NOBODY) for token in pieces[piece])


EXAMPLE = tuple(jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, 1, 2), (1, 1, 2), (1, 2)))
"""Inputs of a `StoryClassifier`, to count parameters."""

_WIDTHS = (2, 3, 4, 6)
"""Numbers of windows at which a batch of training stories may be cut; the rest have as many as there are."""


def groups(ids: Int[np.ndarray, "B W T"]) -> list[tuple[int, Int[np.ndarray, "n"]]]:
    """Returns stories by their numbers of windows: each group's maximum, and the indices of its stories."""
    counts = (ids != 0).any(axis=2).sum(axis=1)
    most = int(counts.max())
    widths = [*(width for width in _WIDTHS if width < most), most]
    places = np.searchsorted(widths, counts)
    found = [(width, np.flatnonzero(places == place)) for place, width in enumerate(widths)]
    return [(width, rows) for width, rows in found if len(rows)]


class StoryClassifier(nn.Module):
    """An encoder of windows, and a model that says what every person of the story is to every other.

    Attributes:
        name_of: the model: a FOLNet's operators, or one of `parts.WITHOUT_RELATIONS`.
        text: sizes of the encoder.
        people: sizes of the model of people; of the same kind.
        pairs: its numbers of loops, and how it tells people apart.
    """

    name_of: str
    text: FOLNetConfig | TransformerConfig
    people: FOLNetConfig | TransformerConfig
    pairs: PairConfig

    def setup(self):
        text, size = self.text, self.people.hidden_size
        self.unary = nn.Dense(size)
        if isinstance(text, FOLNetConfig) and isinstance(self.people, FOLNetConfig):
            self.encoder: Any = LoopedFOLNet(text, 1)
            self.deduction: Any = PairClassifier(self.people, self.pairs)
            self.binary = nn.Dense(self.people.relation_size)
            return
        self.tokens = nn.Embed(text.vocab_size, text.hidden_size)
        self.encoder = baselines.Transformer(
            text.num_hidden_layers,
            text.num_attention_heads,
            text.intermediate_size,
            norm="post" if self.name_of == parts.BERT else "pre",
            positions=positions_of(self.name_of),
            max_length=text.max_position_embeddings,
        )
        assert isinstance(self.people, TransformerConfig)
        self.deduction = EncoderClassifier(self.name_of, self.people, self.pairs, ordered=False)
        self.first, self.second = nn.Dense(size), nn.Dense(size)
        self.classes = nn.Dense(CLASSES)

    def __call__(
        self,
        input_ids: Int[Array, "B W T"],
        mentions: Int[Array, "B W T"],
        names: Int[Array, "B N"],
        deterministic: bool = True,
        *,
        num_loops: int | None = None,
        ahead: int | Int[Array, ""] = 0,
    ) -> list[Float[Array, "B N N C"]]:
        """Returns the logits of all pairs of people as read, before the first loop, and after each loop.

        Args:
            input_ids: the tokens of each window; 0 is padding.
            mentions: the number of the person at each token, -1 for nobody.
            names: the name of each person, -1 where there is none.
            deterministic: False enables dropout.
            num_loops: as of `LoopedFOLNet`.
            ahead: as of `LoopedFOLNet`.
        """
        batch, count = names.shape
        there = names >= 0
        ids, of_person = (array.reshape(-1, array.shape[-1]) for array in (input_ids, mentions))
        # A window without tokens is read as one of padding alone, and mentions nobody.
        mask = (ids > 0) | (jnp.arange(ids.shape[1]) == 0)[None]
        mentioned = jax.nn.one_hot(of_person, count, axis=1)
        loops: Any = {"num_loops": num_loops, "ahead": ahead}
        if isinstance(self.people, FOLNetConfig):
            ((unary, relation),) = self.encoder(ids, None, mask, deterministic)
            ids = jnp.where(there, kinship.arrays.PERSON, kinship.arrays.PAD)
            properties = self.unary(_gathered("mnt,mtd->mnd", mentioned, unary, batch=batch))
            found = _gathered("mxt,myu,mdtu->mxyd", mentioned, mentioned, relation, batch=batch)
            relations = self.binary(found)
            stated = self.deduction.given(relations)
            loops["relation_embeds"] = relations
        else:
            states = self.encoder(self.tokens(ids), mask)
            ids = jnp.where(there, kinship.VOCAB_SIZE + names, kinship.arrays.PAD)
            properties = self.unary(_gathered("mnt,mtd->mnd", mentioned, states, batch=batch))
            both = nn.relu(self.first(properties)[:, :, None] + self.second(properties)[:, None])
            stated = self.classes(both)
        every = self.deduction(ids, None, there, deterministic, inputs_embeds=properties, **loops)
        return [stated, *every]


def _gathered(equation: str, *arrays: Float[Array, "M ..."], batch: int) -> Float[Array, "B N *N D"]:
    """Returns ln of a sum of exponentials over the mentions of a story's people: their soft maximum.

    The last array has the states of an encoder; they are normalized, and clipped because of learned gains.
    """
    *mentioned, states = arrays
    states = jnp.exp(jnp.clip(states, -_BOUND, _BOUND))
    summed = jnp.einsum(equation, *mentioned, states, optimize="optimal")
    return jnp.log(_ABSENT + summed.reshape(batch, -1, *summed.shape[1:]).sum(axis=1))
