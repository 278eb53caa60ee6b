"""The agents: sizes, a float64 transcription, gradients, batches, seeds, dtypes, errors."""

import re
from typing import Any, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from simplicial import Agent, AgentOutput, apply_with_attention
from simplicial.agent import Conv, grid_positions, max_over_entities
from tests.simplicial import numpy_agent
from tests.simplicial.small import draw, on_host, parameters, quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BRIDGE, STANDARD = (7, 10, 3), (9, 10, 3)


def pictures(seed, *shape):
    """Draws pictures with random colours."""
    return np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8)


def initialised(agent, seed=0, shape=BRIDGE):
    """Initialises the agent's variables."""
    return quickly(agent.init)(jax.random.key(seed), np.zeros(shape, np.uint8))


def in_numpy(variables):
    """Converts parameters to the transcription's format."""
    return jax.tree.map(np.asarray, variables["params"])


@pytest.mark.parametrize(
    ("num_virtual", "num_blocks", "count", "shape"),
    [(0, 2, 239_241, STANDARD), (2, 2, 365_513, BRIDGE), (2, 4, 366_217, BRIDGE)],
)
def test_parameter_counts(num_virtual, num_blocks, count, shape):
    """As the authors' on either board; two more blocks add only LayerNorms."""
    agent = Agent(num_virtual_entities=num_virtual, num_blocks=num_blocks)
    variables = jax.eval_shape(agent.init, jax.random.key(0), np.zeros(shape, np.uint8))
    assert set(variables) == {"params"}
    assert sum(x.size for x in jax.tree.leaves(variables)) == count
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("float32")}


def test_initial_parameters():
    """Glorot limits that count all outputs of a kernel, zero biases, identity LayerNorms."""
    params = initialised(Agent(num_blocks=1, head_features=(256, 256)))["params"]
    limits = {
        ("conv_0",): 6 / (12 + 48),
        ("conv_1",): 6 / (48 + 96),
        ("embed",): 6 / (24 + 62),
        ("transformer", "attention", "qkv"): 6 / (64 + 192),
        ("transformer", "two_simplicial", "qkkv"): 6 / (64 + 192),
        ("transformer", "feed_forward", "hidden"): 6 / (112 + 64),
        ("transformer", "feed_forward", "output"): 6 / (64 + 64),
        ("head_0",): 6 / (64 + 256),
        ("head_1",): 6 / (256 + 256),
        ("logits",): 6 / (256 + 4),
        ("value",): 6 / (256 + 1),
    }
    for path, square in limits.items():
        layer = params
        for name in path:
            layer = layer[name]
        assert 0.9 * square**0.5 < np.abs(layer["kernel"]).max() <= square**0.5, path
    for path, x in jax.tree.leaves_with_path(params):
        if path[-1].key in ("bias", "scale"):
            np.testing.assert_array_equal(x, float(path[-1].key == "scale"))


OTHER_SIZES: dict[str, Any] = {
    "num_actions": 6,
    "features": 12,
    "num_heads": 3,
    "num_two_simplicial_heads": 2,
    "two_simplicial_features": 6,
    "conv_features": (4, 5),
}


