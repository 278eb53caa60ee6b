"""V-trace against the paper's sums in float64 and its theorem; loss and optimiser against NumPy."""

import dataclasses
import itertools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.runtime import Sums
from experiments.runtime.training import local_gradient
from simplicial import impala, rollout
from tests.simplicial import plain_impala

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BAR_NAMES = ("rho_bar", "c_bar", "advantage_rho_bar")
v_trace = jax.jit(impala.v_trace, static_argnames=BAR_NAMES)
loss_of = jax.jit(impala.loss, static_argnames=("discount", "entropy_cost", "value_cost", *BAR_NAMES))

BARS = [(1.0, 1.0, 1.0), (2.0, 0.5, 1.5), (math.inf, math.inf, math.inf), (1.0, 0.0, 0.0)]


def drawn(rng, shape):
    """Draws arguments of V-trace with some ends of episodes and ratios on both sides of the bars."""
    return {
        "log_ratio": rng.normal(size=shape),
        "discount": 0.99 * (rng.random(shape) > 0.15),
        "reward": rng.normal(size=shape),
        "value": rng.normal(size=shape),
        "bootstrap": rng.normal(size=shape[:-1]),
        "valid": rng.random(shape) > 0.15,
    }


def plain(arguments, bars):
    """Computes the same in NumPy, one trajectory at a time."""
    shape = arguments["reward"].shape
    parts = [
        plain_impala.v_trace(**{name: array[index] for name, array in arguments.items()}, bars=bars)
        for index in np.ndindex(shape[:-1])
    ]
    return [np.reshape(part, shape) for part in zip(*parts, strict=True)]


def named(bars):
    return dict(zip(BAR_NAMES, bars, strict=True))


