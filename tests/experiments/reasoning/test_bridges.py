"""Which box is the bridge: the answers against the pictures, the trunk, its loss and its measure."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reasoning import bridges, train
from experiments.reasoning.config import get_config
from tests.simplicial.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = dataclasses.replace(
    get_config("bridges"), features=8, hidden=8, pair_features=4, num_layers=1, batch_size=4
)


def test_answers_are_the_boxes_that_belong_to_no_path():
    """The bridge's lock joins a colour of the first path to a key of the second: found in the pictures."""
    pictures, answers, lengths = map(np.asarray, bridges.draw(jax.random.key(0), 40))
    assert set(lengths) == set(bridges.LENGTHS)
    for picture, answer, length in zip(pictures, answers, lengths, strict=True):
        row, column = divmod(int(answer), 8)
        y, x = row + 1, column + 1

        def colour(y, x, picture=picture):
            return tuple(int(part) for part in picture[y, x])

        floor = (199, 199, 199)
        assert floor not in (colour(y, x), colour(y, x - 1))
        assert colour(y, x - 1) != (255, 255, 255)  # not a lock of the Gem
        boxes = {  # every lock's content, by its place
            (r, c): colour(r, c - 1) for r in (1, 3, 5) for c in (2, 5, 8) if colour(r, c) != floor
        }
        assert (y, x) in boxes
        without = [content for place, content in boxes.items() if place != (y, x)]
        keys = [content for content in without if content != (255, 255, 255)]
        assert len(keys) == len(set(keys)) == 2 * length - 2


def test_the_loss_and_the_number_of_right_answers():
    problem, key = train.problem(SMALL), jax.random.key(1)
    params = quickly(problem["init"])(key)
    batch = problem["sample"](key, 0)
    model = bridges.BoxFinder(SMALL)

    @quickly
    def both(params):
        return model.apply({"params": params}, batch["pictures"]), problem["loss"](params, batch, None)

    logits, sums = both(params)
    assert logits.shape == (4, 40)
    logs = np.asarray(jax.nn.log_softmax(logits))[np.arange(4), np.asarray(batch["bridges"])]
    assert (sums.numerator, sums.denominator) == (pytest.approx(-logs.sum(), rel=1e-5), 4)
    right = int((np.asarray(logits).argmax(-1) == np.asarray(batch["bridges"])).sum())
    assert [int(part) for part in sums.metrics["accuracy"]] == [right, 4]


@pytest.mark.parametrize(
    "change", [{"pair_logit": "trilinear"}, {"bilinear": False}, {"virtual_entities": 0}]
)
def test_fields_change_the_model(change: dict[str, Any]):
    """Even with the same parameters, where those of the changed model are a part of the others."""
    picture = bridges.draw(jax.random.key(2), 1)[0]
    params = quickly(bridges.BoxFinder(SMALL).init)(jax.random.key(3), picture)
    changed = bridges.BoxFinder(dataclasses.replace(SMALL, **change))
    has_b = "bilinear" in params["params"]["SimplicialTransformer_0"]["two_simplicial"]
    assert has_b
    shapes = jax.eval_shape(changed.init, jax.random.key(3), picture)["params"]["SimplicialTransformer_0"]
    assert ("two_simplicial" in shapes) == ("virtual_entities" not in change)
    if "two_simplicial" in shapes:
        assert ("bilinear" in shapes["two_simplicial"]) == ("bilinear" not in change)
        found = quickly(
            lambda: (bridges.BoxFinder(SMALL).apply(params, picture), changed.apply(params, picture))
        )()
        assert float(jnp.abs(found[0] - found[1]).max()) > 1e-6


def test_the_measure_counts_each_length(monkeypatch):
    """A model that knows only the puzzles of two boxes."""
    monkeypatch.setattr(bridges, "TEST_BATCHES", 2)
    monkeypatch.setattr(bridges, "TEST_BATCH", 4)
    lengths = jnp.asarray([1, 2, 3, 2])
    monkeypatch.setattr(bridges, "draw", lambda key, count: (lengths, lengths, lengths))

    class OnlyTwo:
        def apply(self, variables, pictures):
            del variables, pictures
            return jnp.broadcast_to(jax.nn.one_hot(2, 5), (4, 5))

    monkeypatch.setattr(bridges, "BoxFinder", lambda config: OnlyTwo())
    found = bridges.make_evaluate(SMALL)({})
    assert found == {"right": 0.5, "right/1": 0.0, "right/2": 1.0, "right/3": 0.0}
