"""The learner against NumPy on a small environment, and independence from devices, seeds and calls."""

import dataclasses
import functools
from typing import Any, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from jax.sharding import AbstractMesh, AxisType

from simplicial import Agent, AgentOutput, boxworld, impala, rollout
from simplicial.learner import Learner, LearnerState, cut, program
from tests.simplicial import corridor, plain_impala

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def small(optimizer=None, **settings):
    """Builds a learner in the corridor, small enough to be simulated in NumPy."""
    settings: dict[str, Any] = {"environments": 12, "steps": 7, "updates": 3, "groups": 2, **settings}
    optimizer = optimizer or impala.optimizer(0.05, max_norm=6.0)
    return Learner(corridor.policy, corridor.ENVIRONMENT, optimizer, **settings)


@functools.cache
def usual():
    """Returns the learner without other settings, and its compiled iteration."""
    learner = small()
    return learner, program(learner)


@functools.cache
def initial(learner):
    return jax.jit(learner.init)


def begun(learner, scale=1.0):
    return initial(learner)(corridor.weights(np.random.default_rng(1), scale), jax.random.key(0))


@functools.cache
def acted():
    """Simulates what the groups do in the usual learner's first iteration, one group at a time."""
    learner, _ = usual()
    state = begun(learner)

    @jax.jit
    def act(params, actors, keys, group):
        actors, key = jax.tree.map(lambda leaf: leaf[group], (actors, keys))
        _, for_unroll = jax.random.split(key)
        return rollout.unroll(learner.policy, params, learner.environment, actors, for_unroll, learner.steps)

    groups = range(learner.groups)
    return [jax.device_get(act(state.params, state.actors, state.keys, group)) for group in groups]


@functools.cache
def usual_gradient():
    """Returns parameters, the trajectories of an update, and the usual gradient with its losses."""
    learner, _ = usual()
    params, trajectories = begun(learner).params, jax.tree.map(lambda leaf: leaf[:4], acted()[0][1])
    return params, trajectories, jax.device_get(jax.jit(learner.gradient)(params, trajectories))


def test_an_iteration_is_that_of_plain_numpy():
    """Three updates, some of them clipped: compares every weight and the report."""
    learner, run = usual()
    state, groups = begun(learner), acted()
    after, report = run(begun(learner))

    weights, accumulator = np.float64(state.params["weights"]), np.ones((corridor.LENGTH + 1, 4))
    ratios = []
    for update in range(learner.updates):
        rows = slice(2 * update, 2 * update + 2)
        parts = [
            jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf[rows]), trajectories)
            for _, trajectories, _ in groups
        ]
        batch = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("observation", "logits", "action", "reward", "terminated", "truncated")
        }
        seen = np.float64(batch.pop("observation"))
        outputs = np.matmul(seen, weights)
        sums, by_logits, by_value = plain_impala.loss(outputs[..., :3], outputs[..., 3], batch)
        by_output = np.concatenate([by_logits, by_value[..., None]], axis=-1)
        gradient = np.einsum("bti,bto->io", seen, by_output)
        for name, number in sums.items():
            got = np.asarray(getattr(report.losses, name))[0, update]
            np.testing.assert_allclose(got, number, rtol=1e-4, atol=1e-5, err_msg=name)
        norm = np.sqrt((gradient**2).sum())
        np.testing.assert_allclose(np.asarray(report.grad_norm)[0, update], norm, rtol=1e-4)
        weights, accumulator = plain_impala.rmsprop(
            weights, accumulator, gradient, learning_rate=0.05, max_norm=6.0
        )
        ratios.append(sums["ratio"] / sums["steps"])
    norms = np.asarray(report.grad_norm)
    assert norms.min() < 6 < norms.max()
    assert ratios[0] == pytest.approx(1)
    assert ratios[2] < ratios[1] < 1, "the later updates learn from an older policy"
    np.testing.assert_allclose(after.params["weights"], weights, rtol=1e-4, atol=1e-5)
    moved = np.abs(weights - np.float64(state.params["weights"])).max()
    assert moved > 0.01, "the tolerance must be far below what was learned"

    tallies = [tally for _, _, tally in groups]
    wanted = jax.tree.map(lambda *leaves: sum(leaves), *tallies)
    chex.assert_trees_all_equal(jax.tree.map(lambda leaf: np.asarray(leaf)[0], report.tally), wanted)
    actors = jax.tree.map(lambda *leaves: np.stack(leaves), *[actors for actors, _, _ in groups])
    chex.assert_trees_all_equal(after.actors, actors)
    assert after.iteration == 1
    assert report.finite.all()


