"""The example of role vectors: measures on constructed cases, a short run, and the result of a full run."""

import math

import jax
import numpy as np
import pytest

from examples import role_vectors as example
from tests.examples import small_example


@pytest.mark.slow  # ten seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_on_data_of_ones_own_is_complete(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "LAYERS", 1)
    file = tmp_path / "mine.tsv"
    file.write_text("".join(f"{line}\n" for line in example.sentences()[::50]), encoding="utf-8")
    numbers = example.main(["--steps=2", "--clusters=3", f"--data={file}", f"--out={tmp_path}"])
    small_example.complete(numbers, tmp_path, "roles.png")
    assert not (tmp_path / "sentences.tsv").exists()
    assert "clusters of head" in capsys.readouterr().out


def test_places_are_of_words_taken_over_once():
    data = example.read(["bob is ann\tsee ann bob", "ann ann bob\tsee ann bob", "x\ty"])
    places = example.places_in_answer(data, np.arange(3))
    np.testing.assert_array_equal(places, [[2, -1, 1], [-1, -1, 2], [-1, -1, -1]])
    with pytest.raises(ValueError, match="data: got 'no answer', expected lines of words, one tab"):
        example.read(["no answer"])
    with pytest.raises(ValueError, match="data: got no lines"):
        example.read([" "])


def test_a_step_of_training_and_the_picture(tmp_path):
    """Traced, not compiled: that takes seconds, and whole runs are slow tests."""
    data = example.read(example.sentences()[::200])
    model = example.TPTransformer(len(data.words), features=8, filter_features=8, num_heads=2, num_layers=1)
    params = jax.eval_shape(model.init, jax.random.key(0), data.source[:1], data.answer[:1])["params"]
    logits = jax.eval_shape(model.apply, {"params": params}, data.source, data.answer[:, :-1])
    assert logits.shape == (*data.answer[:, 1:].shape, len(data.words))
    example.draw_sentences(data, np.arange(3), np.zeros_like(data.source[:3]), tmp_path / "roles.png")
    assert (tmp_path / "roles.png").is_file()


def test_lines_become_rows_of_symbols():
    data = example.read(["b a\ta b", "", "c\tc"])
    assert data.words == ("<pad>", "<start>", "<end>", "a", "b", "c")
    np.testing.assert_array_equal(data.source, [[4, 3], [5, 0]])
    np.testing.assert_array_equal(data.answer, [[1, 3, 4, 2], [1, 5, 2, 0]])


def test_sentences_have_answers_of_who_does_what():
    lines = example.sentences()
    assert len(set(lines)) == 12 * 11 * 2 * 4 * 4
    forms = "today bob is helped by ann", "it is ann who helps bob", "as we know it is bob who ann helps"
    for line in forms:
        assert f"{line}\thelp ann bob" in lines


def test_measures_of_groups_and_vectors():
    places = np.array([[1, 2, -1], [2, 1, -1]] * 10)
    assert example.purity(np.where(places == 1, 5, 0), places) == 1
    assert example.purity(np.zeros_like(places), places) == 0.5
    assert math.isnan(example.purity(places, np.full_like(places, -1)))
    noise = np.random.default_rng(0).normal(size=(20, 3, 4))
    assert example.read_out(noise + 10 * places[..., None], places) == 1
    assert example.read_out(np.ones((20, 3, 1)), places) == 0.5


def test_a_word_and_its_place_do_not_tell_who_does_what():
    data = example.read(example.sentences())
    places = example.places_in_answer(data, np.arange(len(data.source)))
    assert example.purity(data.source, places) == 0.5
    columns = np.broadcast_to(np.arange(data.source.shape[1]), data.source.shape)
    assert example.purity(columns, places) < 0.7


@pytest.mark.slow
def test_training_puts_who_does_what_into_roles(tmp_path):
    numbers = small_example.run("role_vectors", tmp_path)
    assert numbers["right"] > 0.98
    assert (tmp_path / "sentences.tsv").is_file()
    assert max(numbers["untrained"]["read_out"]) < 0.6
    assert min(numbers["trained"]["read_out"]) > 0.65
    assert max(numbers["trained"]["clusters"]) > max(numbers["untrained"]["clusters"]) + 0.05
