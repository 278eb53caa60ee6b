"""Both models: the authors' outputs, the equations, dependencies, initialisation, dtypes."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tp_transformer import plain, small
from tests.tp_transformer.small import NAMES, apply, build, draw, products, quickly, tokens
from tp_transformer import TPTransformer, Transformer, apply_traced, convert
from tp_transformer.layers import Embedding
from tp_transformer.model import check_tokens, encoder_attention

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SOURCE, TARGET = np.asarray(tokens(2, 6)), np.asarray(tokens(2, 4, seed=1))


def replaced(array, place, value):
    """Returns a copy with another value in some places."""
    copy = np.array(array)
    copy[place] = value
    return copy


PADDED = replaced(SOURCE, np.s_[1, 4:], 0)


@functools.partial(quickly, static_argnums=0)
def gradients(model, params, source, target):
    """Returns gradients of the log-probability of one symbol at every position, with dropout keys."""

    def loss(params):
        rngs = {"dropout": jax.random.key(1)}
        logits = model.apply({"params": params}, source, target, deterministic=False, rngs=rngs)
        return jnp.sum(jax.nn.log_softmax(logits)[..., 4])

    return jax.grad(loss)(params)


@pytest.mark.parametrize("name", NAMES)
def test_logits_of_the_authors_code(name):
    """Within 1e-4 at every target position that is not padding."""
    model, params = small.recorded_model(name)
    golden = small.recorded(name)
    logits = apply(model, params, golden["input/source"], golden["input/target"])
    assert logits.dtype == jnp.float32
    error = np.abs(np.asarray(logits) - golden["output/logits"])
    assert error[golden["input/target"] != 0].max() < 1e-4


def test_logits_of_the_equations_in_float64():
    """Nothing is rounded to float32 but the sinusoids; only padding is ignored, whatever its symbol."""
    params, source = draw(build(TPTransformer), seed=3), replaced(PADDED, np.s_[0, 3:], 2)
    with jax.enable_x64(True):
        model = build(TPTransformer, param_dtype=jnp.float64, pad=2)
        params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
        logits = jax.device_get(apply(model, params, source, TARGET))
        assert logits.dtype == jnp.float64
    state = convert.to_torch(model, params)
    for row in range(2):
        want = plain.logits(state, model.num_heads, model.num_layers, source[row], TARGET[row], pad=2)
        np.testing.assert_allclose(logits[row], want, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("architecture", "vocab_size", "count"),
    [(TPTransformer, 73, 49_178_624), (Transformer, 72, 44_187_648)],
)
def test_parameter_counts(architecture, vocab_size, count):
    """49.2 M (with one symbol more than the default) and 44.2 M, as in the paper."""
    model, row = architecture(vocab_size=vocab_size), jax.ShapeDtypeStruct((1, 3), jnp.int32)
    assert (model.num_heads, model.dropout_rate, architecture().vocab_size) == (8, 0, 72)  # of no size
    params = jax.eval_shape(model.init, jax.random.key(0), row, row)["params"]
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


def test_a_later_symbol_changes_nothing_before_it():
    """A symbol affects only logits at and after its position."""
    model = build(TPTransformer)
    params = draw(model)
    before = jax.device_get(apply(model, params, SOURCE, TARGET))
    for t in range(4):
        other = replaced(TARGET, np.s_[:, t], (TARGET[:, t] - 2) % 8 + 3)
        after = jax.device_get(apply(model, params, SOURCE, other))
        np.testing.assert_array_equal(after[:, :t], before[:, :t])
        assert np.all(np.max(np.abs(after - before), axis=-1)[:, t:] > 1e-4)


def within(array, limit):
    """Asserts that numbers look uniform up to a limit, given the sample size."""
    assert np.max(np.abs(array)) <= limit
    np.testing.assert_allclose(np.std(array), limit / np.sqrt(3), rtol=0.05)


def around_zero(array, limit):
    """Asserts that few numbers are between the limits, on both sides of 0."""
    assert -limit <= np.min(array) < -limit / 2
    assert limit / 2 < np.max(array) <= limit


def initialised(architecture, use, initialization="released"):
    """Initialises the embedding and what `use` uses of the first layer, which compiles less than a model."""
    sizes = {"vocab_size": 72, "features": 64, "filter_features": 160}
    model = build(architecture, **sizes, initialization=initialization)
    cell = jnp.ones((1, 1, 64))

    def some(model):
        if model.binds_roles:
            model.embedding.relation(cell)
        use(model.encoder[0], cell)

    return model.init(jax.random.key(4, impl="rbg"), method=some)["params"]


@pytest.mark.parametrize(
    ("architecture", "initialization", "xavier"),
    [
        (TPTransformer, "released", False),
        (TPTransformer, "xavier", True),
        (Transformer, "released", True),
        (Transformer, "uniform", False),
    ],
)
def test_initialisation_of_attention(architecture, initialization, xavier):
    """`initialization` affects the matrices only."""
    params = initialised(architecture, lambda layer, cell: layer.attention.query(cell, 64), initialization)
    affine = params["encoder_0"]["attention"]["query"]
    within(affine["kernel"], np.sqrt(6 / (2 * 64)) if xavier else 64**-0.5)
    around_zero(affine["bias"], 64**-0.5)


def test_initialisation_of_all_maps():
    """Each matrix, bias and gain of an encoder layer, and both of the embedding."""
    maps = ("query", "key", "value", "role", "output")

    def use(layer, cell):
        for name in maps:
            getattr(layer.attention, name)(cell, 64)
        layer.feed_forward(cell)
        layer.output_norm(cell)

    params = initialised(TPTransformer, use)
    layer, embedding = params["encoder_0"], params["embedding"]
    for name in maps:
        within(layer["attention"][name]["kernel"], 64**-0.5)
        around_zero(layer["attention"][name]["bias"], 64**-0.5)
    for name, inputs in (("hidden", 64), ("output", 160)):
        within(layer["feed_forward"][name]["kernel"], np.sqrt(6 / (64 + 160)))
        around_zero(layer["feed_forward"][name]["bias"], inputs**-0.5)
    np.testing.assert_array_equal(layer["output_norm"]["scale"], 1)
    np.testing.assert_array_equal(layer["output_norm"]["bias"], 0)
    np.testing.assert_allclose(np.std(embedding["tokens"]), 64**-0.5, rtol=0.05)
    np.testing.assert_allclose(np.std(embedding["role"]["kernel"]), 64**-0.5, rtol=0.05)


def test_roles_start_around_one():
    """Embedding roles are initially about N(1, 1), which is why the paper adds 1."""
    module = Embedding(72, 256, binds_roles=True)
    row, none = np.ones((1, 1), np.int32), np.zeros((1, 256), np.float32)
    params = quickly(module.init)(jax.random.key(0, impl="rbg"), row, none)["params"]
    table, role = np.asarray(params["tokens"]), jax.tree.map(np.asarray, params["role"])
    e = table * 16 + np.tile([0.0, 1.0], 128)  # position 0: sin 0, cos 0
    roles = e @ role["kernel"] + role["bias"] + 1
    assert abs(np.mean(roles) - 1) < 0.1
    assert abs(np.std(roles) - np.sqrt(1.5)) < 0.1  # e has 1 of its own and 1/2 of the cosines


def test_types_of_parameters_and_products():
    """All products have the compute dtype, except that rows of the table are looked up as they are."""
    model = build(TPTransformer, dtype=jnp.bfloat16)
    params = draw(model)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    traced = jax.make_jaxpr(model.apply)({"params": params}, PADDED, TARGET)
    out: Any = traced.out_avals
    assert [aval.dtype for aval in out] == [jnp.float32]
    types = [{str(x.aval.dtype) for x in eqn.invars} for eqn in products(traced.jaxpr)]
    lookups = [used for used in types if used != {"bfloat16"}]
    assert lookups == [{"float32"}] * 2
    assert len(types) > 15
    for dtype in (jnp.bfloat16, jnp.float32):
        model = build(TPTransformer, param_dtype=dtype)
        params = jax.eval_shape(model.init, jax.random.key(0), SOURCE, TARGET)["params"]
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}


def test_every_parameter_learns():
    """All but the keys' biases, which add a constant to all logits of a query and do not affect softmax.

    Also with padding; a row of nothing but padding keeps all gradients finite.
    """
    model = build(TPTransformer)
    params = draw(model)
    found = jax.device_get(gradients(model, params, SOURCE, TARGET))
    for path, grad in jax.tree_util.tree_leaves_with_path(found):
        names = [entry.key for entry in path]
        size = np.max(np.abs(grad))
        assert size < 1e-4 if names[-2:] == ["key", "bias"] else size > 1e-3, names
    chex.assert_tree_all_finite(gradients(model, params, replaced(PADDED, 0, 0), TARGET))


@pytest.mark.slow
def test_gradients_in_float64():
    """With 64 bits enabled nothing is rounded to 32; finite differences match the gradient."""
    with jax.enable_x64(True):
        model = build(TPTransformer, param_dtype=jnp.float64)
        params = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), draw(build(TPTransformer), scale=0.3))

        def loss(params):
            logits = model.apply({"params": params}, jnp.asarray(SOURCE), jnp.asarray(TARGET))
            return jnp.sum(jax.nn.log_softmax(logits)[..., 4])

        leaves, treedef = jax.tree.flatten(params)
        way = [jnp.sin(1 + jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape) for x in leaves]
        value, grads = jax.jit(loss), jax.jit(jax.grad(loss))(params)
        ends = [
            value(treedef.unflatten([x + h * d for x, d in zip(leaves, way, strict=True)]))
            for h in (1e-6, -1e-6)
        ]
        slope = sum(jnp.vdot(g, d) for g, d in zip(jax.tree.leaves(grads), way, strict=True))
        np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, slope, rtol=1e-5)


@pytest.mark.slow
def test_time_for_memory_changes_no_gradient():
    """`remat` changes neither parameters nor gradients, with dropout as well."""
    models = [build(TPTransformer, remat=remat, dropout_rate=0.1) for remat in (False, True)]
    found = [gradients(model, draw(model), SOURCE, TARGET) for model in models]
    chex.assert_trees_all_close(*found, rtol=1e-4, atol=1e-5)


def kept(model, stack):
    """Counts the numbers that a stack with dropout keeps for its gradient, besides its parameters."""
    params, dropout = draw(model), jax.random.key(0)
    arguments = (SOURCE,) if stack == "encode" else (TARGET, np.ones((2, 6, 16), np.float32), PADDED != 0)
    arguments = jax.tree.map(jnp.asarray, arguments)

    def forward(params, cells):
        options = {"deterministic": False, "rngs": {"dropout": dropout}, "method": stack}
        return model.apply({"params": params}, *arguments[:1], *cells, *arguments[2:], **options)

    def pullback(params, cells):
        return jax.vjp(forward, params, cells)[1]

    held = jax.eval_shape(pullback, params, arguments[1:2])
    sizes = sum(leaf.size for leaf in jax.tree.leaves(held))
    return sizes - sum(leaf.size for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("stack", ["encode", "decode"])
def test_time_for_memory_keeps_little(stack):
    """Only the inputs of each layer are kept; traced, not compiled."""
    usual, little = (
        kept(build(TPTransformer, remat=remat, dropout_rate=0.1), stack) for remat in (False, True)
    )
    assert little < usual / 3


def test_maps_and_roles_on_request():
    """Weights of all attentions sum to 1 over allowed positions, 0 elsewhere; logits are unchanged."""
    model = build(TPTransformer)
    variables = {"params": draw(model)}
    traced = jax.device_get(quickly(apply_traced, static_argnums=0)(model, variables, PADDED, TARGET))
    usual = apply(model, variables["params"], PADDED, TARGET)
    np.testing.assert_allclose(traced.logits, usual, rtol=1e-5, atol=1e-5)
    shapes = {"encoder": (6, 6), "decoder_self": (4, 4), "decoder_cross": (4, 6)}
    for name, (t, s) in shapes.items():
        attentions = getattr(traced, name)
        assert len(attentions) == model.num_layers
        for attended in attentions:
            assert attended.weights.shape == (2, 4, t, s)
            np.testing.assert_allclose(np.sum(attended.weights, axis=-1), 1, rtol=1e-5)
            if s == 6:
                np.testing.assert_array_equal(attended.weights[1, ..., 4:], 0)
            else:
                np.testing.assert_array_equal(np.triu(attended.weights, 1), 0)
            assert attended.roles.shape == (2, t, 4, 4)
    alone = quickly(encoder_attention, static_argnums=0)(model, variables, PADDED)
    chex.assert_trees_all_close(alone, traced.encoder, rtol=1e-5, atol=1e-6)
    model = build(Transformer)
    without = jax.eval_shape(functools.partial(encoder_attention, model), {"params": draw(model)}, PADDED)
    assert [attended.roles for attended in without] == [None]


def test_a_mask_of_the_source_may_be_that_of_all_rows():
    model = build(TPTransformer)
    params, encoded = {"params": draw(model)}, np.ones((2, 6, 16), np.float32)
    decode = functools.partial(model.apply, params, *map(jnp.asarray, (TARGET, encoded)), method="decode")
    run = quickly(lambda mask: decode(mask))
    np.testing.assert_array_equal(run(PADDED[1] != 0), run(np.stack([PADDED[1] != 0] * 2)))


def test_what_is_refused():
    """Errors name the argument or field."""
    row = tokens(1, 3)
    model = build(TPTransformer)
    variables = {"params": draw(model)}
    for arguments, message in (
        ((row[0], row), "source: got shape"),
        ((row, row.astype(jnp.float32)), "target: got shape .* float32"),
        ((row, tokens(2, 3)), "target: got shape .* batch of 1"),
        ((row[:, :0], row), r"source: got shape \(1, 0\), expected at least one symbol"),
        ((row, row[:, :0]), r"target: got shape \(1, 0\), expected at least one symbol"),
    ):
        with pytest.raises(ValueError, match=message):
            jax.eval_shape(model.apply, variables, *arguments)
    for fields, message in (
        ({"num_heads": 3}, "features: got 16, .* num_heads = 3"),
        ({"features": 15, "num_heads": 5}, "features: got 15, expected an even multiple of num_heads = 5"),
        ({"vocab_size": 0}, "vocab_size: got 0, expected at least 1"),
        ({"features": 0}, "features: got 0, expected at least 1"),
        ({"filter_features": 0}, "filter_features: got 0, expected at least 1"),
        ({"num_heads": 0}, "num_heads: got 0, expected at least 1"),
        ({"dropout_rate": -0.1}, "dropout_rate: got -0.1"),
        ({"pad": -1}, "pad: got -1"),
        ({"num_layers": 0}, "num_layers: got 0"),
        ({"initialization": "other"}, "initialization: got 'other'"),
        ({"dropout_rate": 1.0}, "dropout_rate: got 1.0"),
        ({"pad": 11}, "pad: got 11"),
        ({"end": 11}, "end: got 11"),
        ({"start": 0}, r"pad, start, end: got \(0, 0, None\), expected different ids"),
    ):
        with pytest.raises(ValueError, match=message):
            build(TPTransformer, **fields).init(jax.random.key(0), row, row)


def test_ids_out_of_range_are_refused_where_values_can_be_read():
    """They name the id and its place; inside of jit, an id out of range gives NaN, as documented."""
    model = build(TPTransformer)
    params, wrong = draw(model), replaced(SOURCE, (1, 2), 9999)
    where = "in row 1 at position 2, expected 0 to 10"
    encoded, mask = np.ones((2, 6, 16), np.float32), np.ones((2, 6), bool)
    for arguments, method, message in (
        ((wrong, TARGET), "__call__", f"source: got id 9999 {where}"),
        ((wrong, encoded, mask), "decode", f"target: got id 9999 {where}"),
        ((replaced(SOURCE, (1, 2), -1), TARGET), "__call__", f"source: got id -1 {where}"),
    ):
        with pytest.raises(ValueError, match=message):
            model.apply({"params": params}, *map(jnp.asarray, arguments), method=method)
    with pytest.raises(ValueError, match=f"ids: got id 9999 {where}"):
        check_tokens("ids", np.asarray(wrong), 11)
    for one in (9999, 11, -1, -11):
        traced = np.asarray(apply(model, params, replaced(SOURCE, (1, 2), one), TARGET))
        np.testing.assert_array_equal(np.isnan(traced), np.broadcast_to([[[False]], [[True]]], (2, 4, 11)))
    traced = np.asarray(apply(model, params, SOURCE, replaced(TARGET, (0, 3), 11)))
    np.testing.assert_array_equal(np.isnan(traced), np.broadcast_to([[[True]], [[False]]], (2, 4, 11)))
    with pytest.raises(ValueError, match="source_mask: got dtype float32, expected bool"):
        model.apply({"params": params}, TARGET, encoded, mask.astype(np.float32), method="decode")