def test_parameters_are_the_callers_after_a_run():
    """A run takes the memory of its state; the optimizer may keep the parameters that it is given."""
    keeps = optax.GradientTransformation(
        lambda params: params, lambda updates, state, params=None: (updates, state)
    )
    learner = small(optax.chain(keeps, optax.sgd(0.1)))
    params = corridor.weights(np.random.default_rng(1))
    before = np.array(params["weights"])
    state, _ = program(learner)(learner.init(params, jax.random.key(0)))
    np.testing.assert_array_equal(params["weights"], before)
    np.testing.assert_array_equal(state.opt_state[0]["weights"], before)
    assert np.abs(state.params["weights"] - before).max() > 0.01


def test_it_learns():
    """The share of solved episodes rises from a quarter to nearly all."""
    learner, run = usual()
    state, tallies = begun(learner, scale=0.0), []
    for _ in range(300):
        state, report = run(state)
        tallies.append(report.tally)
    ended, solved = (
        np.asarray([np.asarray(getattr(tally, name)).sum() for tally in tallies])
        for name in ("episodes", "solved")
    )
    assert solved[:5].sum() < 0.3 * ended[:5].sum()
    assert solved[-50:].sum() > 0.97 * ended[-50:].sum()


def test_two_iterations_of_seeds_side_by_side_are_two_calls_for_each():
    """The state is complete, including keys, so a checkpoint can restore it; calls reuse its memory."""
    learner, once = usual()
    weights = np.random.default_rng(4).normal(size=(2, corridor.LENGTH + 1, 4)).astype(np.float32)
    keys = jax.random.split(jax.random.key(4), 2)
    starts = [
        initial(learner)({"weights": jnp.asarray(each)}, key)
        for each, key in zip(weights, list(keys), strict=True)
    ]
    state = jax.jit(lambda *states: jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))(*starts)
    together = program(learner, iterations=2, seeds=True)(state)
    for seed, start in enumerate(starts):
        state, first = once(start)
        assert start.params["weights"].is_deleted()
        data: Any = jax.tree.map(jnp.asarray, jax.device_get(key_data(state)))
        data["keys"] = jax.random.wrap_key_data(data["keys"])
        continued = once(state)
        state, second = once(LearnerState(**data))
        chex.assert_trees_all_equal((key_data(state), second), (key_data(continued[0]), continued[1]))
        reports = jax.tree.map(lambda *leaves: np.concatenate(leaves), first, second)
        got = jax.tree.map(
            lambda leaf, seed=seed: np.asarray(leaf)[seed], (key_data(together[0]), together[1])
        )
        chex.assert_trees_all_close(got, (key_data(state), reports), rtol=1e-4, atol=1e-5)
        assert state.iteration == 2
        assert not np.array_equal(first.losses.total, second.losses.total)
    finals = np.asarray(together[0].params["weights"])
    assert np.abs(finals[0] - finals[1]).max() > 0.1


def key_data(state):
    return {**vars(state), "keys": jax.random.key_data(state.keys)}


def test_a_batch_can_be_summed_in_parts():
    """The gradient of a batch whose trajectories are summed one by one is that of the whole batch."""
    summed = []

    def one_by_one(function, batch):
        summed.append(batch.action.shape)
        rows = [jax.tree.map(lambda leaf: leaf[row][None], batch) for row in range(4)]  # noqa: B023
        return functools.reduce(functools.partial(jax.tree.map, jnp.add), map(function, rows))

    params, trajectories, whole = usual_gradient()
    parts = jax.jit(small(summed=one_by_one).gradient)(params, trajectories)
    assert summed == [(4, 7)]
    chex.assert_trees_all_close(parts, whole, rtol=1e-5, atol=1e-5)


