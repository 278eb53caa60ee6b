"""Tests the sources of a command against the equations in NumPy, hardening, and the named programs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells, logic
from llrnn.cells import Command, Input, LLRNNCell, coupling, recurrent
from llrnn.logic import Atom

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

D, POWERS, INPUTS = 3, 3, 2
H = Atom("H", D)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def coordinates(source, params, h, tokens, x):
    """Computes p by the equations of `llrnn.cells.coupling`."""
    w = params["powers_table" if source == "table" else "powers"]
    match source:
        case "table":
            return softmax(tokens @ w["kernel"])
        case "input":
            return softmax(x @ w["kernel"] + w["bias"])
        case "both":
            return softmax(h @ w["kernel"] + x @ params["powers_input"]["kernel"] + w["bias"])
    return softmax(h @ w["kernel"] + w["bias"])


def named(source, **options):
    return cells.HigherOrderCell(
        D, max_power=POWERS - 1, coupling=source, update="linear", param_dtype=jnp.float64, **options
    )


def general(source, **options):
    command = Command("powers", logic.numeral_span(POWERS - 1, H), source, **options)
    return LLRNNCell(logic.evaluate(H), (command, Input("operators")), inside=(), param_dtype=jnp.float64)


def step(cell, params, h, x) -> tuple[Any, Any]:
    run = jax.jit(lambda params: cell.apply({"params": params}, h, x, mutable=["intermediates"]))
    (new, _), state = jax.device_get(run(params))
    recorded = state.get("intermediates", {}).get("powers_coordinates")
    return new, None if recorded is None else recorded[0]


def drawn(source, general_cell):
    """Returns random parameters, a state and an input."""
    rng = np.random.default_rng(0)
    h, x = rng.normal(size=(1, D)), rng.normal(size=(1, INPUTS))
    tokens = np.eye(POWERS)[[1]] if source == "table" else np.zeros((1, 0))
    cell = general(source) if general_cell else named(source)
    whole = jnp.concatenate([jnp.asarray(tokens), jnp.asarray(x)], axis=1)
    shapes = jax.eval_shape(cell.init, jax.random.key(0), h, whole)["params"]
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    return params, jnp.asarray(h), tokens, x, whole


@pytest.mark.parametrize("general_cell", [False, True])
@pytest.mark.parametrize("source", ["predicted", "input", "both", "table"])
def test_each_source_is_that_of_its_equation(source, general_cell):
    """Both cells apply sum_i p_i V(x)^i to the state, and record p."""
    params, h, tokens, x, whole = drawn(source, general_cell)
    new, recorded = step((general if general_cell else named)(source), params, h, whole)
    p = coordinates(source, params, np.asarray(h[0]), tokens[0], x[0])
    flat = params["operators"]["kernel"] if general_cell else params["operators"].reshape(INPUTS, -1)
    operator = (x[0] @ flat).reshape(D, D)
    powers = [np.linalg.matrix_power(operator, i) @ np.asarray(h[0]) for i in range(POWERS)]
    want = p @ np.stack(powers)
    np.testing.assert_allclose(recorded, p[None], rtol=1e-9)
    np.testing.assert_allclose(new, want[None], rtol=1e-9)


@pytest.mark.parametrize("general_cell", [False, True])
def test_temperature_and_straight_through(general_cell):
    """The table's logits are divided; straight through, one program acts and all logits have a gradient."""
    make = general if general_cell else named
    params, h, _, x, whole = drawn("table", general_cell)
    row = np.asarray(params["powers_table"]["kernel"])[1]
    _, p = step(make("table", temperature=0.5), params, h, whole)
    np.testing.assert_allclose(p[0], softmax(2 * row), rtol=1e-9)
    new, p = step(make("table", straight_through=True), params, h, whole)
    np.testing.assert_array_equal(p[0], np.eye(POWERS)[row.argmax()])
    flat = params["operators"]["kernel"] if general_cell else params["operators"].reshape(INPUTS, -1)
    power = np.linalg.matrix_power((x[0] @ flat).reshape(D, D), int(row.argmax()))
    np.testing.assert_allclose(new[0], power @ h[0], rtol=1e-9)