@pytest.mark.parametrize("bars", BARS)
@pytest.mark.parametrize("shape", [(1,), (4, 7), (2, 3, 11)])
def test_v_trace_is_the_papers_sum(shape, bars):
    arguments = drawn(np.random.default_rng(0), shape)
    target, advantage = plain(arguments, bars)
    with jax.enable_x64(True):
        trace = v_trace(**{k: jnp.asarray(v) for k, v in arguments.items()}, **named(bars))
        assert trace.target.dtype == jnp.float64
    np.testing.assert_allclose(trace.target, target, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(trace.advantage, advantage, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bars", [BARS[0], BARS[2]])
def test_v_trace_in_single_precision(bars):
    arguments = drawn(np.random.default_rng(7), (4, 39))
    target, _ = plain(arguments, bars)
    single = {k: jnp.asarray(v, v.dtype if v.dtype == bool else jnp.float32) for k, v in arguments.items()}
    trace = v_trace(**single, **named(bars))
    size = np.abs(target).max()  # products of unclipped ratios reach thousands
    np.testing.assert_allclose(trace.target, target, rtol=2e-5, atol=2e-6 * size)


def test_on_policy_it_is_the_n_step_return():
    rng = np.random.default_rng(1)
    reward, value, bootstrap = rng.normal(size=39), rng.normal(size=39), rng.normal()
    returns = bootstrap
    wanted = [returns := r + 0.99 * returns for r in reward[::-1]][::-1]
    trace = v_trace(
        jnp.zeros(39), jnp.full(39, 0.99), jnp.asarray(reward), jnp.asarray(value), jnp.asarray(bootstrap)
    )
    np.testing.assert_allclose(trace.target, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(trace.advantage, wanted - value, rtol=1e-5, atol=1e-5)


def test_without_traces_it_is_the_one_step_target():
    """With c_bar = 0 no information travels back."""
    arguments = drawn(np.random.default_rng(2), (39,))
    del arguments["valid"]
    trace = v_trace(**{k: jnp.asarray(v) for k, v in arguments.items()}, c_bar=0.0)
    following = np.append(arguments["value"][1:], arguments["bootstrap"])
    delta = arguments["reward"] + arguments["discount"] * following - arguments["value"]
    wanted = arguments["value"] + np.minimum(np.exp(arguments["log_ratio"]), 1) * delta
    np.testing.assert_allclose(trace.target, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rho_bar", [0.3, 1.0, 1.6, math.inf])
def test_fixed_point_is_the_value_of_the_clipped_policy(rho_bar):
    """Theorem 1: the expectation preserves the value of pi_rho ~ min(rho_bar mu, pi), and no other.

    Expectations are exact sums over all action sequences of a problem with three states and two actions.
    """
    steps, gamma = 3, 0.9
    after = np.asarray([[1, 2], [2, 0], [0, 1]])
    reward = np.asarray([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.2]])
    mu = np.asarray([[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]])
    pi = np.asarray([[0.3, 0.7], [0.6, 0.4], [0.9, 0.1]])

    def value_of(policy):
        transitions = np.zeros((3, 3))
        for state, action in itertools.product(range(3), range(2)):
            transitions[state, after[state, action]] += policy[state, action]
        return np.linalg.solve(np.eye(3) - gamma * transitions, (policy * reward).sum(1))

    clipped = np.minimum(rho_bar * mu, pi)
    clipped /= clipped.sum(1, keepdims=True)

    def expected(value):
        total = np.zeros(3)
        for start, actions in itertools.product(range(3), itertools.product(range(2), repeat=steps)):
            states = [start]
            for action in actions:
                states.append(after[states[-1], action])
            visited = states[:-1]
            probability = np.prod(mu[visited, actions])
            with jax.enable_x64(True):
                trace = v_trace(
                    jnp.log(pi[visited, actions] / mu[visited, actions]),
                    jnp.full(steps, gamma, jnp.float64),
                    jnp.asarray(reward[visited, actions]),
                    jnp.asarray(value[visited]),
                    jnp.asarray(value[states[-1]]),
                    rho_bar=rho_bar,
                    c_bar=min(rho_bar, 1.0),
                )
            total[start] += probability * float(trace.target[0])
        return total

    np.testing.assert_allclose(expected(value_of(clipped)), value_of(clipped), rtol=1e-12)
    assert np.abs(expected(value_of(mu)) - value_of(mu)).max() > 0.01
    if rho_bar < 2:
        assert np.abs(expected(value_of(pi)) - value_of(pi)).max() > 0.01


def test_a_step_broken_off_parts_the_trajectory():
    """Earlier steps bootstrap from its value; later steps are unaffected by earlier ones."""
    arguments, broken = drawn(np.random.default_rng(3), (5, 12)), 7
    arguments["valid"] = np.tile(np.arange(12) != broken, (5, 1))

    def trace(steps, bootstrap):
        some = {k: v[:, steps] for k, v in arguments.items() if k != "bootstrap"}
        of_float32 = {k: jnp.asarray(v, v.dtype if v.dtype == bool else jnp.float32) for k, v in some.items()}
        return jax.device_get(v_trace(**of_float32, bootstrap=jnp.asarray(bootstrap, jnp.float32)))

    whole = trace(slice(None), arguments["bootstrap"])
    before = trace(slice(broken), arguments["value"][:, broken])
    behind = trace(slice(broken + 1, None), arguments["bootstrap"])
    for name in ("target", "advantage"):
        got = getattr(whole, name)
        np.testing.assert_allclose(got[:, :broken], getattr(before, name), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[:, broken + 1 :], getattr(behind, name), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(whole.target[:, broken], np.float32(arguments["value"][:, broken]))
    np.testing.assert_array_equal(whole.advantage[:, broken], 0)


@pytest.mark.parametrize("log_ratio", [-1e4, 1e4])
def test_ratios_beyond_floating_point_stay_finite(log_ratio):
    trace = v_trace(jnp.full(9, log_ratio), jnp.full(9, 0.99), jnp.ones(9), jnp.zeros(9), jnp.float32(1))
    left = 0.99 ** np.arange(9, 0, -1)
    wanted = np.zeros(9) if log_ratio < 0 else left + (1 - left) / 0.01  # 1 at the end and at each step
    np.testing.assert_allclose(trace.target, wanted, rtol=1e-5)


def test_nothing_is_learned_through_the_targets():
    arguments = {k: jnp.asarray(v, jnp.float32) for k, v in drawn(np.random.default_rng(4), (3, 6)).items()}
    valid = arguments.pop("valid") > 0

    def total(arguments):
        trace = v_trace(**arguments, valid=valid)
        return jnp.sum(trace.target + trace.advantage)

    for slope in jax.tree.leaves(jax.jit(jax.grad(total))(arguments)):
        np.testing.assert_array_equal(slope, np.zeros(slope.shape))


def test_half_precision_is_summed_in_single():
    arguments = drawn(np.random.default_rng(5), (39,))
    valid = jnp.asarray(arguments.pop("valid"))
    half = {k: np.asarray(v, jnp.bfloat16) for k, v in arguments.items()}
    trace = v_trace(**{k: jnp.asarray(v) for k, v in half.items()}, valid=valid)
    exact = v_trace(**{k: jnp.asarray(v.astype(np.float32)) for k, v in half.items()}, valid=valid)
    chex.assert_trees_all_close(trace, exact, rtol=1e-5)
    assert trace.target.dtype == jnp.float32


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"discount": jnp.ones((2, 4))}, r"discount: got shape \(2, 4\), expected \(2, 5\)"),
        ({"reward": jnp.ones(5)}, r"reward: got shape \(5,\), expected \(2, 5\)"),
        ({"value": jnp.ones((2, 6))}, r"value: got shape \(2, 6\), expected \(2, 5\)"),
        ({"valid": jnp.ones((2, 1), bool)}, r"valid: got shape \(2, 1\), expected \(2, 5\)"),
        (
            {"bootstrap": jnp.ones((2, 1))},
            r"bootstrap: got shape \(2, 1\), expected \(2,\), .* without time",
        ),
        (
            {"log_ratio": jnp.float32(0)},
            r"log_ratio: got shape \(\), expected a last axis",
        ),
        ({"log_ratio": jnp.ones((2, 0))}, r"log_ratio: got shape \(2, 0\), expected a last axis"),
        ({"c_bar": 1.5}, r"c_bar: got 1.5, expected a number between 0 and rho_bar = 1.0"),
        ({"c_bar": math.nan}, r"c_bar: got nan, expected a number between 0 and rho_bar = 1.0"),
        ({"rho_bar": -1.0, "c_bar": 0.0}, r"c_bar: got 0.0, expected a number between 0 and rho_bar = -1.0"),
        ({"c_bar": -0.5}, r"c_bar: got -0.5, expected a number between 0 and rho_bar = 1.0"),
        ({"advantage_rho_bar": -0.1}, r"advantage_rho_bar: got -0.1, expected at least 0"),
        ({"advantage_rho_bar": math.nan}, r"advantage_rho_bar: got nan, expected at least 0"),
    ],
)
def test_v_trace_refuses(changed, message):
    arguments = {name: jnp.ones((2, 5)) for name in ("log_ratio", "discount", "reward", "value")}
    with pytest.raises(ValueError, match=message):
        v_trace(**{**arguments, "bootstrap": jnp.ones(2), **changed})