@pytest.mark.parametrize(
    ("num_virtual", "batch", "colours", "sizes"),
    [(0, (2,), {"centre": 199.0, "scale": 64.0}, {}), (3, (2, 3), {}, OTHER_SIZES)],
    ids=["relational", "simplicial"],
)
def test_agents_are_the_transcription(num_virtual, batch, colours, sizes):
    """Compares logits, value and every attention weight in float64, for pictures on one or two axes."""
    observation, heads = pictures(1, *batch, 5, 7, 3), sizes.get("num_heads", 2)
    with jax.enable_x64(True):
        agent = Agent(
            num_virtual_entities=num_virtual,
            head_features=(9, 8),
            param_dtype=jnp.float64,
            **{f"input_{name}": value for name, value in colours.items()},
            **sizes,
        )
        variables = parameters(agent, observation)
        output = quickly(lambda v, o: apply_with_attention(agent, v, o))(variables, observation)
        assert jax.eval_shape(agent.apply, variables, observation).attention is None
        nothing = jax.eval_shape(agent.apply, variables, np.zeros((0, *BRIDGE), np.uint8))
        chex.assert_shape(nothing.logits, (0, agent.num_actions))
    for b in np.ndindex(batch):
        logits, value, maps = numpy_agent.agent(
            in_numpy(variables), observation[b].astype(float), heads, **colours
        )
        np.testing.assert_allclose(output.logits[b], logits, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(output.value[b], value, rtol=1e-9, atol=1e-9)
        assert len(output.attention) == 2
        for i, attention in enumerate(output.attention):
            np.testing.assert_allclose(attention.standard[b], maps.standard[i], rtol=1e-8, atol=1e-9)
            if not num_virtual:
                assert attention.virtual is None
                assert attention.pairs is None
                continue
            np.testing.assert_allclose(attention.virtual[b], maps.virtual[i], rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(attention.pairs[b], maps.pairs[i], rtol=1e-8, atol=1e-9)


def test_the_logit_of_pairs_is_the_agents():
    observation = pictures(0, 4, 5, 3)
    agent = Agent(features=8, num_blocks=1, two_simplicial_features=6, conv_features=(4,), head_features=(4,))
    variables = parameters(agent, observation)
    one, other = (
        quickly(agent.clone(logit=logit).apply)(variables, observation).logits
        for logit in ("unsigned", "trilinear")
    )
    assert np.abs(one - other).max() > 1e-3


def test_gradients_are_those_of_the_transcription():
    """Compared with central differences of the NumPy agent along a random direction for each parameter."""
    observation = pictures(1, 4, 5, 3)
    with jax.enable_x64(True):
        agent = Agent(
            param_dtype=jnp.float64,
            num_blocks=1,
            features=12,
            two_simplicial_features=6,
            conv_features=(4,),
            head_features=(9,),
        )
        variables = parameters(agent, observation)

        def loss(variables):
            output: Any = agent.apply(variables, jnp.asarray(observation))
            return jnp.sum(output.logits**2) + output.value**2

        gradient = on_host(jax.grad(loss))(variables)
    params, picture = in_numpy(variables), np.asarray(observation, float)
    leaves, tree = jax.tree.flatten(params)
    random = np.random.default_rng(0)
    for i, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(gradient), strict=True)):
        direction = random.normal(size=leaf.shape) / np.sqrt(leaf.size)

        def moved(step, i=i, direction=direction):
            changed = [x + step * direction if j == i else x for j, x in enumerate(leaves)]
            logits, value, _ = numpy_agent.agent(jax.tree.unflatten(tree, changed), picture)
            return np.sum(logits**2) + value**2

        difference = (moved(1e-6) - moved(-1e-6)) / 2e-6
        np.testing.assert_allclose(np.sum(slope * direction), difference, rtol=2e-5, atol=1e-7)


@pytest.mark.slow  # test_learner.py has an iteration of two seeds by default
def test_seeds_side_by_side():
    """`vmap` over parameters gives each seed the values and gradients it has alone."""
    agent = Agent(num_blocks=1, conv_features=(4,), features=8, two_simplicial_features=4, head_features=(6,))
    observation = jnp.asarray(pictures(1, 2, 4, 5, 3))
    keys = jax.random.split(jax.random.key(0), 2)
    variables = on_host(jax.vmap(lambda key: agent.init(key, observation)))(keys)

    def loss(variables):
        output: Any = agent.apply(variables, observation)
        return jnp.sum(output.logits**2) + jnp.sum(output.value**2)

    step = jax.value_and_grad(loss)
    together, alone = on_host(jax.vmap(step))(variables), on_host(step)
    assert together[0][0] != together[0][1]
    for seed in range(2):
        chex.assert_trees_all_close(
            jax.tree.map(lambda x, s=seed: x[s], together),
            alone(jax.tree.map(lambda x, s=seed: x[s], variables)),
            rtol=1e-3,
            atol=5e-3,  # gradients are up to 150
        )


def test_a_step_is_traced_once():
    """New pictures and parameters do not compile again."""
    agent = Agent(num_blocks=1, head_features=(8,))

    def plain(variables, observation):
        return agent.apply(variables, observation)

    chex.clear_trace_counter()
    apply = jax.jit(chex.assert_max_traces(plain, n=1))
    variables = parameters(agent, pictures(0, *BRIDGE))
    for seed in range(3):  # `jit` keeps what it traced, whether it compiles it or not
        changed = jax.tree.map(lambda leaf, seed=seed: leaf + np.float32(seed), variables)
        jax.eval_shape(apply, changed, pictures(seed, 2, *BRIDGE))


