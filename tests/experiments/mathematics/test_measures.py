"""Exact match against answers compared as text, and against the definition of a baseline."""

import collections

import jax
import numpy as np
import pytest

from experiments.mathematics import measures, train
from experiments.mathematics.load import Trained
from tests.experiments.mathematics.small import small, with_data
from tp_transformer import mathematics

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def trained():
    """A model after a few steps, so that it gets some answers right."""
    config = with_data(train=300, test=30)
    config.eval_batch_size = 20
    config.steps, config.batch_size, config.lr = 60, 32, 2e-2
    config.log_every = config.checkpoint_every = config.eval_every = 60
    return config, config.model.make(), train.main(config, workdir=None)["tp_transformer"].params


@pytest.mark.slow
@pytest.mark.parametrize("way", [measures.by_forcing, measures.by_decoding])
def test_exact_match_is_that_of_answers_as_text(trained, way):
    config, model, params = trained
    source = config.data.open()
    scores = measures.measure(way(model), params, measures.test_batches(config, source, 0))["interpolate"]
    for module in config.data.modules:
        questions, answers = zip(*source.questions("interpolate", module), strict=True)
        given = Trained(model, params).answer(questions)
        assert scores.modules[module] == (sum(map(str.__eq__, given, answers)), 30)
    assert 0 < sum(share.right for share in scores.modules.values()) < 60


def test_always_the_commonest_answer_is_what_a_count_says():
    config = with_data(extrapolation=("numbers__place_value_big",))
    source = config.data.open()
    answers = measures.commonest_answers(config, source)
    batches = measures.test_batches(config, source, 0)
    for module in config.data.modules:
        counts = collections.Counter(pair.answer for pair in source.questions("train", module))
        assert counts[answers[module]] == max(counts.values())
        found = measures.always(answers, batches["interpolate"]).modules[module]
        asked = [pair.answer for pair in source.questions("interpolate", module)]
        assert found == (asked.count(answers[module]), len(asked))
    big = measures.always(answers, batches["extrapolate"]).modules["numbers__place_value_big"]
    asked = [pair.answer for pair in source.questions("extrapolate", "numbers__place_value_big")]
    assert big == (asked.count(answers["numbers__place_value"]), len(asked))


@pytest.mark.parametrize("module", mathematics.EXTRAPOLATION_MODULES)
def test_every_extrapolation_module_extends_one_of_training(module):
    answers = dict.fromkeys(mathematics.MODULES, "")
    assert measures.nearest(module, answers) in mathematics.MODULES


def test_a_sample_is_evenly_spaced_and_never_more_than_there_is():
    source = small().data.open()
    whole = list(source.questions("interpolate", "numbers__is_factor"))
    assert list(measures.Sampled(source, 4).questions("interpolate", "numbers__is_factor")) == whole[::3]
    for count in (0, 12, 100):
        assert list(measures.Sampled(source, count).questions("interpolate", "numbers__is_factor")) == whole


def test_test_questions_longer_than_those_trained_on_have_room():
    assert measures.with_room(((36, 8), (54, 8))) == ((36, 8), (54, 8), (162, 32))
    assert measures.with_room(mathematics.BUCKETS) == mathematics.BUCKETS
    assert measures.with_room(((200, 8), (300, 40))) == ((162, 32),)


def test_a_summary_has_the_interval_of_every_module():
    config = small()
    answers = dict.fromkeys(config.data.modules, "1")
    batches = measures.test_batches(config, config.data.open(), 0)["interpolate"]
    record = measures.summarize({"interpolate": measures.always(answers, batches)})
    assert list(record["interpolate"]["modules"]) == list(config.data.modules)
    for entry in record["interpolate"]["modules"].values():
        low, high = entry["interval"]
        assert 0 <= low <= entry["right"] / entry["total"] <= high <= 1


def test_a_batch_of_any_size_can_be_measured():
    config = small(eval_batch_size=7)
    model = config.model.make()
    params = jax.jit(train.make_init(model))(jax.random.key(0))
    source = config.data.open()
    scores = [
        measures.measure(measures.by_forcing(model), params, measures.test_batches(other, source, 0))
        for other in (config, small(eval_batch_size=4))
    ]
    assert scores[0] == scores[1]
    assert np.isfinite(scores[0]["interpolate"].average)