def test_groups_act_in_turn_as_they_do_together():
    """What they do is equal, and nothing is learned from it but what usually is."""
    together, run = usual()
    learner = small(in_turn=True)
    found, wanted = program(learner)(begun(learner)), run(begun(together))
    chex.assert_trees_all_equal(found[0].actors, wanted[0].actors)
    chex.assert_trees_all_equal(found[1].tally, wanted[1].tally)
    learned = [(state.params, state.opt_state, report.losses) for state, report in (found, wanted)]
    chex.assert_trees_all_close(*learned, rtol=1e-5, atol=1e-6)


@pytest.mark.unchecked  # two parts of the actors and keys, but one of the rest
def test_parts_of_an_axis_add_their_gradients_and_tallies():
    """Both groups on an axis of two make the updates of the whole; see engine_on_devices.py."""
    learner, run = usual()
    state = begun(learner)
    apart = dataclasses.replace(
        state,
        actors=jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 1), state.actors),
        keys=state.keys[:, None],
    )
    axes: Any = {"params": None, "opt_state": None, "actors": 0, "keys": 0, "iteration": None}
    spread = LearnerState(**axes)
    iterate = functools.partial(learner.iterate_many, iterations=1, axis_name="parts")
    after, reports = jax.jit(jax.vmap(iterate, in_axes=(spread,), axis_name="parts"))(apart)
    whole, report = run(state)
    for part in range(2):
        got = jax.tree.map(
            lambda leaf, part=part: np.asarray(leaf)[part], (after.params, after.opt_state, reports)
        )
        chex.assert_trees_all_close(got, (whole.params, whole.opt_state, report), rtol=1e-4, atol=1e-5)
    joined = jax.tree.map(lambda leaf: np.squeeze(leaf, 1), after.actors)
    chex.assert_trees_all_equal(joined, whole.actors)


def one_bad_number(learning_rate, wanted):
    """Returns an optimiser after whose last of three updates one parameter of many is NaN, if wanted."""

    def update(gradient, count, params):
        bad = jnp.zeros_like(params["weights"]).at[2, 3].set(jnp.where(wanted & (count == 2), jnp.nan, 0))
        return {"weights": bad - learning_rate * gradient["weights"], "more": jnp.zeros(2)}, count + 1

    return optax.GradientTransformation(lambda params: jnp.int32(0), cast(Any, update))


def infinite_at_first(output, batch, wanted):
    """Is the usual loss, plus infinity in the first update, which is on-policy, if wanted."""
    losses = impala.objective(output, batch)
    first = jnp.abs(losses.ratio - losses.steps) < 1e-4
    return dataclasses.replace(losses, total=losses.total + jnp.where(wanted & first, jnp.inf, 0))


def test_what_is_not_finite_is_reported():
    """One parameter of the last update, or the loss of one update, is enough."""
    params = {**corridor.weights(np.random.default_rng(1)), "more": np.zeros(2, np.float32)}

    @jax.jit
    def finite(nan, infinity):
        objective = functools.partial(infinite_at_first, wanted=infinity)
        learner = small(optimizer=one_bad_number(0.01, nan), objective=objective)
        state, report = learner.iterate(learner.init(jax.tree.map(jnp.asarray, params), jax.random.key(0)))
        return report.finite, report.losses.total, state.params["weights"]

    assert finite(nan=False, infinity=False)[0]
    is_finite, losses, weights = finite(nan=True, infinity=False)
    assert not is_finite
    assert np.isfinite(losses).all()
    assert np.isnan(weights).sum() == 1
    is_finite, losses, weights = finite(nan=False, infinity=True)
    assert not is_finite
    np.testing.assert_array_equal(np.isfinite(losses), [False, True, True])
    assert np.isfinite(weights).all()


