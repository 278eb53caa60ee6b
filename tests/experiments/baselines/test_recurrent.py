"""Recurrent cells and their encoder against loops in NumPy; group products, masks, the past and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from experiments.baselines import (
    LSTM,
    ContentNTMCell,
    DeltaNetCell,
    DeltaProductCell,
    FullMatrixCell,
    MLPOperatorCell,
    RecurrentEncoder,
)
from experiments.baselines import linear_rnn as lin
from llrnn import cells as llrnn_cells
from tests.experiments.baselines import oracles

pytestmark = pytest.mark.usefixtures("compiled_quickly")

B, N, D = 2, 5, 6
INPUTS = np.random.default_rng(1).normal(size=(B, N, D)).astype(np.float32)
MASK = np.array([[True] * N, [False, True, True, False, True]])
CELLS = {
    "lstm": nn.OptimizedLSTMCell(4),
    "full": FullMatrixCell(4),
    "full, bounded": FullMatrixCell(4, column_norm=1.2),
    "delta, positive": DeltaNetCell(2, 3, negative_eigenvalues=False),
    "product": DeltaProductCell(2, 3, num_householder=3),
    "ntm": ContentNTMCell(4, 5, 3, num_read_heads=2, num_write_heads=2, max_shift=2, initial_memory=0.3),
}
DRAWN = {"full": 0.3, "full, bounded": 0.6}
"""Scales of drawn parameters; 0.5 for the others."""


def lstm(p, x, size):
    """Outputs of one sequence."""
    c, h, outputs = np.zeros(size), np.zeros(size), []
    for row in x:
        gate = {name: oracles.dense(p[f"i{name}"], row) + oracles.dense(p[f"h{name}"], h) for name in "ifgo"}
        c = oracles.sigmoid(gate["f"]) * c + oracles.sigmoid(gate["i"]) * np.tanh(gate["g"])
        h = oracles.sigmoid(gate["o"]) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs)


def full_matrix(cell, p, x):
    h, outputs = np.zeros(cell.features), []
    for row in x:
        matrix = oracles.dense(p["transition"], row).reshape(cell.features, cell.features)
        if cell.column_norm is not None:
            for j in range(cell.features):
                norm = (np.abs(matrix[:, j]) ** cell.column_norm).sum() ** (1 / cell.column_norm)
                matrix[:, j] /= max(norm, 1)
        h = matrix @ h + row @ p["input"]["kernel"]
        outputs.append(h)
    return np.stack(outputs)


def delta(cell, p, x):
    """Transitions as matrices, multiplied one after the other."""
    heads, size, steps = cell.num_heads, cell.head_features, cell.num_householder
    states, outputs = np.zeros((heads, size, size)), []

    def silu(y):
        return y * oracles.sigmoid(y)

    def projected(name, row, *shape):
        return oracles.dense(p[name], row).reshape(*shape)

    for row in x:
        q = silu(projected("query", row, heads, size))
        k, v = (silu(projected(name, row, steps, heads, size)) for name in ("key", "value"))
        beta = oracles.sigmoid(projected("beta", row, steps, heads)) * (1 + cell.negative_eigenvalues)
        output = []
        for h in range(heads):
            for j in range(steps):
                key = k[j, h] / np.linalg.norm(k[j, h])
                householder = np.eye(size) - beta[j, h] * np.outer(key, key)
                states[h] = states[h] @ householder + beta[j, h] * np.outer(v[j, h], key)
            o = states[h] @ (q[h] / np.linalg.norm(q[h]))
            output.append(o / np.sqrt((o**2).mean() + 1e-5) * p["norm"]["scale"])
        outputs.append(np.concatenate(output))
    return np.stack(outputs)


def ntm(cell, p, x):
    """Graves et al., equations 2 to 9, head by head and location by location."""
    count, width, size = cell.num_locations, cell.location_features, cell.features
    reading, heads = cell.num_read_heads, cell.num_read_heads + cell.num_write_heads
    memory = np.full((count, width), cell.initial_memory)
    weights = [np.eye(count)[0] for _ in range(heads)]
    reads = [np.zeros(width) for _ in range(reading)]
    c, h, outputs = np.zeros(size), np.zeros(size), []

    def softplus(y):
        return np.log1p(np.exp(y))

    for row in x:
        seen = np.concatenate([row, *reads])
        q = p["controller"]
        gate = {name: oracles.dense(q[f"i{name}"], seen) + oracles.dense(q[f"h{name}"], h) for name in "ifgo"}
        c = oracles.sigmoid(gate["f"]) * c + oracles.sigmoid(gate["i"]) * np.tanh(gate["g"])
        h = oracles.sigmoid(gate["o"]) * np.tanh(c)
        head = {
            name: oracles.dense(p[name], h).reshape(-1, size)
            for name, size in {
                "key": width,
                "beta": 1,
                "gate": 1,
                "shifts": 2 * cell.max_shift + 1,
                "gamma": 1,
                "erase": width,
                "add": width,
            }.items()
        }
        new = []
        for a in range(heads):
            k = head["key"][a]
            cosine = [k @ m / (np.linalg.norm(k) * np.linalg.norm(m)) for m in memory]  # (6)
            content = oracles.softmax(softplus(head["beta"][a]) * np.array(cosine))  # (5)
            g = oracles.sigmoid(head["gate"][a])
            gated = g * content + (1 - g) * weights[a]  # (7)
            s = oracles.softmax(head["shifts"][a])
            moved = np.zeros(count)
            for i in range(count):
                for j in range(count):
                    for shift in range(-cell.max_shift, cell.max_shift + 1):
                        if (i - j - shift) % count == 0:
                            moved[i] += gated[j] * s[shift + cell.max_shift]  # (8)
            power = moved ** (1 + softplus(head["gamma"][a]))
            new.append(power / power.sum())  # (9)
        weights = new
        written = memory.copy()
        for a in range(cell.num_write_heads):
            for i in range(count):
                written[i] *= 1 - weights[reading + a][i] * oracles.sigmoid(head["erase"][a])  # (3)
        for a in range(cell.num_write_heads):
            for i in range(count):
                written[i] += weights[reading + a][i] * head["add"][a]  # (4)
        memory = written
        reads = [sum(weights[a][i] * memory[i] for i in range(count)) for a in range(reading)]  # (2)
        outputs.append(np.concatenate([h, *reads]))
    return np.stack(outputs)


def outputs(cell, p, x):
    """What a cell returns after each row of one sequence."""
    if isinstance(cell, nn.OptimizedLSTMCell):
        return lstm(p, x, cell.features)
    return {FullMatrixCell: full_matrix, ContentNTMCell: ntm}.get(type(cell), delta)(cell, p, x)


@pytest.mark.parametrize("name", CELLS)
def test_cells_in_flax_rnn_against_numpy(name):
    rnn = nn.RNN(CELLS[name])
    variables = oracles.drawn(rnn, INPUTS, scale=DRAWN.get(name, 0.5))
    p = oracles.wide(variables)["cell"]
    got = oracles.apply(rnn, variables, INPUTS)
    want = np.stack([outputs(CELLS[name], p, x) for x in INPUTS.astype(np.float64)])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["lstm", "product"])
def test_stacked_cells_against_numpy(name):
    model = RecurrentEncoder(CELLS[name], num_layers=2, unroll=2)
    variables = oracles.drawn(model, INPUTS)
    p = oracles.wide(variables)
    got = oracles.apply(model, variables, INPUTS, mask=MASK)
    for b in range(B):
        states = INPUTS[b][MASK[b]].astype(np.float64)  # as if the padding were not there
        for i in range(2):
            states = outputs(CELLS[name], p[f"cell_{i}"], states)
        want = oracles.dense(p["output"], states)
        np.testing.assert_allclose(np.asarray(got)[b][MASK[b]], want, rtol=1e-5, atol=2e-5)


@pytest.mark.usefixtures("x64")  # two recurrent layers lose digits in float32, as many as the processor likes
def test_residual_layers_against_numpy():
    cell = DeltaNetCell(2, 3)
    model = RecurrentEncoder(cell, num_layers=2, hidden=7, norm="post")
    inputs = INPUTS.astype(np.float64)
    variables = jax.tree.map(lambda leaf: leaf.astype(np.float64), oracles.drawn(model, inputs))
    got = oracles.apply(model, variables, inputs)
    assert got.dtype == np.float64

    def mixer(p, x):
        return oracles.dense(p["output"], outputs(cell, p["cell"], x))

    p = oracles.wide(variables)["stack"]
    want = np.stack([oracles.layers(p, x.astype(np.float64), mixer, 2, "post") for x in inputs])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)  # the state is float32


@pytest.mark.parametrize("cell", [CELLS["full, bounded"], DeltaNetCell(2, 3)], ids=["full", "delta"])
def test_gradients(cell):
    oracles.finite_gradients(RecurrentEncoder(cell), INPUTS)


def test_gradients_at_sharp_addresses_and_an_empty_memory():
    """Powers are taken of weights of 0, and a memory of 0 is divided by its length."""
    oracles.finite_gradients(RecurrentEncoder(ContentNTMCell(4, 5, 3, initial_memory=0.0)), INPUTS)


def test_long_sequences_stay_bounded_at_the_start():
    model = RecurrentEncoder(CELLS["product"])
    inputs = np.random.default_rng(0).normal(size=(1, 300, D)).astype(np.float32)
    states = jax.jit(lambda key: model.init_with_output(key, inputs)[0])(jax.random.key(0))
    assert np.isfinite(states).all()
    assert np.abs(states).max() < 100


def test_the_full_matrix_grows_as_its_start_implies():
    """Each step multiplies E[h^2] by 1.01 and adds 1, so E[h_t^2] = 100 (1.01^t - 1)."""
    inputs = np.random.default_rng(0).normal(size=(256, 300, D)).astype(np.float32)
    rnn = nn.RNN(FullMatrixCell(16))
    states = jax.jit(lambda key: rnn.init_with_output(key, inputs)[0])(jax.random.key(0))
    for step in (1, 10, 100, 300):
        found = np.sqrt(np.mean(np.square(states[:, step - 1])))
        assert found == pytest.approx(np.sqrt(100 * (1.01**step - 1)), rel=0.35)


def test_the_future_is_not_seen():
    model = LSTM(4, 2)
    changed = INPUTS.copy()
    changed[:, 3:] += 1
    both = np.concatenate([INPUTS, changed])
    before, after = np.split(oracles.apply(model, oracles.drawn(model, both), both), 2)
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-6)
    assert np.abs(after[:, 3:] - before[:, 3:]).max() > 1e-3


def test_eigenvalues_of_a_delta_step_reach_minus_one():
    """With beta = 2 the transition is a reflection; beta = 1 projects; all lie in [-1, 1]."""
    key = np.random.default_rng(0).normal(size=4)
    key = jnp.asarray(key / np.linalg.norm(key), jnp.float32)
    for beta in (0.0, 1.0, 1.5, 2.0):
        transition = lin.delta_step(jnp.eye(4), key, jnp.zeros(4), jnp.asarray(beta))
        np.testing.assert_allclose(np.linalg.eigvalsh(transition), sorted([1, 1, 1, 1 - beta]), atol=1e-5)


def test_delta_rule_recalls_values_of_orthogonal_keys():
    values = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    state = jnp.zeros((3, 3))
    for key, value in zip(np.eye(3, dtype=np.float32), values, strict=True):
        state = lin.delta_step(state, jnp.asarray(key), jnp.asarray(value), jnp.asarray(1.0))
    np.testing.assert_allclose(state, values.T, atol=1e-6)


def test_two_householder_steps_rotate():
    """A product of two reflections is a rotation, which no single one is: here, a cycle of three."""
    first, second = (np.array(k) / np.sqrt(2) for k in ([1.0, -1.0, 0.0], [0.0, 1.0, -1.0]))
    state = jnp.eye(3)
    for key in (first, second):
        state = lin.delta_step(state, jnp.asarray(key, jnp.float32), jnp.zeros(3), jnp.asarray(2.0))
    assert np.linalg.det(state) == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(np.linalg.matrix_power(np.asarray(state), 3), np.eye(3), atol=1e-5)


def test_full_matrix_cell_multiplies_permutations():
    """One-hot inputs choose a permutation matrix each; bounded columns leave them as they are."""
    permutations = np.array([[1, 0, 2], [1, 2, 0], [0, 2, 1]])
    matrices = np.eye(3)[permutations].transpose(0, 2, 1).astype(np.float32)
    cell = FullMatrixCell(3, column_norm=1.2)
    params = {
        "transition": {"kernel": jnp.asarray(matrices.reshape(3, 9)), "bias": jnp.zeros(9)},
        "input": {"kernel": jnp.zeros((3, 3))},
    }
    state, want, step = jnp.asarray([[1.0, 2.0, 3.0]]), np.array([1.0, 2.0, 3.0]), jax.jit(cell.apply)
    for chosen in (0, 2, 1, 1):
        state, _ = step({"params": params}, state, np.eye(3, dtype=np.float32)[[chosen]])
        want = matrices[chosen] @ want
    np.testing.assert_allclose(state, want[None], atol=1e-5)


def test_the_smallest_norm_of_columns_is_1():
    cell, x = FullMatrixCell(3, column_norm=1.0), jnp.zeros((2, 3))
    assert jax.eval_shape(cell.init, jax.random.key(0), x, x)["params"]["transition"]["bias"].shape == (9,)


def test_columns_of_zeros_have_a_gradient():
    gradient = jax.jit(jax.grad(lambda m: jnp.sum(lin.bounded_columns(m, 1.2))))(jnp.zeros((3, 3)))
    assert np.isfinite(gradient).all()


def test_half_precision():
    model = LSTM(4, dtype=jnp.bfloat16)
    variables = oracles.drawn(model, INPUTS, scale=0.3)
    states = oracles.apply(model, variables, INPUTS.astype(jnp.bfloat16), mask=MASK)
    assert states.dtype == jnp.bfloat16
    wide = oracles.apply(LSTM(4), variables, INPUTS, mask=MASK)
    np.testing.assert_allclose(states.astype(np.float32), wide, atol=0.1)
    for cell in (DeltaNetCell(2, 3), FullMatrixCell(4), ContentNTMCell(4)):
        encoder = RecurrentEncoder(cell.copy(dtype=jnp.bfloat16), hidden=4, dtype=jnp.bfloat16)
        inputs = jax.ShapeDtypeStruct((B, N, D), jnp.bfloat16)
        assert jax.eval_shape(encoder.init_with_output, jax.random.key(0), inputs)[0].dtype == jnp.bfloat16


def test_a_state_keeps_its_dtype():
    """Of a compute dtype that is wider, so that states of 16 bits can be carried through a scan."""
    cells = (*(cell for name, cell in CELLS.items() if name != "lstm"), MLPOperatorCell(4, 3, 5))
    for cell in cells:
        carry = cell.initialize_carry(jax.random.key(0), (B, D))
        carry = jax.tree.map(lambda x: x.astype(jnp.bfloat16), carry)
        (new, _), _ = jax.eval_shape(cell.init_with_output, jax.random.key(0), carry, INPUTS[:, 0])
        assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype("bfloat16")}, cell
        start = cell.copy(param_dtype=jnp.bfloat16).initialize_carry(jax.random.key(0), (B, D))
        assert {leaf.dtype for leaf in jax.tree.leaves(start)} == {jnp.dtype("bfloat16")}, cell


def test_a_cell_of_llrnn_fits():
    model = RecurrentEncoder(llrnn_cells.SecondOrderCell(features=5), num_layers=2)
    assert jax.eval_shape(model.init_with_output, jax.random.key(0), INPUTS)[0].shape == (B, N, D)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (LSTM(4), (INPUTS[0],), r"inputs: got shape \(5, 6\), expected \[B, N, D\]"),
        (LSTM(4), (INPUTS, MASK[:, :3]), r"mask: got shape \(2, 3\), expected \[B, N\] = \[2, 5\]"),
        (LSTM(4, 0), (INPUTS,), "num_layers: got 0, expected at least 1"),
        (LSTM(4, unroll=0), (INPUTS,), "unroll: got 0, expected at least 1"),
        (RecurrentEncoder(CELLS["full"], hidden=0), (INPUTS,), "hidden: got 0, expected at least 1"),
        (RecurrentEncoder(FullMatrixCell(0)), (INPUTS,), "features: got 0, expected at least 1"),
        (
            RecurrentEncoder(FullMatrixCell(2, 0.5)),
            (INPUTS,),
            "column_norm: got 0.5, expected None or at least 1",
        ),
        (RecurrentEncoder(DeltaNetCell(0, 3)), (INPUTS,), "num_heads: got 0, expected at least 1"),
        (
            RecurrentEncoder(DeltaProductCell(1, 3, 0)),
            (INPUTS,),
            "num_householder: got 0, expected at least 1",
        ),
        (RecurrentEncoder(ContentNTMCell(4, 0)), (INPUTS,), "num_locations: got 0, expected at least 1"),
        (
            RecurrentEncoder(ContentNTMCell(4, max_shift=-1)),
            (INPUTS,),
            "max_shift: got -1, expected at least 0",
        ),
        (
            FullMatrixCell(3),
            (np.zeros((2, 4)), INPUTS[:, 0]),
            r"carry: got shape \(2, 4\), expected .*\[2, 3\]",
        ),
        (DeltaNetCell(1, 3), (np.zeros((2, 3, 3)), INPUTS[:, 0]), r"carry: got .* = \[2, 1, 3, 3\]"),
        (
            ContentNTMCell(4),
            (ContentNTMCell(4).initialize_carry(jax.random.key(0), (3, D)), INPUTS[:, 0]),
            r"carry.memory: got shape \(3, 32, 16\), expected \[\*B, N, W\] = \[2, 32, 16\]",
        ),
    ],
)
def test_refusals(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(model.init, jax.random.key(0), *arguments)


def test_an_unknown_norm_is_refused():
    model = RecurrentEncoder(CELLS["full"]).copy(norm="mid")
    with pytest.raises(ValueError, match="norm: got 'mid', expected one of 'pre', 'post'"):
        jax.eval_shape(model.init, jax.random.key(0), INPUTS)


def test_an_lstm_without_features_is_refused():
    with pytest.raises(ValueError, match="features: got 0, expected at least 1"):
        LSTM(0)
