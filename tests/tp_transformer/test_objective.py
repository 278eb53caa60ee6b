"""The loss and its counts against loops, sums over parts, and which answers count as correct."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tp_transformer.small import quickly
from tp_transformer import objective

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def example() -> tuple[Any, Any]:
    """Returns logits, and labels with rows of different lengths, one of them empty."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(5, 4, 7)), rng.integers(1, 7, (5, 4))
    labels[0, 2:] = labels[1, 1:] = labels[2] = 0
    logits[1, 0, labels[1, 0]] = 9  # an answer of one symbol, right
    logits[3, :3, :][np.arange(3), labels[3, :3]] = 9  # right but for the last symbol
    logits[3, 3, labels[3, 3]] = -9
    return logits, labels


def test_sums_against_loops():
    """Compared with a float64 loop over symbols."""
    logits, labels = example()
    loss, symbols, hits, answers, right = 0.0, 0, 0, 0, 0
    for row, want in zip(logits, labels, strict=True):
        correct = [int(np.argmax(x)) == label for x, label in zip(row, want, strict=True) if label]
        symbols, hits = symbols + len(correct), hits + sum(correct)
        answers, right = answers + bool(correct), right + (bool(correct) and all(correct))
        loss -= sum(x[label] - np.log(np.sum(np.exp(x))) for x, label in zip(row, want, strict=True) if label)
    sums = quickly(objective.next_symbol_sums)(jnp.asarray(logits, jnp.float32), labels)
    np.testing.assert_allclose(sums.loss, loss, rtol=1e-5)
    counts = (sums.symbols, sums.correct_symbols, sums.answers, sums.correct_answers)
    assert tuple(map(int, counts)) == (symbols, hits, answers, right)
    assert right == 1


def test_parts_add_up():
    """Sums over batches with different amounts of padding add up; means would not."""
    logits, labels = example()
    logits = logits.astype(np.float32)
    count = quickly(objective.next_symbol_sums)
    whole = count(logits, labels)
    first, second = (count(logits[part], labels[part]) for part in (np.s_[:2], np.s_[2:]))
    for field in dataclasses.fields(whole):
        parts = getattr(first, field.name) + getattr(second, field.name)
        np.testing.assert_allclose(parts, getattr(whole, field.name), rtol=1e-6)


def test_padding_has_no_gradient():
    """Logits at padding do not affect the loss."""
    logits, labels = example()
    grad = quickly(jax.grad(lambda x: objective.next_symbol_sums(x, jnp.asarray(labels)).loss))(
        jnp.asarray(logits, jnp.float32)
    )
    np.testing.assert_array_equal(grad[labels == 0], 0)
    assert np.all(np.max(np.abs(grad[labels != 0]), axis=-1) > 0)


def test_half_precision_is_summed_in_float32():
    """Also checks another padding symbol."""
    logits, labels = example()
    rounded = np.asarray(jnp.asarray(logits, jnp.bfloat16), np.float64)
    count = quickly(objective.next_symbol_sums, static_argnames="pad")
    sums = count(jnp.asarray(logits, jnp.bfloat16), jnp.asarray(labels), pad=3)
    assert sums.loss.dtype == jnp.float32
    assert int(sums.symbols) == np.sum(labels != 3)
    logs = rounded - np.log(np.sum(np.exp(rounded), axis=-1, keepdims=True))
    want = -np.take_along_axis(logs, labels[..., None], axis=-1)[..., 0][labels != 3].sum()
    np.testing.assert_allclose(sums.loss, want, rtol=1e-5)  # bfloat16 sums would be 1e-2 away


def test_a_right_answer_is_one_that_greedy_decoding_gives():
    """Teacher forcing and decoding mark the same rows as correct, for a table of the next symbol's logits."""
    rng, rows, length = np.random.default_rng(0), 24, 7
    table = rng.normal(size=(rows, length, 11, 11))  # row, position, symbol before
    decoded = np.zeros((rows, length + 1), int)
    decoded[:, 0] = 1
    for row, place in np.ndindex(rows, length):
        symbol = decoded[row, place]
        decoded[row, place + 1] = table[row, place, symbol].argmax() if symbol not in (0, 2) else 0
    answers = decoded.copy()
    answers[::3, 1] = answers[::3, 1] % 10 + 1  # some are wrong
    target, labels = objective.shifted(jnp.asarray(answers))
    np.testing.assert_array_equal(target, answers[:, :-1])
    logits = np.take_along_axis(table, answers[:, :-1, None, None], axis=2)[:, :, 0].astype(np.float32)
    counted, count = [], quickly(objective.next_symbol_sums)
    for row, wanted in enumerate(np.asarray(labels)):
        sums = count(logits[row : row + 1], wanted[None])
        same = bool(np.all((decoded[row, 1:] == wanted) | (wanted == 0)))
        if int(sums.answers):
            assert bool(sums.correct_answers) == same
            counted.append(same)
    assert 2 < sum(counted) < len(counted) - 2


def test_what_is_refused():
    """Labels must match the logits' shape."""
    with pytest.raises(ValueError, match=r"labels: got shape \(5, 3\), expected \(5, 4\)"):
        objective.next_symbol_sums(jnp.zeros((5, 4, 7)), jnp.zeros((5, 3), jnp.int32))