def batch(seed=0, shape=(5, 9), actions=4):
    """Draws logits, values and trajectories with both kinds of ends, also at the last step."""
    rng = np.random.default_rng(seed)
    terminated = rng.random(shape) < 0.2
    terminated[:2, -1] = True, False
    arrays = {
        "logits": rng.normal(size=(*shape, actions)).astype(np.float32),
        "action": rng.integers(0, actions, shape, dtype=np.int32),
        "reward": rng.normal(size=shape).astype(np.float32),
        "terminated": terminated,
        "truncated": ~terminated & (rng.random(shape) < 0.2),
    }
    arrays["truncated"][1, -1] = True
    logits = rng.normal(size=(*shape, actions)).astype(np.float32)
    return logits, rng.normal(size=shape).astype(np.float32), arrays


def trajectories_of(arrays):
    observation = jnp.zeros((*arrays["action"].shape, 2), jnp.uint8)
    return rollout.Trajectories(observation, **{name: jnp.asarray(array) for name, array in arrays.items()})


@pytest.mark.parametrize(
    "settings",
    [{}, {"bars": (2.0, 0.5, 1.5), "gamma": 0.8, "entropy_cost": 0.3, "value_cost": 2.0}],
    ids=["paper", "others"],
)
def test_loss_and_gradient_are_those_of_plain_numpy(settings):
    logits, value, arrays = batch()
    wanted, by_logits, by_value = plain_impala.loss(logits, value, arrays, **settings)
    ours = dict(settings)
    if settings:
        ours |= {"discount": ours.pop("gamma"), **named(ours.pop("bars"))}

    def total(logits, value):
        losses = loss_of(logits, value, trajectories_of(arrays), **ours)
        return losses.total, losses

    gradient = jax.jit(jax.grad(total, argnums=(0, 1), has_aux=True))
    gradients, losses = gradient(jnp.asarray(logits), jnp.asarray(value))
    assert {leaf.dtype for leaf in jax.tree.leaves(losses)} == {jnp.dtype("float32")}
    assert 0 < wanted["ratio"] < wanted["steps"] < arrays["truncated"][:, :-1].size
    for name, number in wanted.items():
        np.testing.assert_allclose(getattr(losses, name), number, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(gradients[0], by_logits, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(gradients[1], by_value, rtol=1e-4, atol=1e-6)


def test_losses_of_parts_add_up():
    logits, value, arrays = batch(1, shape=(10, 9))
    whole = loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(arrays))
    parts = [
        loss_of(
            jnp.asarray(logits[some]),
            jnp.asarray(value[some]),
            trajectories_of({name: array[some] for name, array in arrays.items()}),
        )
        for some in (slice(0, 5), slice(5, 10))
    ]
    chex.assert_trees_all_close(jax.tree.map(np.add, *jax.device_get(parts)), whole, rtol=1e-5)


def test_the_last_step_only_bootstraps():
    """Its action and reward have no effect; its value does."""
    logits, value, arrays = batch(2)
    losses = loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(arrays))
    other = {name: array.copy() for name, array in arrays.items()}
    for name in ("terminated", "truncated"):
        other[name][:, -1] ^= True
    other["action"][:, -1] = 3 - other["action"][:, -1]
    other["reward"][:, -1] += 1
    other["logits"][:, -1, 0] += 1
    chex.assert_trees_all_equal(
        loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(other)), losses
    )
    value[:, -1] += 1
    moved = loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(arrays))
    assert abs(moved.value - losses.value) > 0.01