def test_an_iteration_is_traced_once():
    traced = []

    def policy(params, observation):
        traced.append(observation.shape)
        return corridor.policy(params, observation)

    learner = dataclasses.replace(small(), policy=policy)
    state = begun(usual()[0])
    run = program(learner)
    types = jax.tree.map(jax.typeof, state)
    state, _ = run(state)
    assert jax.tree.map(jax.typeof, state) == types  # or the second call would be compiled anew
    first = list(traced)
    for _ in range(2):
        state, _ = run(state)
    assert traced == first
    assert {len(shape) for shape in first} == {2, 3}  # to act, to learn


def test_every_trajectory_is_learned_from_once():
    groups, each, steps, updates = 2, 6, 5, 3
    shape = (groups, each, steps)
    number = np.arange(groups * each * steps, dtype=np.int32).reshape(shape)
    logits, flags = number[..., None].astype(np.float32), number < 0
    leaves = (number[..., None], logits, number, number.astype(np.float32), flags, flags)
    parts = jax.device_get(jax.jit(lambda *leaves: cut(rollout.Trajectories(*leaves), updates))(*leaves))
    assert parts.observation.shape == (updates, 4, steps, 1)
    rows = {tuple(row) for row in np.asarray(number).reshape(-1, steps)}
    assert {tuple(row) for row in np.asarray(parts.action).reshape(-1, steps)} == rows
    np.testing.assert_array_equal(parts.observation[..., 0], parts.action)
    of_group = np.asarray(parts.action)[..., 0] // (each * steps)
    np.testing.assert_array_equal(of_group.sum(1), [2] * updates)  # equally many of both groups in each


def test_the_objective_can_have_other_settings():
    """Settings reach the gradient; with other costs at 0 it only affects values."""
    learner = small(objective=functools.partial(impala.objective, entropy_cost=0.0, advantage_rho_bar=0.0))
    params, trajectories, (usually, _) = usual_gradient()
    gradient, losses = jax.device_get(jax.jit(learner.gradient)(params, trajectories))
    assert losses.total == 0.5 * losses.value > 0
    assert not np.any(gradient["weights"][:, :3])
    assert np.any(gradient["weights"][:, 3])
    assert np.any(usually["weights"][:, :3])


def test_the_papers_proportions_are_the_defaults():
    """An update learns from 32 trajectories of 40 steps, made by one group on one device."""
    learner = Learner(corridor.policy, corridor.ENVIRONMENT, impala.optimizer())
    assert (learner.environments // learner.updates, learner.steps, learner.groups) == (32, 40, 1)
    assert learner.environments == 512
    assert learner.objective is impala.objective


def in_boxworld(config=boxworld.BRIDGE, **fields):
    """Returns a learner with an agent, and a function from keys to its parameters."""
    agent = Agent(**fields)

    def policy(params, observation):
        return cast(AgentOutput, agent.apply(params, observation))

    environment = rollout.of_boxworld(config)
    learner = Learner(policy, environment, impala.optimizer(), environments=8, steps=6, updates=2)
    picture = jnp.zeros((1, config.rows, config.cols + 1, 3), jnp.uint8)
    return learner, lambda key: agent.init(key, picture)


def test_an_agent_fits():
    """By tracing only: an iteration returns a state of the same structure."""
    config = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=1, traps=0)
    learner, init = in_boxworld(config, num_blocks=1, conv_features=(4,), head_features=(8,))
    state = jax.eval_shape(lambda key: learner.init(init(key), key), jax.random.key(0))
    following, report = jax.eval_shape(learner.iterate, state)
    chex.assert_trees_all_equal_shapes_and_dtypes(state, following)
    assert report.grad_norm.shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("virtual", [0, 2], ids=["relational", "simplicial"])
