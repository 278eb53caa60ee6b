"""Batches for training and evaluation: contents, shapes, hosts, Grain."""

import pickle

import jax
import numpy as np
import pytest

from tp_transformer.mathematics.batches import Batch, Batches
from tp_transformer.mathematics.order import WHOLE
from tp_transformer.mathematics.sources import Generator
from tp_transformer.mathematics.vocabulary import DEFAULT, END, PAD, START, Vocabulary

SET = Generator(
    train=300,
    test=50,
    names=("numbers__place_value", "arithmetic__mixed", "comparison__pair"),
    extrapolation=(),
)


def _equal(one: Batch, other: Batch) -> bool:
    return all(a.shape == b.shape and (a == b).all() for a, b in zip(one, other, strict=True))


def test_rows_are_questions():
    """Every row encodes a question of its module and the answer, between start and end."""
    batches = Batches(SET, "train", batch_size=32)
    assert batches.modules == ("arithmetic__mixed", "comparison__pair", "numbers__place_value")
    assert batches.num_questions == 900
    seen = set()
    for batch in batches:
        assert isinstance(batch, Batch)
        for source, target, module, index in zip(*batch, strict=True):
            question, answer = batches.question(index)
            assert DEFAULT.decode(source) == question
            assert DEFAULT.decode(target) == answer
            assert source[0] == target[0] == START
            assert source[len(question) + 1] == target[len(answer) + 1] == END
            assert (source[len(question) + 2 :] == PAD).all()
            assert (target[len(answer) + 2 :] == PAD).all()
            questions = SET.questions("train", batches.modules[module])
            assert (question, answer) == questions[int(index) - 300 * int(module)]
            seen.add(int(index))
    assert len(seen) == len(batches) * 32 == 896


def test_few_shapes():
    """There are at most as many shapes as buckets, in every epoch."""
    batches = Batches(SET, "train", batch_size=16, buckets=((40, 12), (80, 20), *WHOLE))
    shapes = {(batches[step].source.shape, batches[step].target.shape) for step in range(3 * len(batches))}
    assert shapes <= {((16, s), (16, t)) for s, t in ((40, 12), (80, 20), (162, 32))}
    assert len(shapes) > 1
    assert len({batch.source.shape for batch in Batches(SET, "train", batch_size=16, buckets=WHOLE)}) == 1


def test_a_batch_is_a_pytree_of_small_integers():
    """Batches can be passed to a device directly."""
    leaves = jax.tree.leaves(Batches(SET, "train", batch_size=4)[0])
    assert len(leaves) == 4
    assert all(leaf.dtype == np.int32 and leaf.shape[0] == 4 for leaf in leaves)


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_share_each_batch(hosts):
    """Hosts' rows make up one batch of one shape; no question of an epoch reaches two hosts."""
    whole = Batches(SET, "train", batch_size=32, seed=3)
    parts = [
        Batches(SET, "train", batch_size=32, seed=3, process_index=i, process_count=hosts)
        for i in range(hosts)
    ]
    assert {len(part) for part in parts} == {len(whole)}
    for step in (0, 1, len(whole) + 5):
        rows = [part[step] for part in parts]
        assert _equal(whole[step], Batch(*(np.concatenate(leaves) for leaves in zip(*rows, strict=True))))
    seen = [{int(index) for batch in part for index in batch.index} for part in parts]
    assert sum(map(len, seen)) == len(set.union(*seen)) == 32 * len(whole)


def test_the_seed_is_that_of_the_order():
    """Another seed, another order; without shuffling, questions come as the source has them."""
    first, again, other = (Batches(SET, "train", batch_size=32, seed=seed)[0] for seed in (0, 0, 1))
    assert _equal(first, again)
    assert not _equal(first, Batches(SET, "train", batch_size=32)[1])
    assert not _equal(first, other)
    assert _equal(first, Batches(SET, "train", batch_size=32)[0])
    still = Batches(SET, "train", batch_size=32, buckets=WHOLE, shuffle=False)
    assert len(still) == 28  # the last batch of four is left out
    np.testing.assert_array_equal(still[1].index, np.arange(32, 64))
    np.testing.assert_array_equal(still[9].module, [0] * 12 + [1] * 20)


