"""The parts of `config.Config`: the sizes of models and the problems."""

import contextlib
import dataclasses
from collections.abc import Generator, Iterator
from typing import Any, Final, Literal, get_args

from experiments import runtime
from experiments.kinship.inputs import Room, Source
from folnet import kinship
from folnet.kinship.splits import targets
from folnet.tasks.clutrr_graphs import Published
from folnet.tasks.clutrr_joined import Joined

BERT, T5, RELATION_AWARE = "bert", "t5", "relation_aware"
TRANSFORMERS = (BERT, T5, RELATION_AWARE)
BERT_PRE, RGCN, EDGE_TRANSFORMER = "bert_pre", "rgcn", "edge_transformer"
ENCODERS = (BERT, BERT_PRE, T5, RELATION_AWARE, RGCN, EDGE_TRANSFORMER)
"""Models besides FOLNets that can answer for pairs (`encoders`); BERT_PRE normalizes before each layer."""
WITHOUT_RELATIONS = (BERT, BERT_PRE, T5)
"""Models that cannot take relations between pairs, so they read a graph as tokens."""
GRAPH: Final = "graph"
TEXT: Final = "text"
Form = Literal["graph", "text"]
ALIKE, NAMED, MARKED = "alike", "named", "marked"
TEST_SEED = 2**31
"""Test problems have this seed or larger ones, training problems smaller ones."""


@contextlib.contextmanager
def naming(field: str) -> Generator[None]:
    """Prefixes the message of a `ValueError` raised inside with the name of a field."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error


@dataclasses.dataclass
class SizeConfig:
    """Sizes shared by all models; see `folnet.FOLNetConfig` for the fields.

    Attributes:
        hidden_size: D1.
        relation_size: D2 (FOLNet only).
        num_hidden_layers: L.
        num_attention_heads: H.
        head_size: S.
        intermediate_size: width of the unary boolean operator or the feed-forward layers, unless matched.
        relation_intermediate_size: width of the binary boolean operator (FOLNet only).
        max_distance: for text, the distance from which on all distances are treated alike.
        initializer_range: initial standard deviation of matrices and embeddings; if negative, sqrt(2 / (rows
            + columns)), with which models of this size learn many times faster than with BERT's 0.02.
        hidden_dropout_prob: dropout of base atoms and conclusions.
        attention_probs_dropout_prob: dropout of kernels.
        dtype: dtype of the computation; parameters are float32.
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
class PairConfig:
    """How models answer from the question's pair of people instead of their first token.

    Attributes:
        read: whether they do, and say what everyone is to everyone.
        people: how tokens tell people apart. "alike": not at all; "named": by names, drawn at random for each
            problem; "marked": tokens and a relation mark the question's two people.
        supervised: whether a model learns from all pairs that at most max(train_lengths) facts connect, not
            from the question alone.
        selves: whether these pairs include a person with themselves, who are not their own relative.
        loops: how often the layers are applied, with the same weights; see `folnet.looped`.
        ahead: the largest number of loops before these in training, a random one for each batch, whose
            gradient is not taken.
        test_loops: number of loops in tests; 0 for `loops`.
        injection: how much of the given facts a FOLNet adds before each loop.
        sharpness: the largest logit of a relation's likeness to its base atom in a FOLNet.
    """

    read: bool = runtime.added(False)
    people: Literal["alike", "named", "marked"] = runtime.added("alike")
    supervised: bool = runtime.added(False)
    selves: bool = runtime.added(False)
    loops: int = runtime.added(1)
    ahead: int = runtime.added(0)
    test_loops: int = runtime.added(0)
    injection: float = runtime.added(0.0)
    sharpness: float = runtime.added(7.0)

    @property
    def loops_of_tests(self) -> int:
        """How often the layers are applied in tests."""
        return self.test_loops or self.loops

    def validate(self) -> None:
        """Checks all fields; raises ValueError for an invalid one."""
        runtime.at_least("pairs.loops", self.loops, 1)
        for name in ("ahead", "test_loops", "injection"):
            runtime.at_least(f"pairs.{name}", getattr(self, name), 0)
        if self.sharpness <= 0:
            raise ValueError(f"pairs.sharpness: got {self.sharpness}, expected more than 0")
        runtime.one_of("pairs.people", self.people, (ALIKE, NAMED, MARKED))
        if not self.read and self != PairConfig():
            raise ValueError("pairs.read: got False, expected True where another field of pairs is set")
        if self.selves and not self.supervised:
            raise ValueError("pairs.selves: got True, expected False without pairs.supervised")
        if self.supervised and self.people == MARKED:
            raise ValueError("pairs.supervised: got True, expected False where the question is marked")


