"""The tasks of Deletang et al. against plain Python, and their score against sums computed by hand."""

import numpy as np
import pytest

from llrnn import tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ANSWERS = {  # alphabet, classes, and the answer to a string
    "parity": (2, 2, lambda s: [s.count(1) % 2]),
    "cycle_navigation": (3, 5, lambda s: [(s.count(2) - s.count(0)) % 5]),
    "reverse_string": (2, 2, lambda s: s[::-1]),
    "duplicate_string": (2, 2, lambda s: s + s),
    "odds_first": (2, 2, lambda s: s[1::2] + s[::2]),
    "bucket_sort": (5, 5, sorted),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_every_task_against_its_definition(draw, name):
    task = tasks.make(name)
    alphabet, classes, answer = ANSWERS[name]
    assert (task.fields, task.num_outputs) == ((alphabet + 1,), classes)
    assert task.train_lengths == (1, 40)
    assert task.test_lengths == tuple(range(41, 501))
    for length in (1, 2, 7, 20):
        batch = draw(task, length, batch_size=32, seed=length)
        size = 20 + len(answer([0] * 20))
        assert batch.tokens.shape == (32, size, 1)
        assert task.steps(20) == size
        for tokens, targets, mask in zip(
            batch.tokens[..., 0].tolist(), batch.targets, batch.mask, strict=True
        ):
            out = answer(tokens[:length])
            assert set(tokens[:length]) <= set(range(alphabet))
            assert tokens[length:] == [alphabet] * (size - length)
            assert targets[length : length + len(out)].tolist() == out
            assert np.flatnonzero(mask).tolist() == list(range(length, length + len(out)))


@pytest.mark.parametrize("name", ANSWERS)
def test_strings_are_uniform(draw_many, name):
    alphabet = ANSWERS[name][0]
    strings = draw_many(tasks.make(name), 20, 16, batch_size=32).tokens[:500, :20, 0]
    assert np.all(np.abs(np.bincount(strings.ravel()) - 10000 / alphabet) < 500)
    assert len(np.unique(strings, axis=0)) == 500


def test_larger_alphabets(draw):
    task = tasks.make("reverse_string", alphabet=6)
    batch = draw(task, 20, batch_size=4)
    assert (task.fields, task.num_outputs) == ((7,), 6)
    assert batch.tokens[:, :20].max() == 5
    np.testing.assert_array_equal(batch.targets[:, 20:], batch.tokens[:, 19::-1, 0])
    walk = tasks.make("cycle_navigation", cycle=3)
    batch = draw(walk, 20, batch_size=64)
    np.testing.assert_array_equal(batch.targets[:, 20], (batch.tokens[:, :20, 0] - 1).sum(axis=1) % 3)
    assert walk.num_outputs == 3
    assert tasks.make("cycle_navigation", cycle=2).num_outputs == 2


def test_score_is_the_mean_over_41_to_500():
    accuracies = dict.fromkeys(range(41, 501), 0.5)
    assert tasks.deletang_score(accuracies) == pytest.approx(0.5)
    assert tasks.deletang_score(accuracies | {1: 1.0, 40: 1.0, 501: 1.0}) == pytest.approx(0.5)
    assert tasks.deletang_score(accuracies | {41: 1.0}) == pytest.approx(0.5 + 0.5 / 460)
    assert tasks.deletang_score(accuracies | {500: 0.0}) == pytest.approx(0.5 - 0.5 / 460)
    assert tasks.deletang_score({50: 0.25, 100: 0.75, 200: 0.9}, lengths=(50, 100)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("accuracies", "lengths", "message"),
    [
        (dict.fromkeys(range(42, 501), 1.0), range(41, 501), "got no accuracy for 1 lengths, starting at 41"),
        ({}, (50,), "accuracy_by_length: got no accuracy for 1 lengths"),
        ({50: 1.5}, (50,), "accuracy_by_length: got 1.5 at length 50, expected 0 to 1"),
        ({50: float("nan")}, (50,), "accuracy_by_length: got nan at length 50"),
        ({50: 1.0}, (), "lengths: got none, expected at least one length"),
    ],
)
def test_score_refuses(accuracies, lengths, message):
    with pytest.raises(ValueError, match=message):
        tasks.deletang_score(accuracies, lengths=lengths)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("parity", {"alphabet": 3}, "alphabet of parity: got 3, expected 2"),
        ("bucket_sort", {"alphabet": 1}, "alphabet: got 1, expected at least 2"),
        ("cycle_navigation", {"alphabet": 2}, "alphabet of cycle_navigation: got 2, expected 3"),
        ("cycle_navigation", {"cycle": 1}, "cycle: got 1, expected at least 2"),
    ],
)
def test_refuses_what_is_no_task(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name, **options)
