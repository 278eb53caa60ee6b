"""Exact match against answers compared as text, and against the definition of a baseline."""

import collections
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mathematics import measures, train
from experiments.mathematics.load import Trained
from tests.experiments.mathematics.small import small, talkative, with_data
from tp_transformer import beam_search, mathematics
from tp_transformer.mathematics.sources import Listed

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
def test_exact_match_is_that_of_answers_as_text(trained):
    config, model, params = trained
    source = config.data.open()
    batches = measures.test_batches(config, source, 0)
    for way in (measures.by_forcing, measures.by_decoding):
        scores = measures.measure(way(model), params, batches)["interpolate"]
        for module in config.data.modules:
            questions, answers = zip(*source.questions("interpolate", module), strict=True)
            given = Trained(model, params).answer(questions)
            assert scores.modules[module] == (sum(map(str.__eq__, given, answers)), 30)
        assert 0 < sum(share.right for share in scores.modules.values()) < 60


def test_both_ways_find_the_answers_that_the_model_gives_itself():
    """Its own answers, if they end, are right, and wrong with any one symbol changed, whatever is asked.

    Neither way has dropout, and none sees the symbol that it is asked for. Answers begin and end with the
    vocabulary's symbols, and nothing follows the end but padding.
    """
    vocabulary = mathematics.Vocabulary("0123456789abcdefghij", pad=2, start=0, end=3, first=4)
    trained = talkative(vocabulary, boost=3.0, dropout_rate=0.3)
    model, params = trained.model, trained.params
    rng = np.random.default_rng(0)
    source = rng.integers(4, model.vocab_size, (48, 12)).astype(np.int32)
    source[::3, 7:] = 2
    numbers = np.arange(48, dtype=np.int32)
    batch = mathematics.Batch(source, np.full((48, 32), 4, np.int32), 0 * numbers, numbers)
    answers = np.array(measures.answered(model, params, batch)[0])
    assert answers.shape == (48, 32)  # a start symbol, at most thirty characters and the end
    np.testing.assert_array_equal(answers[:, 0], 0)
    expected = (answers == 3).any(1)
    lengths = (answers != 2).sum(1)
    for row, length in zip(answers, lengths, strict=True):
        np.testing.assert_array_equal(row[length:], 2)
        assert not np.any(row[: length - 1] == 3)
    for row in range(0, 48, 2):
        place = rng.integers(1, max(lengths[row], 2))
        answers[row, place] = 4 + (answers[row, place] - 3) % (model.vocab_size - 4)
        expected[row] = False
    batch = batch._replace(target=answers)
    for way in (measures.by_forcing, measures.by_decoding):
        np.testing.assert_array_equal(way(model)(params, batch), expected)
    assert 5 < expected.sum() < 24
    assert len(set(lengths[expected].tolist())) > 2


def test_beams_begin_and_end_with_the_vocabularys_symbols():
    vocabulary = mathematics.Vocabulary("0123456789", pad=2, start=0, end=3, first=4)
    trained = talkative(vocabulary)
    found = beam_search(
        trained.model, trained.params, trained.encode(["12"]), max_length=31, start=0, end=3, beams=4
    )
    assert np.any(np.asarray(found.tokens) == vocabulary.end)
    texts, probabilities = zip(*trained.beam("12", 4), strict=True)
    assert texts == tuple(map(vocabulary.decode, np.asarray(found.tokens)[0]))
    np.testing.assert_allclose(probabilities, np.exp(found.log_probabilities[0]), rtol=1e-5)
    assert list(probabilities) == sorted(probabilities, reverse=True)
    assert 0 < sum(probabilities) <= 1


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


def test_every_extrapolation_module_extends_one_of_training():
    answers = dict.fromkeys(mathematics.MODULES, "")
    for module in mathematics.EXTRAPOLATION_MODULES:
        extended = measures.nearest(module, answers)
        suffix = module.removeprefix(extended)
        assert extended in mathematics.MODULES
        assert suffix in ("", "_big", "_longer", "_more", "_more_samples")
    assert measures.nearest("numbers__other", answers) == ""


def test_a_sample_is_evenly_spaced_and_never_more_than_there_is():
    source = small().data.open()
    whole = list(source.questions("interpolate", "numbers__is_factor"))
    assert list(measures.Sampled(source, 4).questions("interpolate", "numbers__is_factor")) == whole[::3]
    five = list(measures.Sampled(source, 5).questions("interpolate", "numbers__is_factor"))
    assert five == [whole[index] for index in (0, 2, 4, 7, 9)]
    assert measures.Sampled(source, 4).modules("interpolate") == source.modules("interpolate")
    assert list(measures.Sampled(source, 1).questions("interpolate", "numbers__is_factor")) == whole[:1]
    for count in (0, 12, 100):
        assert list(measures.Sampled(source, count).questions("interpolate", "numbers__is_factor")) == whole


def test_held_back_questions_are_measured_and_never_trained_on():
    """Evenly spaced, so of all levels."""
    config = with_data(validation=50)
    source, modules = config.data.open(), config.data.modules
    held = measures.test_batches(config, source, 0)[measures.VALIDATION]
    assert (held.modules, held.num_questions) == (modules, 100)
    texts = [held.question(index).question for index in range(100)]
    whole = {name: list(source.questions("train", name)) for name in modules}
    assert texts == [pair.question for name in modules for pair in whole[name][::3]]
    batches = train.training_batches(config, source)
    asked = [batches.question(index) for index in range(batches.num_questions)]
    assert asked == [pair for name in modules for pair in whole[name] if pair.question not in texts]
    assert len(measures.test_batches(config, source, 4)[measures.VALIDATION]) == 2
    kept = measures.held_back(config, source)
    assert list(kept.questions("interpolate", modules[0])) == list(
        source.questions("interpolate", modules[0])
    )
    assert kept.modules("interpolate") == kept.modules(measures.VALIDATION) == source.modules("train")
    commonest = measures.commonest_answers(config, source)
    for name in modules:
        counts = collections.Counter(pair.answer for pair in kept.questions("train", name))
        assert counts[commonest[name]] == max(counts.values())
    assert measures.held_back(with_data(), source) is source


