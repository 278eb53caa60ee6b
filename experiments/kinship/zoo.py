"""From a model's name to the model, with as many parameters as another, and to what it reads.

A FOLNet is named by its operators, such as "jmc.atp" (letters as in Table 3 of the paper); the others have
the names in `parts.TRANSFORMERS` and, where models answer for pairs, `parts.ENCODERS`.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from experiments import baselines
from experiments.kinship import parts, stories
from experiments.kinship.encoders import EncoderClassifier
from experiments.kinship.inputs import (
    Graph,
    Listed,
    Reader,
    Room,
    Source,
    Text,
    Written,
    WrittenGraph,
    tokenizer,
)
from experiments.kinship.pairs import PairClassifier
from experiments.kinship.parts import DataConfig, PairConfig, ReadingConfig, SizeConfig, naming
from experiments.kinship.stories import StoryClassifier
from folnet import (
    FOLNet,
    FOLNetConfig,
    FOLNetForSequenceClassification,
    TransformerConfig,
    kinship,
    matched_to,
)
from folnet.transformer import num_parameters

EXAMPLE = jax.ShapeDtypeStruct((1, 2), jnp.int32)
"""Tokens, to count parameters."""

Settings = FOLNetConfig | TransformerConfig
Classifier = FOLNetForSequenceClassification | PairClassifier | EncoderClassifier | StoryClassifier


@dataclasses.dataclass(frozen=True)
class Zoo:
    """All models on some problems.

    Attributes:
        data: the problems.
        sizes: sizes of all models.
        pairs: how models answer from the question's pair of people, if they do.
        match: operators of the FOLNet whose number of parameters all have; "" keeps the widths. Models that
            read stories match it with their encoder and again with the model of people.
        reading: the encoder of stories, if models answer for pairs.
    """

    data: DataConfig
    sizes: SizeConfig
    pairs: PairConfig
    match: str
    reading: ReadingConfig = dataclasses.field(default_factory=ReadingConfig)

    @property
    def reads(self) -> bool:
        """Whether models read stories and answer for pairs."""
        return self.pairs.read and self.data.form == parts.TEXT

    def takes_relations(self, name: str) -> bool:
        """Returns whether a model reads the graph as relations between pairs."""
        return self.data.form == parts.GRAPH and name not in parts.WITHOUT_RELATIONS

    def settings(self, name: str, field: str = "model") -> Settings:
        """Returns a model's settings, matched in parameters.

        Raises:
            ValueError: they are invalid; the message names `field`, which has the name.
        """
        if self.pairs.read:
            settings = self._settings_for_pairs(field, name)
            if self.reads:
                self._reader_settings(name, settings)  # checks them
            return settings
        reference = self._folnet("match", self.match) if self.match else None
        if name not in parts.TRANSFORMERS:
            settings = self._folnet(field, name)
            return settings if reference is None else matched_folnet(settings, num_of(reference))
        changes = self._inputs(name) | {"absolute_position": name == parts.BERT}
        if name == parts.T5:
            changes["relative_position"] = "t5"
        elif name == parts.RELATION_AWARE and self.data.form == parts.TEXT:
            changes |= {"relative_position": "shaw", "max_distance": self.sizes.max_distance}
        with naming(f"{field}={name!r}"):
            if reference is not None:
                return matched_to(reference, **changes)
            return self._transformer(changes)

    def _settings_for_pairs(self, field: str, name: str) -> Settings:
        if name not in parts.ENCODERS:
            settings = self._folnet(field, name)
        else:
            self._check_encoder(name)
            with naming(f"{field}={name!r}"):
                settings = self._transformer(self._inputs(name) | {"type_vocab_size": 4})
        if not self.match:
            return settings
        target = num_for_pairs(self._folnet("match", self.match))
        loops = self.pairs.loops if name == parts.RGCN else 1  # other models have one set of weights
        with naming(f"{field}={name!r}: match"):
            width = matched_for_pairs(name, settings, target, loops, ordered=not self.reads)
            return settings.replace(intermediate_size=width)

    def make(self, name: str) -> Classifier:
        """Returns a model, which classifies from its first token or, with `pairs.read`, all pairs."""
        settings = self.settings(name)
        if self.reads:
            return StoryClassifier(name, self._reader_settings(name, settings), settings, self.pairs)
        if not self.pairs.read:
            return FOLNetForSequenceClassification(settings)
        listed = name in parts.WITHOUT_RELATIONS
        return of_pairs(name, settings, self.pairs, 1 + self.data.largest().people if listed else None)

    def reader(self, name: str, source: Source) -> Reader:
        """Returns the reader that turns problems into a model's inputs."""
        pairs, within = self.pairs, max(self.data.train_lengths)
        rules = self.data.train(0).rules if pairs.supervised else kinship.COMPOSITIONS
        marked = not pairs.read or pairs.people == parts.MARKED
        if self.takes_relations(name):
            people = self.data.room(source).people
            names = self.data.largest().people if pairs.people == parts.NAMED else 0
            return Graph(people, self.data.inverses, pairs.read, marked, names, within, rules, pairs.selves)
        if self.reads:
            reading = self.reading
            return stories.Stories(
                stories.tokenizer_of(self.data, reading.vocabulary),
                self._vocabulary,
                self.data.room(source).people,
                self.data.largest().people,
                reading.windows,
                reading.window,
                within,
                rules,
                pairs.selves,
            )
        if pairs.read:
            return Listed(self.data.largest(), marked, self.data.spread, within, rules, pairs.selves)
        return self._written(self.data.largest() if self.data.spread else self.data.room(source))

    @property
    def _vocabulary(self) -> int:
        """The number of words in the vocabulary of stories; it does not depend on published files."""
        return self.reading.vocabulary if self.data.clutrr else tokenizer().vocab_size

    def _reader_settings(self, name: str, people: Settings) -> Settings:
        """Returns the settings of a story's encoder, matched in parameters as the whole model is.

        Raises:
            ValueError: they are invalid, or no width has as many parameters.
        """
        shared = {"vocab_size": self._vocabulary + self.data.largest().people, "absolute_position": False}
        own = {"operators": name, "relative_position": "folnet"}
        rest: dict[str, Any] = {
            "initializer_range": self.sizes.initializer_range,
            "hidden_dropout_prob": self.sizes.hidden_dropout_prob,
            "attention_probs_dropout_prob": self.sizes.attention_probs_dropout_prob,
            "dtype": self.sizes.dtype,
        }
        with naming("reading"):
            if isinstance(people, FOLNetConfig):
                settings: Any = FOLNetConfig.from_dict(self.reading.sizes | rest | shared | own)
            else:
                known = {key.name for key in dataclasses.fields(TransformerConfig)}
                sizes = {key: size for key, size in self.reading.sizes.items() if key in known}
                lengths = {"max_position_embeddings": self.reading.window}
                settings = TransformerConfig.from_dict(sizes | rest | shared | lengths)
            if not self.match or name == self.match:
                return settings
            ours = self._folnet("match", self.match)
            target = num_of_stories(self.match, self._reader_settings(self.match, ours), ours)
            width = matched_for_stories(name, settings, people, target)
            return settings.replace(intermediate_size=width)

    def _written(self, room: Room) -> Written:
        kind = Text if self.data.form == parts.TEXT else WrittenGraph
        return kind(room, self.data.largest().people, spread=self.data.spread)

    def _check_encoder(self, name: str) -> None:
        """Checks what a baseline that answers for pairs cannot do."""
        if self.reads and name not in parts.WITHOUT_RELATIONS:
            raise ValueError(
                f"model: got {name!r}, expected a FOLNet's operators or one of "
                f"{', '.join(map(repr, parts.WITHOUT_RELATIONS))} with stories"
            )
        if self.pairs.people == parts.ALIKE and name in parts.WITHOUT_RELATIONS:
            raise ValueError(f"pairs.people: got 'alike', expected names or marks with the model {name!r}")
        if self.data.inverses:
            raise ValueError(
                f"data.inverses: got True, expected False with the model {name!r}, which has them"
            )
        plain = SizeConfig()
        for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "dtype"):
            if (value := getattr(self.sizes, field)) != (expected := getattr(plain, field)):
                raise ValueError(
                    f"sizes.{field}: got {value!r}, expected {expected!r} with the model {name!r}"
                )

    def _inputs(self, name: str) -> dict[str, Any]:
        """Returns the settings that depend on a model's inputs and on the number of classes."""
        classes = {"num_labels": len(kinship.TARGETS)}
        if self.reads:
            people = self.data.largest().people
            names = people if name in parts.ENCODERS else 0
            relations = {"relation_vocab_size": kinship.RELATION_VOCAB_SIZE}
            return classes | relations | {"vocab_size": kinship.VOCAB_SIZE + names}
        if self.takes_relations(name):
            relations = kinship.RELATION_VOCAB_SIZE * (1 + self.data.inverses)
            # Names have their tokens where the question is marked, too, so that both have as many parameters.
            names = self.data.largest().people if self.pairs.people != parts.ALIKE else 0
            return classes | {
                "vocab_size": kinship.VOCAB_SIZE + names,
                "relation_vocab_size": relations,
            }
        room = self.data.largest()
        reader = Listed(room, True, True) if self.pairs.read else self._written(room)
        sizes = {"vocab_size": reader.vocab_size, "max_position_embeddings": reader.length}
        return classes | sizes | {"relation_vocab_size": 0}

    def _transformer(self, changes: dict[str, Any]) -> TransformerConfig:
        """Returns the settings of a Transformer with the config's sizes, not matched in parameters."""
        known = {key.name for key in dataclasses.fields(TransformerConfig)}
        sizes = {key: size for key, size in dataclasses.asdict(self.sizes).items() if key in known}
        return TransformerConfig.from_dict(sizes | changes)

    def _folnet(self, field: str, operators: str) -> FOLNetConfig:
        """Returns the settings of a FOLNet with the config's sizes, not matched in parameters."""
        if "." not in operators:
            raise ValueError(
                f"{field}: got {operators!r}, expected a FOLNet's operators, such as 'jmc.atp'"
                + (f", or one of {', '.join(map(repr, parts.TRANSFORMERS))}" if field != "match" else "")
            )
        relative = "folnet" if self.data.form == parts.TEXT and not self.reads else "none"
        own = {"operators": operators, "relative_position": relative}
        with naming(f"{field}={operators!r}"):
            sizes = dataclasses.asdict(self.sizes)
            return FOLNetConfig.from_dict(sizes | self._inputs(operators) | own)


