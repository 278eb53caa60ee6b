"""Attention over the board: entities and their tiles, maps compared with the agent's own weights."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simplicial import Agent, analysis, apply_with_attention, boxworld
from simplicial.agent import BlockAttention
from tests.simplicial.small import parameters, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BRIDGE, STANDARD = boxworld.BRIDGE, boxworld.STANDARD


@pytest.fixture(scope="module")
def seen():
    """Returns a batch of 3 with the attention of a simplicial agent in both blocks."""
    agent = Agent(conv_features=(4, 6), head_features=(8,))
    observation = np.random.default_rng(0).integers(256, size=(3, 7, 10, 3), dtype=np.uint8)
    variables = parameters(agent, observation)
    output = quickly(lambda *args: apply_with_attention(agent, *args))(variables, observation)
    return output.attention


def test_entities_of_the_paper():
    """Section 6: 17 and 25 are the Gem's locks in Figure 7, 39 the player, 7 and 15 next to the inventory."""
    assert analysis.entity_grid(BRIDGE) == (5, 8)
    tiles = [(2, 3), (2, 4), (8, 5), (8, 1), (8, 2)]
    assert [analysis.entity_of_tile(x, y, BRIDGE) for x, y in tiles] == [17, 25, 39, 7, 15]


@pytest.mark.parametrize(("config", "entities"), [(BRIDGE, 40), (STANDARD, 56)])
def test_entities_are_numbered_row_by_row(config, entities):
    rows, cols = analysis.entity_grid(config)
    numbers = [analysis.entity_of_tile(x, y, config) for y in range(1, rows + 1) for x in range(1, cols + 1)]
    assert numbers == list(range(entities))
    for x, y in ((0, 1), (1, 0), (cols + 1, 1), (1, rows + 1)):
        with pytest.raises(
            ValueError, match=rf"x, y: got \({x}, {y}\), expected .* x in 1..{cols}, y in 1..{rows}"
        ):
            analysis.entity_of_tile(x, y, config)


