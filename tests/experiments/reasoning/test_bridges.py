"""Which box is the bridge: the answers against the pictures, the trunk, its loss and its measure."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from experiments.reasoning import bridges, train
from experiments.reasoning.config import get_config
from simplicial import boxworld
from tests.simplicial.small import of_shapes, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = dataclasses.replace(
    get_config("bridges"), features=8, hidden=8, pair_features=4, num_layers=1, batch_size=4
)


def random_batch(shapes: Any) -> Any:
    """Returns pictures and answers that are random, since to draw boards takes long to compile."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.integers(0, 40, leaf.shape).astype(leaf.dtype), shapes)


def test_the_answer_is_the_one_lock_that_ends_the_episode():
    """A player with its key opens each lock in turn; the answer is where the picture has the lock."""
    key = jax.random.key(0)
    (pictures, answers, lengths), states = quickly(
        lambda: (bridges.draw(key, 20), boxworld.reset_batch(key, 20, bridges.BOARDS))
    )()
    assert set(lengths) == set(bridges.LENGTHS)
    found, places = [], []
    for i, grid in enumerate(states.grid):
        state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
        for y, before in np.argwhere((grid[:, 1:] >= 0) & (grid[:, :-1] >= 0)):
            x = before + 1
            held = np.r_[grid[y, x], state.inventory[1:]].astype(np.int8)
            found.append(dataclasses.replace(state, player=np.asarray([x + 1, y], np.int8), inventory=held))
            places.append((i, y, x))
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    step = jax.vmap(lambda state: boxworld.step(state, boxworld.LEFT, bridges.BOARDS)[1])
    ends = np.asarray(quickly(step)(batch).terminated)
    assert len(places) > 2 * ends.sum()
    for (i, y, x), end in zip(places, ends, strict=True):
        row, column = divmod(int(answers[i]), pictures.shape[2] - 2)
        assert end == ((row + 1, column + 1) == (y, x))  # windows of 3 x 3 tiles are centred there
    assert ends.sum() == 20


@pytest.fixture(scope="module")
def made() -> tuple[Any, Any, np.ndarray]:
    """Parameters, a batch and the logits of its boards."""
    problem, key = train.problem(SMALL), jax.random.key(1)
    params = of_shapes(jax.eval_shape(problem["init"], key))
    batch = random_batch(jax.eval_shape(problem["sample"], key, 0))
    return params, batch, quickly(bridges.BoxFinder(SMALL).apply)({"params": params}, batch["pictures"])


def test_the_loss_and_the_number_of_right_answers(made):
    params, batch, logits = made
    sums = quickly(train.problem(SMALL)["loss"])(params, batch, None)
    assert logits.shape == (4, 40)
    logs = log_softmax(logits, axis=-1)[np.arange(4), batch["bridges"]]
    assert (sums.numerator, sums.denominator) == (pytest.approx(-logs.sum(), rel=1e-5), 4)
    right = int((logits.argmax(-1) == batch["bridges"]).sum())
    assert [int(part) for part in sums.metrics["accuracy"]] == [right, 4]


def test_hidden_units_below_zero_say_nothing_of_an_entity(made):
    params, batch, _ = made
    last, hidden = params["Dense_1"], params["Dense_2"]
    assert (last["bias"].shape, hidden["bias"].shape) == ((1,), (SMALL.hidden,))
    params = {**params, "Dense_2": {**hidden, "bias": np.full_like(hidden["bias"], -1e4)}}
    logits = quickly(bridges.BoxFinder(SMALL).apply)({"params": params}, batch["pictures"])
    np.testing.assert_array_equal(logits, np.broadcast_to(last["bias"], logits.shape))


@pytest.mark.parametrize(
    "change", [{"pair_logit": "trilinear"}, {"bilinear": False}, {"virtual_entities": 0}]
)
def test_fields_change_the_model(change: dict[str, Any], made):
    """Even with the same parameters, where those of the changed model are a part of the others."""
    params, batch, logits = made
    changed = bridges.BoxFinder(dataclasses.replace(SMALL, **change))
    assert "bilinear" in params["SimplicialTransformer_0"]["two_simplicial"]
    shapes = jax.eval_shape(changed.init, jax.random.key(3), batch["pictures"])["params"]
    shapes = shapes["SimplicialTransformer_0"]
    assert ("two_simplicial" in shapes) == ("virtual_entities" not in change)
    if "two_simplicial" in shapes:
        assert ("bilinear" in shapes["two_simplicial"]) == ("bilinear" not in change)
        found = quickly(changed.apply)({"params": params}, batch["pictures"])
        assert np.abs(found - logits).max() > 1e-6


def test_the_trunk_has_the_sizes_of_the_config(monkeypatch):
    """Numbers that all differ."""
    sizes = {"virtual_entities": 3, "features": 10, "num_heads": 5}
    config = dataclasses.replace(SMALL, **sizes, num_layers=2, pair_features=4, bilinear=False)
    seen: dict[str, Any] = {}
    monkeypatch.setattr(
        bridges, "SimplicialTransformer", lambda **given: seen.update(given) or (lambda entities: entities)
    )
    pictures = jax.ShapeDtypeStruct((1, 7, 10, 3), np.uint8)
    jax.eval_shape(bridges.BoxFinder(config).init, jax.random.key(0), pictures)
    assert seen == {
        "num_virtual_entities": 3, "num_blocks": 2, "features": 10, "num_heads": 5,
        "two_simplicial_features": 4, "logit": "unsigned", "learned_bilinear": False,
    }  # fmt: skip


def test_the_measure_counts_each_length(monkeypatch):
    """A model that knows only the puzzles of two boxes."""
    monkeypatch.setattr(bridges, "TEST_BATCHES", 2)
    monkeypatch.setattr(bridges, "TEST_BATCH", 4)
    lengths = jnp.asarray([1, 2, 3, 2])
    keys: list[jax.Array] = []

    def draw(key, count):
        del count
        jax.debug.callback(keys.append, jax.random.key_data(key))
        return lengths, lengths, lengths

    monkeypatch.setattr(bridges, "draw", draw)

    class OnlyTwo:
        def apply(self, variables, pictures):
            del variables, pictures
            return jnp.broadcast_to(jax.nn.one_hot(2, 5), (4, 5))

    monkeypatch.setattr(bridges, "BoxFinder", lambda config: OnlyTwo())
    found = bridges.make_evaluate(SMALL)({})
    assert found == {"right": 0.5, "right/1": 0.0, "right/2": 1.0, "right/3": 0.0}
    # Seeds of runs are below 2^31, so no board of a training was drawn with these keys.
    expected = jax.random.key_data(jax.random.split(jax.random.key(2**31), 2))
    found, wanted = (sorted(map(tuple, np.asarray(all_keys))) for all_keys in (keys, expected))
    np.testing.assert_array_equal(found, wanted)