@functools.cache
def num_of(settings: FOLNetConfig) -> int:
    """Returns the number of parameters of a FOLNet without its head, from shapes alone."""
    return num_parameters(FOLNet(settings))


def of_pairs(
    name: str,
    settings: Settings,
    pairs: PairConfig,
    num_nodes: int | None = None,
    ordered: bool = True,
) -> PairClassifier | EncoderClassifier:
    """Returns a model that answers for all pairs of its first `num_nodes` tokens; None for all."""
    if isinstance(settings, FOLNetConfig):
        return PairClassifier(settings, pairs)
    return EncoderClassifier(name, settings, pairs, num_nodes, ordered)


@functools.cache
def num_for_pairs(settings: FOLNetConfig) -> int:
    """Returns the number of parameters of a FOLNet that answers for all pairs, from shapes alone."""
    return baselines.count(PairClassifier(settings, PairConfig(read=True)), EXAMPLE)


@functools.cache
def matched_for_pairs(
    name: str, settings: Settings, parameters: int, loops: int, ordered: bool = True
) -> int:
    """Returns the width at which a model that answers for all pairs has about so many parameters."""
    pairs = PairConfig(read=True, loops=loops)
    return baselines.matched(
        lambda width: of_pairs(name, settings.replace(intermediate_size=width), pairs, ordered=ordered),
        parameters,
        EXAMPLE,
        candidates=range(1, 1025),
    )


