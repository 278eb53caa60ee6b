"""The speed benchmark compares models that compute the same, and really traces the naive one."""

import functools
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import llrnn, timing
from llrnn.memory import rings
from tests.simplicial.small import of_shapes

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def _parameters_drawn(monkeypatch):
    """In place of initial ones, for which each operation is a program to compile."""
    init = llrnn.models.RecurrentModel.init

    def drawn(model, key, inputs):
        return of_shapes(jax.eval_shape(functools.partial(init, model), key, inputs))

    monkeypatch.setattr(llrnn.models.RecurrentModel, "init", drawn)


SMALL = {
    "elman": {"features": 4},
    "higher_order": {"features": 4, "max_power": 3},
    "ntm": {"features": 4, "memory_size": 5, "memory_width": 3},
    "dihedral_ntm": {
        "features": 4,
        "memory_size": 5,
        "memory_width": 3,
        "words": ("", "0", "1", "101", "01"),
    },
    "polynomial_ntm": {"features": 4, "memory_size": 5, "memory_width": 3, "program_size": 3},
}


@pytest.mark.slow
def test_a_row_of_each_kind(monkeypatch):
    """`measure` itself compares the two models' updates before it times them."""
    monkeypatch.setattr(llrnn, "BATCH", 3)
    monkeypatch.setattr(llrnn, "STEPS", 4)
    for name in SMALL:
        row = llrnn.measure(name, SMALL[name], blocks=1)
        assert row["steps_per_second"] > 0
        assert ("speedup" in row) == (name not in llrnn.NO_POWERS)


@pytest.mark.usefixtures("_parameters_drawn")
def test_models_that_differ_are_not_timed(monkeypatch):
    monkeypatch.setattr(llrnn, "BATCH", 3)
    monkeypatch.setattr(llrnn, "STEPS", 4)
    monkeypatch.setattr(llrnn, "naive_second_order_powers", lambda p, operators, x, vector: vector)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        llrnn.measure("higher_order", SMALL["higher_order"], blocks=1)


def test_naive_moves_are_the_moves():
    rng = np.random.default_rng(0)
    address, weights = rng.normal(size=(2, 6)).astype(np.float32), rng.normal(size=(2, 3)).astype(np.float32)
    powers, words = (0, -1, 7), ("", "011", "10")
    moved = jnp.einsum("bk,kbn->bn", weights, np.stack([np.roll(address, p, axis=-1) for p in powers]))
    np.testing.assert_allclose(llrnn.naive_rotate(address, weights, powers), moved, rtol=1e-5, atol=1e-5)
    ours = rings.move_by_symmetries(jnp.asarray(address), jnp.asarray(weights), words, step=-1)
    np.testing.assert_allclose(llrnn.naive_words(address, weights, words, -1), ours, rtol=1e-5, atol=1e-5)
    before = rings.rotate
    with llrnn.naive():
        assert rings.rotate is llrnn.naive_rotate
    assert rings.rotate is before


def test_ratio_pairs_neighbouring_blocks():
    found = timing.ratio([2.0, 6.0, 8.0], [1.0, 2.0, 1.0])
    assert found == {"median": 3.0, "least": 2.0, "greatest": 8.0, "blocks": [2.0, 3.0, 8.0]}


def test_blocks_take_turns():
    calls = []
    functions = {name: lambda name=name: calls.append(name) or jnp.zeros(()) for name in "ab"}
    times = timing.alternate(functions, blocks=3, block_seconds=0.0)
    assert calls == [*"aabb", *"ababab"]
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}


@pytest.mark.usefixtures("_parameters_drawn")
def test_the_record_says_where_and_when(tmp_path, monkeypatch, capsys):
    """And how fast a cell is; it has no powers to form."""
    monkeypatch.setattr(llrnn, "BATCH", 3)
    monkeypatch.setattr(llrnn, "STEPS", 2)
    monkeypatch.setattr(llrnn, "CELLS", {"elman": SMALL["elman"]})
    given = types.SimpleNamespace(out=f"{tmp_path}/deep/speed.json", blocks=1)
    monkeypatch.setattr(llrnn.flags, "FLAGS", given)
    llrnn.main()
    record = json.loads((tmp_path / "deep" / "speed.json").read_text())
    assert {"date", "devices", "versions", "commit", "command", "rows"} <= set(record)
    (row,) = record["rows"]
    assert row["steps_per_second"] > 0
    assert "speedup" not in row
    assert "elman" in capsys.readouterr().out