def test_the_straight_through_gradient_is_that_of_the_mixture():
    """At other weights of the coordinates, for two temperatures."""
    logits, weights = jnp.asarray([0.3, -1.0, 0.9]), jnp.asarray([1.0, -2.0, 0.5])
    for temperature in (1.0, 0.4):

        def of(logits, hard, temperature=temperature):
            return coupling.coordinates(logits, temperature, hard) @ weights

        got, want = jax.jit(lambda of=of: [jax.grad(of)(logits, hard) for hard in (True, False)])()
        np.testing.assert_allclose(got, want, rtol=1e-12)
        assert np.abs(want).min() > 0.01
    assert coupling.coordinates(logits.astype(jnp.float32), 1.0, True).dtype == jnp.float32


def test_scaled_operators_are_as_long_as_orthogonal_ones():
    """Whatever their own scale, so that only the table weighs the powers; a zero operator stays finite."""
    params, h, tokens, _, _ = drawn("table", False)
    one_hot = jnp.concatenate([jnp.asarray(tokens), jnp.asarray([[0.0, 1.0]])], axis=1)
    long = {**params, "operators": params["operators"] * np.array([3.0, 50.0]).reshape(2, 1, 1)}
    new, p = step(named("table", scaled=True), params, h, one_hot)
    operator = params["operators"][1] / np.linalg.norm(params["operators"][1]) * np.sqrt(D)
    want = sum(w * np.linalg.matrix_power(operator, i) @ np.asarray(h[0]) for i, w in enumerate(p[0]))
    np.testing.assert_allclose(new[0], want, rtol=1e-9)
    np.testing.assert_allclose(step(named("table", scaled=True), long, h, one_hot)[0], new, rtol=1e-9)
    gradient = jax.jit(jax.grad(lambda zero: recurrent.equal_lengths(zero).sum()))(jnp.zeros((1, D, D)))
    assert np.isfinite(gradient).all()


def test_entropy_of_coordinates():
    """In nats; a program has none, and no gradient that is not finite."""
    entropy = jax.jit(cells.entropy)
    np.testing.assert_allclose(entropy(jnp.asarray([[0.5, 0.5], [1.0, 0.0]])), [np.log(2), 0])
    np.testing.assert_allclose(entropy(jnp.asarray([1 / 7] * 7)), np.log(7))
    np.testing.assert_allclose(jax.jit(jax.grad(cells.entropy))(jnp.asarray([1.0, 0.0])), [-1, 0])


def test_a_table_of_more_tokens_than_programs():
    """It takes as many features as tokens."""
    params, h, _, x, _ = drawn("table", True)
    table = np.random.default_rng(1).normal(size=(5, POWERS))
    params = {**params, "powers_table": {"kernel": jnp.asarray(table)}}
    whole = jnp.concatenate([jnp.asarray(np.eye(5)[[4]]), jnp.asarray(x)], axis=1)
    _, p = step(general("table", tokens=5), params, h, whole)
    np.testing.assert_allclose(p[0], softmax(table[4]), rtol=1e-9)
    assert general("table", tokens=1).initialize_carry(jax.random.key(0), (1, 2)).shape == (1, D)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named("table", temperature=0.0), r"temperature: got 0\.0, expected more than 0"),
        (lambda: general("table", temperature=-1.0), r"temperature of Command 'powers': got -1\.0"),
        (lambda: general("table", tokens=0), r"tokens of Command 'powers': got 0, expected None, or"),
        (lambda: general("both", tokens=4), r"tokens of Command 'powers': got 4, expected None, or"),
        (lambda: named("table"), r"inputs: got shape \(1, 2\), expected more than 3 .*coupling='table'"),
        (lambda: general("table"), r"inputs: got shape \(1, 2\), expected more than 3 features, the tokens"),
        (
            lambda: LLRNNCell(
                logic.evaluate(H),
                (Command("p", logic.numeral_span(2, H), "both"), Input("p_input")),
            ),
            r"inputs: got 'p_input' among the names",
        ),
    ],
)
def test_a_mistake_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make().init(jax.random.key(0), jnp.zeros((1, D)), jnp.zeros((1, INPUTS)))