@dataclasses.dataclass
class ReadingConfig:
    """The encoder of stories for models that answer for pairs; see `stories`. Without `pairs`, or for graphs,
    nothing is read.

    Attributes:
        vocabulary: maximum number of word pieces, learned from published training stories; all words of
            generated stories are pieces.
        window: T, the largest number of tokens of a window: [CLS] and two sentences, or one.
        windows: the largest number of windows of a story.
        hidden_size: D1.
        relation_size: D2 (FOLNet only).
        num_hidden_layers: L.
        num_attention_heads: H.
        head_size: S (FOLNet only).
        intermediate_size: width of the unary boolean operator or the feed-forward layers, unless matched.
        relation_intermediate_size: width of the binary boolean operator (FOLNet only).
        max_distance: the distance from which on all distances are treated alike (FOLNet only).
    """

    vocabulary: int = runtime.added(1500)
    window: int = runtime.added(40)
    windows: int = runtime.added(16)
    hidden_size: int = runtime.added(64)
    relation_size: int = runtime.added(8)
    num_hidden_layers: int = runtime.added(2)
    num_attention_heads: int = runtime.added(4)
    head_size: int = runtime.added(16)
    intermediate_size: int = runtime.added(128)
    relation_intermediate_size: int = runtime.added(16)
    max_distance: int = runtime.added(16)

    def validate(self) -> None:
        """Checks the fields that are not sizes of models; raises ValueError for an invalid one."""
        for name, least in {"vocabulary": 100, "window": 8, "windows": 1}.items():
            runtime.at_least(f"reading.{name}", getattr(self, name), least)

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the encoder, as fields of its settings."""
        own = ("vocabulary", "window", "windows")
        return {name: size for name, size in dataclasses.asdict(self).items() if name not in own}


@dataclasses.dataclass
class DataConfig:
    """The problems and the form in which models read them.

    Attributes:
        form: "graph" (people are tokens, facts are relations between pairs without an order; models that
            cannot take relations read the facts as tokens) or "text" (stories, for all models).
        train_lengths: numbers of facts in a training chain, k, all equally likely.
        test_lengths: numbers of facts k in the tests, with one set of problems each.
        supporting: supporting distractors per problem; see `folnet.kinship.Kinship` for all three kinds.
        irrelevant: distracting facts that lead to a person who does not matter.
        disconnected: distracting facts about other people.
        varied: whether a training problem has a random number of each of these, up to the given one, and a
            test problem none.
        held_out_pairs: number of compositions of two relations held out from training; problems that need
            them become separate tests.
        held_out_chains: fraction of all chains of three relations held out from training; likewise.
        held_out_seed: seed that selects the held-out compositions.
        inverses: for graphs, whether each fact is also given for the reversed pair, as its own relation.
        spread: for facts as tokens and for text, whether there are gaps of random length between facts, so
            that tests have no positions or distances that are new.
        pool: number of training problems drawn before the start, from which batches are sampled; 0 draws new
            ones for each batch, about 10,000 per second, which is too slow for an accelerator.
        test_problems: number of problems in each test.
        clutrr: folder of CLUTRR's files; the problems are then the published ones with these lengths, and a
            test has all of its problems. "" for generated problems.
        joined: whether half of the published training problems also have the facts of another one; see
            `folnet.tasks.clutrr_joined`. Otherwise training has all of them, whatever `pool` says.
    """

    form: Form = GRAPH
    train_lengths: tuple[int, ...] = (2, 3)
    test_lengths: tuple[int, ...] = tuple(kinship.LENGTHS)
    supporting: int = 0
    irrelevant: int = 0
    disconnected: int = 0
    varied: bool = runtime.added(False)
    held_out_pairs: int = 0
    held_out_chains: float = 0.0
    held_out_seed: int = 0
    inverses: bool = False
    spread: bool = True
    pool: int = 0
    test_problems: int = 200
    clutrr: str = runtime.added("")
    joined: bool = runtime.added(False)

    def held_out(self) -> kinship.HeldOut:
        """Returns the held-out compositions; raises ValueError for a number out of range."""
        found, seed = kinship.NOTHING, self.held_out_seed
        if self.held_out_pairs:
            with naming("data.held_out_pairs"):
                found = kinship.HeldOut.draw_pairs(seed, self.held_out_pairs)
        if self.held_out_chains:
            with naming("data.held_out_chains"):
                chains = kinship.HeldOut.draw_chains(seed, 3, self.held_out_chains).chains
                found = dataclasses.replace(found, chains=chains)
        return found

    def train(self, seed: int) -> Source:
        """Returns the training problems of a seed; raises ValueError if fields do not fit."""
        if self.clutrr:
            with naming("data"):
                source = Published(self.clutrr, self.train_lengths, seed=seed)
                return Joined(source) if self.joined else source
        return self._source("train_lengths", seed, self.train_lengths, "seen", training=True)

    def tests(self) -> Iterator[tuple[str, Source]]:
        """Yields the tests: "k" for each length, and "held_out/k" for problems with held-out compositions."""
        if self.clutrr:
            for length in self.test_lengths:
                with naming("data.test_lengths"):
                    source = Published(self.clutrr, self.train_lengths, "test", length, TEST_SEED + length)
                yield str(length), source
            return
        held_out = self.held_out()
        for length in self.test_lengths:
            yield str(length), self._source("test_lengths", TEST_SEED + length, (length,), "seen")
        for length in self.test_lengths if held_out else ():
            if targets(held_out, "held_out", length):
                seed = TEST_SEED + 100 + length
                yield f"held_out/{length}", self._source("test_lengths", seed, (length,), "held_out")

    def _source(
        self, name: str, seed: int, lengths: tuple[int, ...], part: kinship.Part, training: bool = False
    ) -> kinship.Kinship:
        held_out = self.held_out()
        part = part if held_out else "all"
        distractors: dict[str, Any] = {"varied": self.varied}
        if training or not self.varied:
            distractors |= {kind: getattr(self, kind) for kind in kinship.DISTRACTORS}
        with naming(f"data, with {name}={getattr(self, name)}"):
            return kinship.Kinship(seed, lengths, **distractors, held_out=held_out, part=part)

    def validate(self) -> None:
        """Checks all fields; raises ValueError for an invalid one."""
        runtime.one_of("data.form", self.form, get_args(Form))
        for name, least in {"test_problems": 1, "held_out_seed": 0, "pool": 0}.items():
            runtime.at_least(f"data.{name}", getattr(self, name), least)
        for name in ("train_lengths", "test_lengths"):
            lengths = getattr(self, name)
            if not lengths or sorted(set(lengths)) != list(lengths):
                raise ValueError(f"data.{name}: got {lengths}, expected increasing lengths, such as (2, 3)")
        if self.clutrr:
            plain = dict.fromkeys((*kinship.DISTRACTORS, "held_out_pairs", "held_out_chains"), 0)
            for name, expected in {**plain, "varied": False}.items():
                if (value := getattr(self, name)) != expected:
                    raise ValueError(
                        f"data.{name}: got {value!r}, expected {expected!r} with data.clutrr={self.clutrr!r}"
                    )
        elif self.joined:
            raise ValueError("data.joined: got True, expected False without data.clutrr")
        self.largest()  # constructs all problems, which checks the remaining fields

    def room(self, source: Source) -> Room:
        """Returns the maximum numbers of people and facts in the problems of a source."""
        return Room(source.max_people, source.max_facts)

    def largest(self) -> Room:
        """Returns the maximum numbers of people and facts in all training and test problems."""
        rooms = [self.room(source) for source in (self.train(0), *dict(self.tests()).values())]
        return Room(*map(max, zip(*rooms, strict=True)))
