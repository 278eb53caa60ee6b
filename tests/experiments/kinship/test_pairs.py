"""Models that answer from the question's pair of people: their logits, their loss, a run."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import export

from experiments.kinship import measures, pairs, train
from experiments.kinship.parts import PairConfig
from folnet import kinship
from tests.experiments.kinship.small import LOOPED, looped
from tests.folnet import small as small_folnet

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_nothing_but_query_tells_what_is_asked():
    """Other questions about the same facts are the same inputs: one pass answers them all."""
    config = looped()
    batch = train.make_batches(config)(0)
    assert set(batch) == {"input_ids", "attention_mask", "relation_ids", "labels", "query", "pairs"}
    assert batch["input_ids"].max() < kinship.arrays.FIRST
    assert batch["relation_ids"].max() < kinship.QUERY
    rows = np.arange(4)
    assert (
        batch["pairs"][rows, batch["query"][:, 0], batch["query"][:, 1]] == pairs.ASKED[batch["labels"]]
    ).all()


def test_labels_of_people_with_themselves_are_a_setting():
    """Of all models that learn from pairs, whatever they read."""
    for model, people in (("j.at", "alike"), ("rgcn", "named"), ("bert_pre", "named")):
        for selves in (False, True):
            pair = dataclasses.replace(LOOPED, people=people, injection=0.0, selves=selves)
            batch = train.make_batches(looped(model=model, pairs=pair))(0)
            place = batch["query"][:, :1]
            diagonal = np.take_along_axis(np.diagonal(batch["pairs"], axis1=1, axis2=2), place, axis=1)
            assert (diagonal == (kinship.UNRELATED if selves else -1)).all()


def test_training_problems_have_distractors_and_tests_have_none():
    config = looped()
    people = [problem.num_people for problem in config.data.train(0).draw(range(30))]
    assert max(people) == 6
    assert min(people) == 3
    for length, (_, source) in zip((2, 3, 4), config.data.tests(), strict=True):
        assert {problem.num_people for problem in source.draw(range(10))} == {length + 1}


def test_the_loss_is_that_of_the_question_and_of_the_labelled_pairs():
    """Against a sum over pairs one by one, in float64."""
    config = looped()
    batch = train.make_batches(config)(0)
    rng = np.random.default_rng(0)
    every = [rng.normal(size=(*batch["pairs"].shape, pairs.CLASSES)).astype(np.float32) for _ in range(3)]
    total = 0.0
    for logits in every[1:]:
        logs = logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))
        for row, labels in enumerate(batch["pairs"]):
            x, y = batch["query"][row]
            total -= logs[row, x, y, pairs.ASKED[batch["labels"][row]]] / 2
            of_pairs = [-logs[row, i, j, labels[i, j]] for i, j in np.argwhere(labels >= 0)]
            total += np.mean(of_pairs) / 2
    ways = config.pairs, dataclasses.replace(config.pairs, supervised=False)
    sums, alone = jax.jit(lambda e, b: tuple(pairs.loss(e, b, way) for way in ways))(every, batch)
    np.testing.assert_allclose(sums.numerator, total, rtol=1e-5)
    asked = every[-1][np.arange(4), batch["query"][:, 0], batch["query"][:, 1]][:, pairs.ASKED]
    right = (asked.argmax(-1) == batch["labels"]).sum()
    assert float(sums.metrics["accuracy"][0]) == right
    assert float(alone.numerator) < float(sums.numerator)


def test_any_number_of_questions_can_be_exported():
    (batch,) = export.symbolic_shape("b")
    shapes = jax.ShapeDtypeStruct((batch, 3, 3, 5), "float32"), jax.ShapeDtypeStruct((batch, 2), "int32")
    logits = np.random.default_rng(0).normal(size=(2, 3, 3, 5)).astype(np.float32)
    found = export.export(jax.jit(pairs.asked))(*shapes).call(logits, np.array([[2, 1], [0, 2]], np.int32))
    np.testing.assert_array_equal(found, logits[[0, 1], [2, 0], [1, 2]])


def test_a_test_loops_more_often_than_training():
    """Logits of the classes are those of the question's pair after `test_loops` loops."""
    config = looped()
    model, batch = config.make("j.at"), train.make_batches(config)(0)
    params = small_folnet.draw_like(jax.eval_shape(train.make_init(model), jax.random.key(0)))

    @small_folnet.quickly
    def both(params):
        return measures.apply(model, params, batch, num_loops=3), measures.logits(model, params, batch)

    every, found = jax.device_get(both(params))
    want = every[2][np.arange(4), batch["query"][:, 0], batch["query"][:, 1]][:, pairs.ASKED]
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert np.abs(every[2] - every[1]).max() > 1e-3
    assert len(jax.eval_shape(lambda: measures.apply(model, params, batch))) == 2


def test_batches_say_how_many_loops_go_ahead():
    """A number for each step, the same in all rows, from 0 to `ahead`; problems are those without it."""
    config = looped(pairs=dataclasses.replace(LOOPED, ahead=3))
    found, plain = train.make_batches(config), train.make_batches(looped())
    numbers = [found(step)["ahead"] for step in range(30)]
    assert all((number == number[0]).all() and number.shape == (4,) for number in numbers)
    assert {int(number[0]) for number in numbers} == {0, 1, 2, 3}
    np.testing.assert_array_equal(found(2)["relation_ids"], plain(2)["relation_ids"])


def test_the_first_loop_is_taught_if_others_went_ahead():
    config = looped()
    batch = train.make_batches(config)(0)
    rng = np.random.default_rng(0)
    every = [rng.normal(size=(*batch["pairs"].shape, pairs.CLASSES)).astype(np.float32) for _ in "ab"]

    @jax.jit
    def losses(one, two):
        given = (([one], 0), ([two], 0), ([one, two], 0), ([one, two], 1))
        return [pairs.loss(logits, batch, config.pairs, ahead).numerator for logits, ahead in given]

    first, second, without, after = map(float, losses(*every))
    assert without == pytest.approx(second)
    assert after == pytest.approx((first + second) / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": PairConfig(read=True, loops=0)}, r"pairs\.loops: got 0"),
        ({"pairs": PairConfig(read=True, sharpness=0.0)}, r"pairs\.sharpness: got 0"),
        ({"pairs": PairConfig(loops=2)}, r"pairs\.read: got False, expected True"),
        ({"model": "t5"}, r"pairs\.people: got 'alike', expected names or marks with the model 't5'"),
        ({"pairs": PairConfig(read=True, people="all")}, r"pairs\.people: got 'all'"),  # pyrefly: ignore
        (
            {"pairs": PairConfig(read=True, people="marked", supervised=True)},
            r"pairs\.supervised: got True, expected False where the question is marked",
        ),
        (
            {"pairs": PairConfig(read=True, selves=True)},
            r"pairs\.selves: got True, expected False without pairs\.supervised",
        ),
        ({"model": "rgcn", "pairs": PairConfig()}, "model: got 'rgcn', expected a FOLNet's operators"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(looped(), **changes).validate()
