"""Losses of the next word compared with loops, and a decoder's inputs."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import text_objective
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(3, 4, 7)).astype(np.float32)
IDS = RNG.integers(0, 7, (3, 4))


@pytest.mark.parametrize("padded", ["", "behind", "before"])
@pytest.mark.parametrize("prefixes", [None, [0, 2, 3]])
def test_next_words_in_loops(padded, prefixes):
    """Every real word but a text's first and those of the prefix, by the logits one token earlier."""
    real = np.ones((3, 4), bool)
    if padded:
        real[1, -1 if padded == "behind" else 0] = False
    total, count, correct = 0.0, 0, 0
    for b in range(3):
        first = np.flatnonzero(real[b])[0]
        for t in range(1, 4):
            if real[b, t] and t - first >= max(1, 0 if prefixes is None else prefixes[b]):
                logits = LOGITS[b, t - 1].astype(np.float64)
                total += np.log(np.exp(logits).sum()) - logits[IDS[b, t]]
                count += 1
                correct += logits.argmax() == IDS[b, t]
    loss = small.quickly(text_objective.next_word)(
        jnp.asarray(LOGITS),
        jnp.asarray(IDS),
        jnp.asarray(real) if padded else None,
        None if prefixes is None else jnp.asarray(prefixes),
    )
    np.testing.assert_allclose(loss.sum, total, rtol=1e-5)
    assert (int(loss.count), int(loss.correct)) == (count, correct)


@pytest.mark.unchecked  # annotations have signed integers only
def test_ids_of_narrow_types():
    """255 is a word of 256, not -1 in another form."""
    logits = jnp.asarray(RNG.normal(size=(1, 4, 256)), jnp.float32)
    wide = jnp.asarray([[7, 255, 156, 3]])
    narrow, run = wide.astype(jnp.uint8), small.quickly(text_objective.next_word)
    chex.assert_trees_all_equal(run(logits, narrow), run(logits, wide))
    read = text_objective.shift_right(narrow, decoder_start_token_id=1, pad_token_id=0)
    np.testing.assert_array_equal(read, [[1, 7, 255, 156]])


def test_targets():
    """A decoder's inputs for labels, and the loss at the same positions."""
    labels = np.asarray([[5, 6, 2, -100], [3, 2, -100, -100]], np.int32)

    @small.quickly
    def run(logits, labels):
        read = text_objective.shift_right(labels, decoder_start_token_id=1, pad_token_id=0)
        return read, text_objective.target(logits, labels)

    read, loss = run(LOGITS[:2], labels)
    np.testing.assert_array_equal(read, [[1, 5, 6, 2], [1, 3, 2, 0]])
    want = sum(
        np.log(np.exp(LOGITS[b, t]).sum()) - LOGITS[b, t, labels[b, t]]
        for b, t in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1))
    )
    np.testing.assert_allclose(loss.sum, want, rtol=1e-5)
    assert int(loss.count) == 5


def test_bad_shapes():
    """Tokens of another batch size."""
    with pytest.raises(ValueError, match=r"input_ids: got shape \(2, 4\), expected \(3, 4\) as in logits"):
        text_objective.next_word(jnp.asarray(LOGITS), jnp.asarray(IDS[:2]))
    with pytest.raises(ValueError, match=r"input_ids: got shape \(3, 4\), expected \(3, 4\) as in logits"):
        text_objective.next_word(jnp.asarray(LOGITS[..., 0]), jnp.asarray(IDS))