def test_couplings_as_text():
    """Of proofs that are given as text."""
    texts = ("command", "given", "from_input", "both", "table")
    proof = "".join(rf"\!c{i}:!int. " for i in range(5)) + r"\h:H. h"
    made = cells.cell_of_text(3, proof, tuple(f"c{i}: {text} numerals 2" for i, text in enumerate(texts)))
    found = [declared.coupling for declared in made.inputs if isinstance(declared, Command)]
    assert found == ["predicted", "given", "input", "both", "table"]


@pytest.mark.parametrize("general_cell", [False, True])
def test_tables_are_read_over_their_temperature(general_cell):
    make = general if general_cell else named
    kernel = np.arange(6.0).reshape(2, 3)
    params = {"powers_table": {"kernel": kernel}}
    found = cells.read_tables(make("table", temperature=2.0), params)
    assert list(found) == ["powers"]
    np.testing.assert_array_equal(found["powers"], kernel / 2)
    assert cells.read_tables(make("predicted"), {}) == {}


def test_only_tables_of_numerals_are_read():
    proof = r"\!w:!bint. \!m:!int. \!n:!int. \h:H. h"
    made = cells.cell_of_text(3, proof, ("w: table words 1", "m: given numerals 2", "n: table numerals 2"))
    kernel = np.eye(3)
    found = cells.read_tables(made, {"n_table": {"kernel": kernel}})
    assert list(found) == ["n"]
    assert cells.read_tables(nn.SimpleCell(3), {}) == {}


def test_numerals_are_named_up_to_the_orders():
    """Of operators g^u the table has the numerals k / u; a mixture has its most probable numeral."""
    plain = cells.read_numerals(np.log(np.eye(4) * 0.96 + 0.01), [3, 4])
    assert (plain.numerals, plain.unit, plain.powers, plain.modulus) == ((0, 1, 2, 3), 1, (0, 1, 2, 3), 12)
    np.testing.assert_allclose(plain.probabilities, 0.97)
    assert plain.agreement == 1
    assert "token 3: numeral 3 (coordinate 0.970), which applies g^3" in str(plain)
    turned = cells.read_numerals(20 * np.eye(7)[[0, 3, 6, 2]], [7])  # 3 u = 1 modulo 7
    assert (turned.unit, turned.powers, turned.agreement) == (5, (0, 1, 2, 3), 1)
    wrapped = cells.read_numerals(20 * np.eye(4)[[0, 1, 2, 0]], [3, 3])  # g^3 = g^0 for both
    assert (wrapped.unit, wrapped.powers, wrapped.agreement) == (1, (0, 1, 2, 0), 1)
    np.testing.assert_allclose(wrapped.probabilities, 1)
    wrong = cells.read_numerals(20 * np.eye(4)[[0, 1, 2, 0]], [3, 4])  # wrong for the second operator only
    assert (wrong.unit, wrong.agreement) == (1, 7 / 8)
    trivial = cells.read_numerals(np.array([[0.0, 3.0], [5000.0, 0.0]]), [1])  # of the identity only
    assert (trivial.numerals, trivial.unit, trivial.powers, trivial.agreement) == ((1, 0), 1, (0, 0), 1)
    np.testing.assert_allclose(trivial.probabilities, [1 / (1 + np.exp(-3)), 1])


@pytest.mark.parametrize(
    ("logits", "orders", "message"),
    [
        (np.zeros(3), [3], r"logits: got shape \(3,\), expected \[K, P\]"),
        (np.zeros((3, 3)), [], r"orders: got \(\), expected at least one"),
        (np.zeros((3, 3)), [3, 0], r"orders: got \(3, 0\), expected at least one, each at least 1"),
    ],
)
def test_a_table_that_cannot_be_read(logits, orders, message):
    with pytest.raises(ValueError, match=message):
        cells.read_numerals(logits, orders)