@functools.cache
def num_of_stories(name: str, text: Settings, people: Settings) -> int:
    """Returns the number of parameters of a model that reads stories, from shapes alone."""
    return baselines.count(StoryClassifier(name, text, people, PairConfig(read=True)), *stories.EXAMPLE)


@functools.cache
def matched_for_stories(name: str, text: Settings, people: Settings, parameters: int) -> int:
    """Returns the encoder's width at which a model that reads stories has about so many parameters."""
    pairs = PairConfig(read=True)
    return baselines.matched(
        lambda width: StoryClassifier(name, text.replace(intermediate_size=width), people, pairs),
        parameters,
        *stories.EXAMPLE,
        candidates=range(1, 1025),
    )


def matched_folnet(settings: FOLNetConfig, parameters: int) -> FOLNetConfig:
    """Returns settings with about `parameters` parameters, by the unary boolean operator's width.

    This is `folnet.matched_to` for FOLNets.

    Raises:
        ValueError: there are more parameters even with a width of 1.
    """
    one, two = (num_of(settings.replace(intermediate_size=width)) for width in (1, 2))
    width = 1 + round((parameters - one) / (two - one))  # each unit of width adds two - one
    if width < 1:
        raise ValueError(
            f"match: got {parameters} parameters, expected at least {one}, the number of "
            f"{settings.operators!r} with a boolean operator of width 1"
        )
    return settings.replace(intermediate_size=width)