@pytest.mark.slow
def test_first_gradients_in_float32_and_bfloat16():
    """Values and gradients in float32 are close to float64's, those in bfloat16 to float32's, all finite.

    Also for pictures of a single colour, whose entities are nearly equal.
    """
    observation = pictures(1, 6, *BRIDGE)
    variables = initialised(Agent())

    def step(dtype):
        def loss(variables, observation):
            output: Any = Agent(dtype=dtype).apply(variables, observation)
            return jnp.sum(output.logits[:, 0]) + jnp.sum(output.value), output

        return on_host(jax.grad(loss, has_aux=True))

    in_float32 = step(jnp.float32)
    gradient, output = in_float32(variables, observation)
    rounded, half = step(jnp.bfloat16)(variables, observation)
    assert {x.dtype for x in jax.tree.leaves((output, half, rounded))} == {np.dtype("float32")}
    params = jax.tree.map(lambda x: x.astype(np.float64), in_numpy(variables))
    for b in range(2):
        logits, value, _ = numpy_agent.agent(params, observation[b].astype(float))
        np.testing.assert_allclose(output.logits[b], logits, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(output.value[b], value, rtol=1e-4, atol=1e-4)
    difference = np.abs(half.logits - output.logits)
    assert 0 < difference.mean() < 0.02
    assert difference.max() < 0.1
    compared = jax.tree.map(lambda x, y: np.linalg.norm(x - y) / np.linalg.norm(x), gradient, rounded)
    # Rounding adds up towards the first layers; a wrong product would be off by its own size.
    for path, relative in jax.tree.leaves_with_path(compared):
        assert relative < 0.5, jax.tree_util.keystr(path)
    alike = np.broadcast_to(
        np.array([0, 10, 127, 199, 254, 255], np.uint8)[:, None, None, None], (6, *BRIDGE)
    )
    for x in jax.tree.leaves(in_float32(variables, alike)):
        assert np.isfinite(x).all()


def test_parameters_may_be_bfloat16():
    """Logits and value are float32 nevertheless."""
    output, variables = jax.eval_shape(
        Agent(param_dtype=jnp.bfloat16).init_with_output, jax.random.key(0), pictures(1, *BRIDGE)
    )
    assert {x.dtype for x in jax.tree.leaves(variables)} == {jnp.dtype("bfloat16")}
    assert {x.dtype for x in jax.tree.leaves(output)} == {jnp.dtype("float32")}


def test_convolution_is_flax_convolution():
    """Equals `nn.Conv` with the same parameters."""
    x = jnp.asarray(draw(0, 2, 3, 5, 6, 3), jnp.float32)
    ours, theirs = Conv(7), nn.Conv(7, (2, 2), padding="VALID")
    variables = parameters(ours, x)
    got, want = quickly(lambda variables, x: (ours.apply(variables, x), theirs.apply(variables, x)))(
        variables, x
    )
    np.testing.assert_allclose(got, np.maximum(want, 0), rtol=1e-5, atol=1e-6)


def test_positions():
    """Checks the corners of the grid and the formula 2y / (rows - 1) - 1."""
    grid = grid_positions(5, 8)
    np.testing.assert_allclose(grid[[0, 0, 4, 4], [0, 7, 0, 7]], [[-1, -1], [-1, 1], [1, -1], [1, 1]])
    np.testing.assert_allclose(grid[3, 2], [2 * 3 / 4 - 1, 2 * 2 / 7 - 1])


@pytest.mark.parametrize(
    ("agent", "observation", "message"),
    [
        (Agent(), np.zeros(BRIDGE, np.float32), "observation: got dtype float32, expected uint8"),
        (Agent(), np.zeros(BRIDGE, np.int32), "observation: got dtype int32"),
        (Agent(), np.zeros((7, 10), np.uint8), "observation: got shape (7, 10), expected [..., R, C+1, 3]"),
        (Agent(), np.zeros((10, 3), np.uint8), "observation: got shape (10, 3)"),
        (Agent(), np.zeros((3, 7, 10), np.uint8), "observation: got shape (3, 7, 10)"),
        (Agent(), np.zeros((2, 10, 3), np.uint8), "of at least 3"),
        (
            Agent(num_heads=3),
            np.zeros(BRIDGE, np.uint8),
            "num_heads: got 3, expected a divisor of features = 64",
        ),
        (Agent(num_two_simplicial_heads=5), np.zeros(BRIDGE, np.uint8), "num_heads: got 5"),
        (Agent(num_virtual_entities=-1), np.zeros(BRIDGE, np.uint8), "num_virtual_entities: got -1"),
        (Agent(num_blocks=0), np.zeros(BRIDGE, np.uint8), "num_blocks: got 0"),
        (Agent(num_actions=0), np.zeros(BRIDGE, np.uint8), "num_actions: got 0"),
        (Agent(features=2), np.zeros(BRIDGE, np.uint8), "features: got 2"),
        (Agent(input_scale=0.0), np.zeros(BRIDGE, np.uint8), "input_scale: got 0.0, expected a positive"),
        (Agent(conv_features=(4, 0)), np.zeros(BRIDGE, np.uint8), "conv_features: got (4, 0)"),
        (Agent(head_features=(0,)), np.zeros(BRIDGE, np.uint8), "head_features: got (0,)"),
        (Agent(), np.zeros((7, 2, 3), np.uint8), "observation: got shape (7, 2, 3)"),
    ],
)
def test_what_does_not_fit_is_named(agent, observation, message):
    """Errors name the argument or field and state what was expected."""
    with pytest.raises(ValueError, match=re.escape(message)):
        jax.eval_shape(lambda key: agent.init(key, observation), jax.random.key(0))


def test_any_positive_scale_is_accepted():
    agent = Agent(num_virtual_entities=0, input_scale=0.5, conv_features=(4,), head_features=())
    output, _ = jax.eval_shape(agent.init_with_output, jax.random.key(0), np.zeros(BRIDGE, np.uint8))
    assert output.logits.shape == (4,)


def test_the_smallest_sizes():
    """One feature beside the position, and one action."""
    agent = Agent(
        features=3, num_heads=1, num_blocks=1, num_actions=1, conv_features=(1,), head_features=(1,)
    )
    variables = jax.eval_shape(
        lambda key: agent.init(key, jnp.asarray(pictures(0, 2, 2, 3))), jax.random.key(0)
    )
    assert variables["params"]["logits"]["kernel"].shape == (1, 1)


@pytest.mark.slow
def test_the_gradient_does_not_depend_on_how_a_batch_is_cut():
    """Sizes at which a compiler computed entities twice, so that none equalled the maximum."""
    agent = Agent(num_virtual_entities=0, features=6, head_features=(6,))
    pictures = jnp.asarray(np.random.default_rng(0).integers(0, 256, (20, 5, 7, 3), np.uint8))
    params = agent.init(jax.random.key(1), pictures[:1])["params"]
    weights = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)

    def total(params, pictures, weights):
        output = cast(AgentOutput, agent.apply({"params": params}, pictures))
        return jnp.sum(output.logits * weights)

    gradient = jax.jit(jax.grad(total))
    whole = gradient(params, pictures, weights)
    parts = [gradient(params, pictures[i : i + 10], weights[i : i + 10]) for i in range(0, 20, 10)]
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(jax.tree.map(sum_of, *parts)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def sum_of(*leaves):
    return np.sum(leaves, axis=0)


def test_of_equal_entities_the_first_is_learned_from():
    """With a last LayerNorm of gain 0 all entities equal its bias, yet one alone moves the gain."""
    agent = Agent(
        num_virtual_entities=0, num_blocks=1, features=6, conv_features=(4,), head_features=(), num_actions=3
    )
    picture = pictures(2, 3, 4, 3)
    params = parameters(agent, picture)["params"]
    last = params["transformer"]["block_0"]["output_norm"]

    def with_gain(gain):
        block = {**params["transformer"]["block_0"], "output_norm": {"scale": gain, "bias": last["bias"]}}
        return {**params, "transformer": {**params["transformer"], "block_0": block}}

    def logit(gain):
        output: Any = agent.apply({"params": with_gain(gain)}, jnp.asarray(picture))
        return output.logits[1]

    def entities(gain):
        seen = agent.apply(
            {"params": with_gain(gain)},
            jnp.asarray(picture),
            capture_intermediates=lambda module, _: module.name == "transformer",
            mutable=["intermediates"],
        )
        return seen[1]["intermediates"]["transformer"]["__call__"][0]

    slope = on_host(jax.grad(logit))(np.zeros(6, np.float32))
    normed = quickly(entities)(np.ones(6, np.float32)) - last["bias"]  # [6 entities, 6 features]
    wanted = params["logits"]["kernel"][:, 1] * normed
    np.testing.assert_allclose(slope, wanted[0], rtol=1e-4, atol=1e-5)
    assert np.abs(wanted[0] - wanted.mean(axis=0)).max() > 0.1


def test_the_maximum_and_its_derivative():
    """Of several equal entities, the first receives the gradient."""
    entities = jnp.asarray([[[1.0, 5.0], [3.0, 5.0], [3.0, 2.0]]])
    pooled, back = jax.vjp(max_over_entities, entities)
    np.testing.assert_array_equal(pooled, [[3.0, 5.0]])
    np.testing.assert_array_equal(back(jnp.asarray([[10.0, 20.0]]))[0], [[[0, 20], [10, 0], [0, 0]]])
    _, tangent = jax.jvp(max_over_entities, (entities,), (jnp.arange(6.0).reshape(1, 3, 2),))
    np.testing.assert_array_equal(tangent, [[2.0, 1.0]])
