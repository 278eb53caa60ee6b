"""The example of a language model: sizes, its text, writing with a cache, and the result of a full run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import byte_language_model as example
from tests.examples import small_example
from tests.simplicial.small import parameters, quickly


@pytest.mark.slow  # ten seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_on_text_of_ones_own_is_complete(tmp_path, capsys):
    file = tmp_path / "mine.txt"
    file.write_text("one two three " * 200, encoding="utf-8")
    numbers = example.main(["--steps=2", f"--text={file}", f"--out={tmp_path}", "--prompt=two"])
    small_example.complete(numbers, tmp_path, "bits_per_byte.png")
    assert "\ntwo" in capsys.readouterr().out


def test_both_models_have_as_many_parameters():
    tokens = jnp.zeros((1, 2), jnp.int32)
    counts = []
    for model in example.MODELS.values():
        params = jax.eval_shape(model.init, jax.random.key(0), tokens)["params"]
        counts.append(sum(leaf.size for leaf in jax.tree.leaves(params)))
    assert max(counts) < 1.01 * min(counts)


def test_the_text_is_cut_once(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_bytes(bytes(range(256)) * 10)
    text, held_out = example.read(file)
    assert text.tobytes() + held_out.tobytes() == file.read_bytes()
    assert len(held_out) == 256
    file.write_bytes(b"short")
    with pytest.raises(ValueError, match="text: got 5 bytes, expected at least 1920"):
        example.read(file)
    rows = quickly(example.windows)(jax.random.key(0), text)
    assert rows.shape == (example.BATCH, example.LENGTH + 1)
    np.testing.assert_array_equal(np.diff(rows, axis=1) % 256, 1)


@pytest.mark.usefixtures("compiled_quickly")
def test_bytes_are_drawn_from_the_models_logits():
    """Those of the whole text at once, without a cache."""
    model = example.SimplicialDecoder(256, features=6, num_layers=1, num_heads=1, hidden=2, every=1)
    params = parameters(model, jnp.zeros((1, 2), jnp.int32))["params"]
    params = jax.tree.map(lambda leaf: 5 * leaf, params)
    written = example.write(model, params, b"ab", 6, seed=0)
    tokens = np.frombuffer(b"ab" + written, np.uint8)[None].astype(np.int32)
    logits = quickly(model.apply)({"params": params}, tokens)[0, 1:-1]
    keys = jax.random.split(jax.random.key(0), 6)
    wanted = quickly(jax.vmap(lambda key, row: jax.random.categorical(key, row[None] / 0.7)[0]))(keys, logits)
    assert list(written) == wanted.tolist()


@pytest.mark.slow
def test_both_models_learn(tmp_path):
    numbers = small_example.run("byte_language_model", tmp_path)
    for kind in example.MODELS:
        assert numbers[kind]["curve"][-1][1] < 0.7 * numbers["byte_frequencies"]