def test_evaluation_has_every_question_once():
    """The last batch is filled with rows that have no question and do not affect the loss."""
    batches = Batches(SET, "interpolate", batch_size=64, shuffle=False, keep_last=True)
    everything = list(batches)
    assert sum(batch.valid.sum() for batch in everything) == 150
    indices = np.concatenate([batch.index[batch.valid] for batch in everything])
    assert sorted(indices.tolist()) == list(range(150))
    last = everything[-1]
    assert not last.valid.all()
    empty = ~last.valid
    assert (last.target[empty, 1:] == PAD).all()
    assert (last.source[empty, :2] == (START, END)).all()
    assert (last.source[empty, 2:] == PAD).all()


def test_grain_gives_the_same_and_resumes(caplog):
    """Batches come in the order of steps, beyond an epoch; a saved state resumes at the next one."""
    batches = Batches(SET, "train", batch_size=64)
    dataset = batches.dataset(threads=3)
    iterator = iter(dataset)
    count = len(batches) + 4
    got = [next(iterator) for _ in range(count)]
    assert all(_equal(batch, batches[step]) for step, batch in enumerate(got))
    state = iterator.get_state()
    following = [next(iterator) for _ in range(3)]
    resumed = iter(batches.dataset(threads=1))
    resumed.set_state(state)
    assert all(_equal(next(resumed), batch) for batch in following)
    assert len(list(batches.dataset(7))) == 7
    assert list(batches.dataset(0)) == []
    assert len(list(batches.dataset(7, threads=3, ahead=1))) == 7
    assert not caplog.records, "Grain warns of threads that can have no batch"


def test_state_is_the_same_on_all_hosts():
    """A checkpoint of one host works on all hosts, and for another number of hosts."""
    states = []
    for index in range(2):
        part = Batches(SET, "train", batch_size=8, process_index=index, process_count=2)
        iterator = iter(part.dataset())
        next(iterator)
        states.append(iterator.get_state())
    assert states[0] == states[1]
    alone = iter(Batches(SET, "train", batch_size=8).dataset())
    alone.set_state(states[0])
    assert _equal(next(alone), Batches(SET, "train", batch_size=8)[1])


def test_travels_to_another_process():
    """Batches can be pickled for Grain's workers."""
    batches = Batches(SET, "train", batch_size=8)
    assert _equal(pickle.loads(pickle.dumps(batches))[5], batches[5])


def test_own_vocabulary_and_modules():
    """Uses the authors' ids and a single module."""
    vocabulary = Vocabulary.released()
    batches = Batches(SET, "train-hard", ["comparison__pair"], batch_size=5, vocabulary=vocabulary)
    assert batches.num_questions == 100
    batch = batches[0]
    assert set(batch.source[:, 0]) == {vocabulary.start}
    assert vocabulary.decode(batch.source[2]) == batches.question(batch.index[2]).question


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "train", "modules": ["comparison__pairs"]}, "a known name such as comparison__pair"),
        ({"split": "test"}, "split: got 'test'"),
        ({"split": "extrapolate"}, "source: got no module of extrapolate"),
        ({"process_index": 2, "process_count": 2}, r"process_index: got 2, expected 0 to 1"),
        ({"process_index": -1}, "process_index: got -1, expected 0 to 0"),
        ({"batch_size": 9, "process_count": 2}, "batch_size: got 9, expected a multiple of process_count=2"),
        ({"batch_size": 1000}, "batch_size: got 1000, expected at most 900, all questions"),
        ({"buckets": ((30, 10),)}, "buckets: got .* expected room for question"),
    ],
)
def test_refusals(arguments, message):
    """Errors are raised when batches are planned."""
    split = arguments.pop("split", "train")
    modules = arguments.pop("modules", None)
    with pytest.raises(ValueError, match=message):
        Batches(SET, split, modules, **({"batch_size": 8} | arguments))


def test_dataset_refusals():
    """Invalid numbers of threads and steps are rejected."""
    batches = Batches(SET, "train", batch_size=8)
    for name, value, least in (("threads", 0, 1), ("ahead", 0, 1), ("workers", -1, 0)):
        with pytest.raises(ValueError, match=f"{name}: got {value}, expected at least {least}"):
            batches.dataset(**{name: value})
    with pytest.raises(ValueError, match=r"steps: got .*, expected at least 0"):
        batches.dataset(-1)