def test_a_truncated_step_teaches_nothing():
    logits, value, arrays = batch(4)
    losses = loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(arrays))
    other = dict(arrays, reward=np.where(arrays["truncated"], 100, arrays["reward"]).astype(np.float32))
    assert (other["reward"] != arrays["reward"]).any()
    chex.assert_trees_all_equal(
        loss_of(jnp.asarray(logits), jnp.asarray(value), trajectories_of(other)), losses
    )


def test_flags_may_be_integers():
    logits, value, arrays = batch(4)
    flags = trajectories_of(arrays)
    numbers = jax.tree.map(lambda leaf: leaf.astype(np.int32) if leaf.dtype == bool else leaf, flags)
    losses, same = (loss_of(jnp.asarray(logits), jnp.asarray(value), of) for of in (flags, numbers))
    chex.assert_trees_all_equal(losses, same)


def test_an_action_that_is_ruled_out_is_as_if_it_were_not_there():
    """A logit of -inf adds nothing to the entropy and has no gradient."""
    logits, value, arrays = batch(5)
    some = jnp.asarray(logits), jnp.asarray(value), trajectories_of(arrays)

    def widened(x):
        return jnp.pad(x, [(0, 0), (0, 0), (0, 1)], constant_values=-jnp.inf)

    more = widened(some[0]), some[1], dataclasses.replace(some[2], logits=widened(some[2].logits))

    def total(logits, value, trajectories):
        losses = loss_of(logits, value, trajectories)
        return losses.total, losses

    (wanted, losses), (got, others) = (jax.jit(jax.grad(total, has_aux=True))(*of) for of in (some, more))
    chex.assert_trees_all_close(others, losses, rtol=1e-5)
    np.testing.assert_allclose(got[..., :-1], wanted, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(got[..., -1], 0)


def test_the_runtime_takes_the_loss():
    """Sums with a denominator of 1, so that the optimiser receives the summed gradient."""
    logits, value, arrays = batch(5)
    params = {"logits": jnp.asarray(logits), "value": jnp.asarray(value)}

    def loss(params, batch, key):
        losses = loss_of(params["logits"], params["value"], batch)
        return Sums(losses.total, 1, losses.means())

    gradient, sums = local_gradient(loss, params, trajectories_of(arrays), jax.random.key(0))
    wanted, by_logits, _ = plain_impala.loss(logits, value, arrays)
    np.testing.assert_allclose(gradient["logits"], by_logits, rtol=1e-4, atol=1e-6)
    for name, (numerator, denominator) in sums.metrics.items():
        np.testing.assert_allclose(numerator / denominator, wanted[name] / wanted["steps"], rtol=1e-5)


def test_two_steps_are_enough_and_values_of_low_precision_are_widened():
    logits, value, arrays = batch(6, shape=(3, 2))
    low = jnp.asarray(logits, jnp.bfloat16), jnp.asarray(value, jnp.bfloat16)
    losses = jax.jit(loss_of)(*low, trajectories_of(arrays))
    rounded = [np.asarray(x, np.float32) for x in low]
    wanted, *_ = plain_impala.loss(rounded[0], rounded[1], arrays)
    for name, number in wanted.items():
        np.testing.assert_allclose(getattr(losses, name), number, rtol=1e-5, err_msg=name)


def changed(**arrays):
    return {name: jnp.asarray(array) for name, array in {**batch()[2], **arrays}.items()}


@pytest.mark.parametrize(
    ("logits", "value", "arrays", "message"),
    [
        ((5, 9), (5, 9), {}, r"^logits: got shape \(5, 9\), expected .* = \(5, 9\)"),
        ((5, 8, 4), (5, 9), {}, r"^logits: got shape \(5, 8, 4\), expected .* = \(5, 9\)"),
        ((5, 9, 3), (5, 9), {}, r"trajectories.logits: got shape \(5, 9, 4\), expected \(5, 9, 3\)"),
        ((5, 9, 4), (5, 9, 1), {}, r"value: got shape \(5, 9, 1\), expected \(5, 9\)"),
        (
            (5, 9, 4),
            (5, 9),
            {"reward": np.zeros(9)},
            r"trajectories.reward: got shape \(9,\), expected \(5, 9\)",
        ),
        ((5, 9, 4), (5, 9), {"truncated": np.zeros((5, 8))}, r"trajectories.truncated: got shape \(5, 8\)"),
        ((5, 9, 4), (5, 9), {"terminated": np.zeros(())}, r"trajectories.terminated: got shape \(\)"),
        (
            (5, 1, 4),
            (5, 1),
            {"action": np.zeros((5, 1))},
            r"trajectories.action: got shape \(5, 1\), expected .* two steps",
        ),
        (
            (9, 4),
            (9,),
            {"action": np.zeros(9)},
            r"trajectories.action: got shape \(9,\), expected \[B, T\]",
        ),
    ],
)
def test_loss_refuses(logits, value, arrays, message):
    with pytest.raises(ValueError, match=message):
        loss_of(
            jnp.zeros(logits),
            jnp.zeros(value),
            rollout.Trajectories(jnp.zeros((5, 9, 2)), **changed(**arrays)),
        )


def test_optimizer_is_tensorflows_rmsprop():
    """Also after the accumulator has forgotten its start, and on both sides of the clip."""
    rng = np.random.default_rng(6)
    settings = {"max_norm": 3.0, "decay": 0.9, "epsilon": 0.3}
    optimizer = impala.optimizer(0.01, **settings)
    params = jnp.asarray(rng.normal(size=(4, 3)), jnp.float32)
    state = optimizer.init(params)
    wanted, accumulator = np.float64(params), np.ones((4, 3))
    norms = []
    for scale in np.geomspace(0.1, 10, 40):
        gradient = rng.normal(size=(4, 3)) * scale
        norms.append(np.linalg.norm(gradient))
        updates, state = optimizer.update(jnp.asarray(gradient, jnp.float32), state, params)
        params = optax.apply_updates(params, updates)
        wanted, accumulator = plain_impala.rmsprop(
            wanted, accumulator, gradient, learning_rate=0.01, **settings
        )
    assert min(norms) < 3 < max(norms)
    np.testing.assert_allclose(np.asarray(params), wanted, rtol=1e-5)


def test_optimizer_has_the_papers_settings():
    """One step from 0 with a gradient far above the clip, computed by hand."""
    optimizer = impala.optimizer()
    gradient = jnp.asarray([600.0, 800.0])
    updates, _ = optimizer.update(gradient, optimizer.init(jnp.zeros(2)), jnp.zeros(2))
    clipped = np.asarray([24.0, 32.0])
    wanted = -2e-4 * clipped / np.sqrt(0.99 + 0.01 * clipped**2 + 0.1)
    np.testing.assert_allclose(np.asarray(updates), wanted, rtol=1e-6)