def test_the_agents_learn(virtual):
    """An iteration in BoxWorld changes every weight, starts on-policy, and is finite."""
    learner, init = in_boxworld(num_virtual_entities=virtual)
    params = jax.jit(init)(jax.random.key(0))
    before = jax.device_get(params)
    state, report = program(learner)(jax.jit(learner.init)(params, jax.random.key(1)))
    after = jax.device_get(state.params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(after):
        assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    same = [np.array_equal(*leaves) for leaves in zip(*map(jax.tree.leaves, (before, after)), strict=True)]
    assert not any(same)
    losses = jax.tree.map(lambda leaf: leaf[0], report.losses)
    np.testing.assert_array_equal(losses.steps, [20, 20])
    assert losses.ratio[0] == pytest.approx(20, rel=1e-4)
    assert 20 * np.log(4) * 0.8 < losses.entropy[0] <= 20 * np.log(4) * 1.0001
    assert (np.asarray(report.grad_norm) > 0).all()


class Dense(nn.Module):
    """Two dense layers applied to pictures whose floor is shifted to 0."""

    @nn.compact
    def __call__(self, observation):
        inputs = (observation.astype(jnp.float32) - 199) / 64
        hidden = inputs.reshape(*inputs.shape[:-3], -1)
        for _ in range(2):
            hidden = nn.relu(nn.Dense(128)(hidden))
        return corridor.Output(nn.Dense(4)(hidden), nn.Dense(1)(hidden)[..., 0])


@pytest.mark.slow
def test_a_small_board_is_learned():
    """One key and the Gem on 5 x 6 tiles: from over 70 steps per episode to under 15; the shortest is 8.5."""
    config = boxworld.BoxWorldConfig(rows=5, cols=6, gem_locks=1)
    network = Dense()

    def policy(params, observation):
        return cast(corridor.Output, network.apply(params, observation))

    learner = Learner(
        policy, rollout.of_boxworld(config), impala.optimizer(1e-3), environments=256, updates=8
    )
    params = network.init(jax.random.key(0), jnp.zeros((1, 5, 7, 3), jnp.uint8))
    _, report = program(learner, iterations=400)(learner.init(params, jax.random.key(1)))
    tally = jax.tree.map(lambda leaf: leaf.sum(-1), report.tally)
    assert tally.steps[:20].sum() / tally.episodes[:20].sum() > 70
    assert tally.steps[-5:].sum() / tally.episodes[-5:].sum() < 15
    assert (tally.solved == tally.episodes).all(), "there is no trap on this board"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environments": 0}, "environments: got 0, expected an integer of at least 1"),
        ({"steps": 1}, "steps: got 1, expected an integer of at least 2"),
        ({"updates": 1.5}, "updates: got 1.5, expected an integer of at least 1"),
        ({"groups": 0}, "groups: got 0, expected an integer of at least 1"),
        ({"environments": 10}, "environments: got 10, expected a multiple of groups=2 times updates=3"),
        ({"environments": 9}, "environments: got 9, expected a multiple of groups=2 times updates=3"),
    ],
)
def test_learner_refuses(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings)


def test_program_refuses():
    with pytest.raises(ValueError, match="iterations: got 0, expected an integer of at least 1"):
        program(small(), iterations=0)
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    with pytest.raises(ValueError, match=r"mesh: got .*, expected one axis whose size divides groups=2"):
        program(small(), mesh=mesh)
    program(small(), mesh=jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,)))
    with pytest.raises(ValueError, match=r"mesh: got \{'data': 4\}, .* divides groups=2"):
        program(small(), mesh=cast(Any, AbstractMesh((4,), ("data",))))


def test_cut_refuses():
    shapes = (
        ((2, 6, 5, 3), "f4"),
        ((2, 6, 5, 4), "f4"),
        *(((2, 6, 5), dtype) for dtype in ("i4", "f4", "?", "?")),
    )
    trajectories = rollout.Trajectories(*(jnp.asarray(np.zeros(shape, dtype)) for shape, dtype in shapes))
    with pytest.raises(ValueError, match=r"updates: got 4, expected a divisor of 6"):
        cut(trajectories, 4)