class Twice:
    """A set whose texts are each in it twice."""

    def modules(self, split):
        return ("own",)

    def questions(self, split, module):
        return Listed(mathematics.Question(f"{number % 6}", f"{number}") for number in range(12))


@pytest.mark.parametrize("count", [11, 12, 50])
def test_something_is_left_to_learn_from(count):
    """Although fewer may be held back, since no text of these is learned from."""
    kept = measures.HeldBack(Twice(), "train", count)
    message = (
        f"data.validation: got {count}, expected fewer than the 12 questions of train in own, .* none is"
    )
    with pytest.raises(ValueError, match=message):
        kept.questions("train", "own")
    assert len(kept.questions("interpolate", "own")) == 12


def test_a_text_that_is_held_back_is_not_trained_on_elsewhere():
    kept = measures.HeldBack(Twice(), "train", 2)
    assert [pair.question for pair in kept.questions(measures.VALIDATION, "own")] == ["0", "0"]
    kept = measures.HeldBack(Twice(), "train", 3)
    assert [pair.answer for pair in kept.questions(measures.VALIDATION, "own")] == ["0", "4", "8"]
    assert [pair.answer for pair in kept.questions("train", "own")] == ["1", "3", "5", "7", "9", "11"]
    assert len(kept.questions("interpolate", "own")) == 12


def test_test_questions_longer_than_those_trained_on_have_room():
    assert measures.with_room(((36, 8), (54, 8))) == ((36, 8), (54, 8), (162, 32))
    assert measures.with_room(mathematics.BUCKETS) == mathematics.BUCKETS
    assert measures.with_room(((54, 8), (100, 33), (163, 8), (300, 40))) == ((54, 8), (162, 32))


def test_bits_are_those_of_the_right_answers():
    """Per symbol of each module's answers with their ends, whatever the batches."""
    config = small()
    model, source = config.model.make(), config.data.open()
    params = train.make_init(model)(jax.random.key(0))
    found = measures.bits(model, params, measures.test_batches(config, source, 5))
    for split, names in config.data.test_modules(source).items():
        assert list(found[split]) == list(names)
        for name in names:
            lost = count = 0.0
            for question in measures.Sampled(source, 5).questions(split, name):
                asked, answer = (mathematics.DEFAULT.encode(text)[None] for text in question)
                scores = measures.logits(model, params, jnp.asarray(asked), jnp.asarray(answer[:, :-1]))
                log = jax.nn.log_softmax(scores)[0]
                lost -= float(log[np.arange(len(log)), answer[0, 1:]].sum()) / np.log(2)
                count += len(log)
            assert found[split][name] == pytest.approx(lost / count, rel=1e-4)


def test_a_model_without_an_end_symbol_cannot_be_measured():
    with pytest.raises(ValueError, match="model: got end None, expected the id of the end symbol"):
        measures.end_of(small().model.make().clone(end=None))


def test_a_summary_has_the_interval_of_every_module():
    config = small()
    answers = dict.fromkeys(config.data.modules, "1")
    batches = measures.test_batches(config, config.data.open(), 0)["interpolate"]
    record = measures.summarize({"interpolate": measures.always(answers, batches)})
    assert list(record["interpolate"]["modules"]) == list(config.data.modules)
    for entry in record["interpolate"]["modules"].values():
        low, high = entry["interval"]
        n, share, z = 12, entry["right"] / 12, 1.959964
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        assert (low, high) == pytest.approx((max(0, middle - half), middle + half), abs=1e-6)
        assert entry["total"] == n


@pytest.mark.parametrize(("rows", "axes"), [(8, ("data",)), (6, ())])
def test_batches_are_spread_over_devices_if_they_divide(monkeypatch, rows, axes):
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    monkeypatch.setattr(measures.runtime.Layout, "mesh_to_measure", lambda self: mesh)
    monkeypatch.setattr(measures.jax, "device_put", lambda arrays, sharding: [*arrays, sharding])
    numbers = np.arange(rows)
    batch = mathematics.Batch(numbers[:, None], numbers[:, None] + 1, numbers, numbers)
    placed: Any = measures.spread(batch)
    source, target, sharding = placed
    assert (source[0, 0], target[0, 0]) == (0, 1)
    assert (sharding.mesh, tuple(sharding.spec)) == (mesh, axes)


def test_modules_of_which_no_question_was_asked_are_left_out(monkeypatch):
    """As in one of several processes, whose batches have others."""
    config = small(eval_batch_size=1)
    tests = measures.test_batches(config, config.data.open(), 0)
    monkeypatch.setattr(
        measures.processes, "share", lambda batches: [batch for batch in batches if batch.module[0] == 1]
    )
    scores = measures.measure(lambda params, batch: jax.numpy.asarray(batch.index >= 0), None, tests)[
        "interpolate"
    ]
    assert scores.modules == {config.data.modules[1]: (12, 12)}


def test_a_batch_of_any_size_can_be_measured():
    config = with_data(buckets=("162x32",))
    source = config.data.open()

    def right(params, batch):
        assert params == "params"
        return batch.index % 3 == 0

    scores = [
        measures.measure(right, "params", measures.test_batches(other, source, 0))
        for other in (config, dataclasses.replace(config, eval_batch_size=7))
    ]
    assert scores[0] == scores[1]
    assert scores[0]["interpolate"].average == pytest.approx(1 / 3)