def test_an_entity_is_about_the_middle_of_its_window():
    """Changing a tile of the picture changes the entities around it and no others."""
    agent = Agent(num_virtual_entities=0, num_blocks=1)
    picture = np.full((7, 10, 3), 100, np.uint8)
    changed = np.tile(picture, (70, 1, 1, 1))
    for place in range(70):
        changed[place, place // 10, place % 10] = (250, 10, 60)
    variables = parameters(agent, picture)

    @quickly
    def embedded(variables, pictures):
        captured = agent.apply(
            variables, pictures, capture_intermediates=lambda module, _: module.name == "embed", mutable=True
        )[1]
        return captured["intermediates"]["embed"]["__call__"][0]

    before = embedded(variables, picture[None]).reshape(1, 40, -1)
    after = embedded(variables, changed).reshape(70, 40, -1)
    differs = (np.abs(after - before) > 1e-6).any(axis=-1)
    for x, y in itertools.product(range(1, 9), range(1, 6)):
        changes = np.flatnonzero(differs[:, analysis.entity_of_tile(x, y, BRIDGE)])
        window = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        assert {(place // 10, place % 10) for place in changes} == window


def test_virtual_maps_lie_on_the_board(seen):
    """A tile's weight is at the tile's place; the rest up to 1 goes to virtual entities."""
    maps = np.asarray(analysis.virtual_maps(seen[0], BRIDGE))
    weights = seen[0].virtual
    assert maps.shape == (3, 2, 2, 5, 8)
    for b, virtual, head in np.ndindex(3, 2, 2):
        for x, y in ((1, 1), (8, 1), (1, 5), (4, 3)):
            entity = analysis.entity_of_tile(x, y, BRIDGE)
            assert maps[b, virtual, head, y - 1, x - 1] == weights[b, head, virtual, entity]
    np.testing.assert_allclose(
        maps.sum((-1, -2)) + np.swapaxes(weights[..., 40:].sum(-1), 1, 2), np.ones((3, 2, 2)), rtol=1e-5
    )


def test_pair_maps_have_a_row_for_each_pair(seen):
    maps = np.asarray(analysis.pair_maps(seen[1]))
    pairs = seen[1].pairs
    assert maps.shape == (3, 1, 4, 40)
    assert analysis.pair_labels(2) == ["(1,1)", "(1,2)", "(2,1)", "(2,2)"]
    for row, (j, k) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
        np.testing.assert_array_equal(maps[:, :, row], pairs[..., j, k])
    np.testing.assert_allclose(maps.sum(-2), np.ones((3, 1, 40)), rtol=1e-5)
    assert analysis.pair_labels(3)[5] == "(2,3)"


def test_pair_deviation():
    """Entities with the common attention are at 0; one without overlap is at 1."""
    rows = np.tile([0.7, 0.3, 0, 0], (1, 9, 1))
    rows[0, 4] = [0, 0, 0.5, 0.5]
    rows[0, 6] = [0.2, 0.3, 0.5, 0]
    pairs = jnp.asarray(rows.reshape(1, 9, 2, 2))
    found = analysis.pair_deviation(BlockAttention(standard=jnp.zeros((1, 9, 9)), pairs=pairs))
    np.testing.assert_allclose(found, [[0, 0, 0, 0, 1, 0, 0.5, 0, 0]], atol=1e-6)


def test_pair_deviation_without_anything_common():
    """Each of four entities attends to a different pair: all are as far from the mean; nothing is NaN."""
    pairs = jnp.eye(4).reshape(1, 4, 2, 2)
    with jax.debug_nans(True):
        found = analysis.pair_deviation(BlockAttention(standard=jnp.zeros((1, 4, 4)), pairs=pairs))
    np.testing.assert_allclose(found, np.full((1, 4), 0.75), rtol=1e-6)


def test_pair_deviation_of_an_agent(seen):
    """Compared with the docstring's definition in NumPy."""
    found = np.asarray(analysis.pair_deviation(seen[1]))
    maps = seen[1].pairs.astype(np.float64).reshape(3, 40, 4)
    for b in range(3):
        generic = np.median(maps[b], axis=0)
        wanted = np.abs(maps[b] - generic / generic.sum()).sum(-1) / 2
        np.testing.assert_allclose(found[b, 0], wanted, rtol=1e-4, atol=1e-6)
    assert found.max() > 0.01


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize("factor", [1.0, 2.0, 3.5])
def test_sharpened_is_a_softmax_of_larger_logits(axes, factor):
    logits = np.random.default_rng(0).normal(scale=6, size=(3, 4, 5, 5))
    axis = tuple(range(-axes, 0))
    found = analysis.sharpened(jax.nn.softmax(logits, axis=axis), factor, axes=axes)
    wanted = np.exp(factor * (logits - logits.max(axis, keepdims=True)))
    wanted /= wanted.sum(axis, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-9)


def test_sharpened_keeps_small_weights_and_masked_rows():
    """Weights of 1e-30 underflow when squared, but their ratio is kept; rows of zeros stay zero."""
    found = analysis.sharpened(np.asarray([[1e-30, 3e-30], [0, 0]], np.float32))
    np.testing.assert_allclose(found, [[0.1, 0.9], [0, 0]], rtol=1e-5)


def test_sharpened_maps_are_those_of_the_agent_with_larger_queries(seen):
    """Weights are renormalised over virtual entities as well."""
    maps = np.asarray(analysis.virtual_maps(seen[0], BRIDGE, analysis.DISPLAY_SHARPENING))
    squares = seen[0].virtual.astype(np.float64) ** 2
    wanted = (squares / squares.sum(-1, keepdims=True))[..., :40].reshape(3, 2, 2, 5, 8)
    np.testing.assert_allclose(maps, np.swapaxes(wanted, 1, 2), rtol=1e-5)


def board(**tiles):
    """Returns a bridge board with a Gem at (1, 3) as in Figure 7, and tiles given as "x3y1"."""
    grid = np.full((7, 9), -1)
    grid[3:5, 1], grid[3:5, 2] = 0, (1, 2)
    for name, colour in tiles.items():
        x, y = name[1:].split("y")
        grid[int(y), int(x)] = colour
    return grid


def test_landmarks():
    """The Gem's locks are 17 and 25 with the Gem of Figure 7."""
    grid = board(x7y1=1, x4y3=2, x7y3=2, x8y3=1)  # loose 1 and 2; the bridge: key 2 behind lock 1
    state = boxworld.from_board(grid, np.zeros((21, 3), np.uint8), np.asarray([(8, 3)]), BRIDGE)
    found = analysis.landmarks(state, BRIDGE)
    assert found == {
        "player": 0,  # at (0, 0), where only the window around (1, 1) sees it
        "Gem lock, top": 17,
        "Gem lock, bottom": 25,
        "bridge lock": analysis.entity_of_tile(8, 3, BRIDGE),
        "bridge key": analysis.entity_of_tile(7, 3, BRIDGE),
    }
    step = jax.jit(lambda state, action: boxworld.step(state, action, BRIDGE)[0])
    for action in [boxworld.RIGHT] * 7 + [boxworld.DOWN]:
        state = step(state, action)
    found = analysis.landmarks(state, BRIDGE)
    assert found["player"] == analysis.entity_of_tile(7, 1, BRIDGE)
    assert found["inventory"] == 7
    for action in [boxworld.RIGHT, boxworld.DOWN, boxworld.DOWN]:
        state = step(state, action)
    assert "bridge lock" not in analysis.landmarks(state, BRIDGE)
    for corner, entity in (((8, 6), 39), ((0, 6), 32), ((3, 2), 10)):  # seen by the nearest entity
        there = dataclasses.replace(state, player=jnp.asarray(corner, jnp.int8))
        assert analysis.landmarks(there, BRIDGE)["player"] == entity
    grid = np.asarray(state.grid).copy()
    grid[6, :2] = 2, 1
    bridged = dataclasses.replace(state, grid=jnp.asarray(grid), traps=jnp.asarray([(1, 6)], jnp.int8))
    found = analysis.landmarks(bridged, BRIDGE)
    assert (found["bridge lock"], found["bridge key"]) == (32, 32), "at the edge, seen by the nearest entity"
    gone = dataclasses.replace(
        state, grid=jnp.full((7, 9), jnp.int8(-1)), inventory=jnp.full(7, jnp.int8(-1))
    )
    assert set(analysis.landmarks(gone, BRIDGE)) == {"player"}


def test_landmarks_of_a_standard_board():
    state = jax.jit(boxworld.reset)(jax.random.key(0), STANDARD)
    found = analysis.landmarks(state, STANDARD)
    x, y = np.asarray(state.gem).tolist()
    assert found == {"player": 0, "Gem lock": analysis.entity_of_tile(x + 1, y, STANDARD)}
    batch = jax.tree.map(lambda leaf: leaf[None], state)
    with pytest.raises(ValueError, match=r"state: got a batch with grid \(1, 9, 9\), expected one episode"):
        analysis.landmarks(batch, STANDARD)


def test_refuses(seen):
    relational = BlockAttention(standard=jnp.asarray(seen[0].standard))
    with pytest.raises(ValueError, match="block: got no virtual entities"):
        analysis.virtual_maps(relational, BRIDGE)
    with pytest.raises(ValueError, match="block: got no 2-simplicial attention"):
        analysis.pair_maps(relational)
    with pytest.raises(ValueError, match=r"block: got 40 standard entities, expected 7 x 8 .* 9 x 9"):
        analysis.virtual_maps(seen[0], STANDARD)
    for factor in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"sharpening: got .*, expected a positive number"):
            analysis.sharpened(jnp.ones(3), factor)
    for axes in (0, 2):
        with pytest.raises(ValueError, match=r"axes: got .*, expected 1 to 1 for weights of shape \(3,\)"):
            analysis.sharpened(jnp.ones(3), axes=axes)
    np.testing.assert_allclose(analysis.sharpened(np.ones((2, 2)), axes=2), np.full((2, 2), 0.25))
