"""The parts of kinship's configs: the sizes of models, and the problems. `kinship` has the whole."""

import dataclasses
from collections.abc import Iterator

from experiments import runtime
from experiments.kinship import inputs as kinship_inputs
from folnet import kinship
from folnet.kinship.splits import targets

BERT, T5, RELATION_AWARE = "bert", "t5", "relation_aware"
TRANSFORMERS = (BERT, T5, RELATION_AWARE)
WITHOUT_RELATIONS = (BERT, T5)
"""Models that a graph must be written out for."""
GRAPH, TEXT = FORMS = ("graph", "text")
TEST_SEED = 2**31
"""Test problems are those of this seed and above, training problems those of seeds below it."""


@dataclasses.dataclass
class SizeConfig:
    """Sizes that all models have in common; `folnet.FOLNetConfig` says what each field does.

    Attributes:
        hidden_size: D1.
        relation_size: D2, of a FOLNet.
        num_hidden_layers: L.
        num_attention_heads: H.
        head_size: S.
        intermediate_size: of the unary boolean operator, or the feed-forward layers; of a model that is
            matched in parameters it is what makes them match.
        relation_intermediate_size: of the binary boolean operator, of a FOLNet.
        max_distance: of text: from here on all distances are alike.
        initializer_range: standard deviation of matrices and tables at the start; negative for
            sqrt(2 / (rows + columns)), with which models of this size learn many times faster than with
            BERT's 0.02.
        hidden_dropout_prob: dropout of base atoms and conclusions.
        attention_probs_dropout_prob: dropout of kernels.
        dtype: of the computation; parameters are float32.
    """

    hidden_size: int = 48
    relation_size: int = 24
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    head_size: int = 12
    intermediate_size: int = 96
    relation_intermediate_size: int = 48
    max_distance: int = 16
    initializer_range: float = -1.0
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    dtype: str = "float32"


@dataclasses.dataclass
class DataConfig:
    """Which problems, and how models read them.

    Attributes:
        form: "graph": people are tokens and facts are relations of pairs, in no order; for models that take
            no relations the facts are written out as tokens. "text": stories, for all models.
        train_lengths: facts of a chain, k, in training, each as likely.
        test_lengths: k of the tests, a set of problems each.
        supporting: distractors in every problem, as `folnet.kinship.Kinship` has them, and so the next two.
        irrelevant: facts that lead to somebody who is of no use.
        disconnected: facts about other people.
        held_out_pairs: how many compositions of two relations training never shows. Problems that cannot be
            solved without them are then tests of their own.
        held_out_chains: part of all chains of three relations that training never shows; likewise.
        held_out_seed: which.
        inverses: of a graph, whether each fact also stands at the pair turned round, as a relation of its
            own. All models that take relations are given the same.
        spread: of facts written out and of text: whether there are gaps of random length between facts, so
            that a test has no positions and distances that were never met in training.
        pool: training problems that are drawn before the start, of which each batch takes some at random; 0
            draws new ones all along, at some 10,000 a second. An accelerator would wait for those.
        test_problems: in each test.
    """

    form: str = GRAPH
    train_lengths: tuple[int, ...] = (2, 3)
    test_lengths: tuple[int, ...] = tuple(kinship.LENGTHS)
    supporting: int = 0
    irrelevant: int = 0
    disconnected: int = 0
    held_out_pairs: int = 0
    held_out_chains: float = 0.0
    held_out_seed: int = 0
    inverses: bool = False
    spread: bool = True
    pool: int = 0
    test_problems: int = 200

    @property
    def distractors(self) -> dict[str, int]:
        """How many facts of each kind are not needed."""
        return {kind: getattr(self, kind) for kind in kinship.DISTRACTORS}

    def held_out(self) -> kinship.HeldOut:
        """What training never shows; ValueError for a number out of range."""
        found = kinship.NOTHING
        try:
            if self.held_out_pairs:
                found = kinship.HeldOut.draw_pairs(self.held_out_seed, self.held_out_pairs)
        except ValueError as error:
            raise ValueError(f"data.held_out_pairs: {error}") from error
        try:
            if self.held_out_chains:
                chains = kinship.HeldOut.draw_chains(self.held_out_seed, 3, self.held_out_chains)
                found = dataclasses.replace(found, chains=chains.chains)
        except ValueError as error:
            raise ValueError(f"data.held_out_chains: {error}") from error
        return found

    def train(self, seed: int) -> kinship.Kinship:
        """Endless problems to learn from; ValueError naming what does not fit."""
        return self._source("train_lengths", seed, self.train_lengths, "seen")

    def tests(self) -> Iterator[tuple[str, kinship.Kinship]]:
        """For each k its problems, "k"; where anything is held out, also those that ask for it,
        "held_out/k".

        Raises:
            ValueError: what does not fit, by name.
        """
        held_out = self.held_out()
        for length in self.test_lengths:
            yield str(length), self._source("test_lengths", TEST_SEED + length, (length,), "seen")
        for length in self.test_lengths if held_out else ():
            if targets(held_out, "held_out", length):
                seed = TEST_SEED + 100 + length
                yield f"held_out/{length}", self._source("test_lengths", seed, (length,), "held_out")

    def _source(self, name: str, seed: int, lengths: tuple[int, ...], part: kinship.Part) -> kinship.Kinship:
        held_out = self.held_out()
        part = part if held_out else "all"
        try:
            return kinship.Kinship(seed, lengths, **self.distractors, held_out=held_out, part=part)
        except ValueError as error:
            shown = getattr(self, name)
            raise ValueError(f"data.{name}={shown}, with the rest of data: {error}") from error

    def validate(self) -> None:
        """Checks all fields; ValueError naming what is wrong."""
        runtime.one_of("data.form", self.form, FORMS)
        runtime.at_least("data.test_problems", self.test_problems, 1)
        runtime.at_least("data.held_out_seed", self.held_out_seed, 0)
        runtime.at_least("data.pool", self.pool, 0)
        for name in ("train_lengths", "test_lengths"):
            lengths = getattr(self, name)
            if not lengths or sorted(set(lengths)) != list(lengths):
                raise ValueError(f"data.{name}={lengths} must be some lengths, growing, such as (2, 3)")
        self.train(0)
        for _ in self.tests():
            pass

    def room(self, source: kinship.Kinship) -> kinship_inputs.Room:
        """What the largest of some problems takes."""
        facts = max(source.lengths) + 2 * self.supporting + self.irrelevant + self.disconnected
        return kinship_inputs.Room(source.max_people, facts)

    def largest(self) -> kinship_inputs.Room:
        """What the largest problem of all takes."""
        rooms = [self.room(source) for source in (self.train(0), *(source for _, source in self.tests()))]
        return kinship_inputs.Room(max(room.people for room in rooms), max(room.facts for room in rooms))
