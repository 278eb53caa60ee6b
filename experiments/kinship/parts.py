"""The parts of kinship's configs, which `config.Config` puts together: the sizes of models, the problems."""

import contextlib
import dataclasses
from collections.abc import Generator, Iterator

from experiments import runtime
from experiments.kinship.inputs import Room
from folnet import kinship
from folnet.kinship.splits import targets

BERT, T5, RELATION_AWARE = "bert", "t5", "relation_aware"
TRANSFORMERS = (BERT, T5, RELATION_AWARE)
WITHOUT_RELATIONS = (BERT, T5)
"""Models that a graph must be written out for."""
GRAPH, TEXT = FORMS = ("graph", "text")
TEST_SEED = 2**31
"""Test problems are those of this seed and above, training problems those of seeds below it."""


@contextlib.contextmanager
def naming(field: str) -> Generator[None]:
    """Puts the name of a field before the message of a `ValueError` raised inside."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


@dataclasses.dataclass
class SizeConfig:
    """Sizes that all models have in common; `folnet.FOLNetConfig` says what each field does.

    Attributes:
        hidden_size: D1.
        relation_size: D2, of a FOLNet.
        num_hidden_layers: L.
        num_attention_heads: H.
        head_size: S.
        intermediate_size: of the unary boolean operator, or the feed-forward layers, unless it is matched.
        relation_intermediate_size: of the binary boolean operator, of a FOLNet.
        max_distance: of text: from here on all distances are alike.
        initializer_range: standard deviation of matrices and tables at the start; negative for sqrt(2 /
            (rows + columns)), with which models of this size learn many times faster than with BERT's 0.02.
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
        held_out_pairs: how many compositions of two relations training never shows; problems that need them
            are then tests of their own.
        held_out_chains: part of all chains of three relations that training never shows; likewise.
        held_out_seed: which.
        inverses: of a graph, whether each fact also stands at the pair turned round, as its own relation.
        spread: of facts written out and of text: whether there are gaps of random length between facts, so
            that a test has no positions and distances that were never met in training.
        pool: training problems drawn before the start, of which each batch takes some at random; 0 draws new
            ones for each batch, some 10,000 a second, for which an accelerator would wait.
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

    def held_out(self) -> kinship.HeldOut:
        """What training never shows; ValueError for a number out of range."""
        found, seed = kinship.NOTHING, self.held_out_seed
        if self.held_out_pairs:
            with naming("data.held_out_pairs"):
                found = kinship.HeldOut.draw_pairs(seed, self.held_out_pairs)
        if self.held_out_chains:
            with naming("data.held_out_chains"):
                chains = kinship.HeldOut.draw_chains(seed, 3, self.held_out_chains).chains
                found = dataclasses.replace(found, chains=chains)
        return found

    def train(self, seed: int) -> kinship.Kinship:
        """Endless problems to learn from; ValueError naming what does not fit."""
        return self._source("train_lengths", seed, self.train_lengths, "seen")

    def tests(self) -> Iterator[tuple[str, kinship.Kinship]]:
        """The problems of each k, "k", and of those that need what is held out, "held_out/k"; see `train`."""
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
        distractors = {kind: getattr(self, kind) for kind in kinship.DISTRACTORS}
        with naming(f"data.{name}={getattr(self, name)}, with the rest of data"):
            return kinship.Kinship(seed, lengths, **distractors, held_out=held_out, part=part)

    def validate(self) -> None:
        """Checks all fields; ValueError naming what is wrong."""
        runtime.one_of("data.form", self.form, FORMS)
        for name, least in {"test_problems": 1, "held_out_seed": 0, "pool": 0}.items():
            runtime.at_least(f"data.{name}", getattr(self, name), least)
        for name in ("train_lengths", "test_lengths"):
            lengths = getattr(self, name)
            if not lengths or sorted(set(lengths)) != list(lengths):
                raise ValueError(f"data.{name}={lengths} must be some lengths, growing, such as (2, 3)")
        self.largest()  # makes all problems, and so refuses what does not fit

    def room(self, source: kinship.Kinship) -> Room:
        """People and facts of the largest of some problems."""
        facts = max(source.lengths) + 2 * self.supporting + self.irrelevant + self.disconnected
        return Room(source.max_people, facts)

    def largest(self) -> Room:
        """People and facts of the largest problem of training and tests."""
        rooms = [self.room(source) for source in (self.train(0), *dict(self.tests()).values())]
        return Room(*map(max, zip(*rooms, strict=True)))
