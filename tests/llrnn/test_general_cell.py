"""Tests the cell of a proof: its equation on product states, and its errors."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import cells, logic
from llrnn.cells import Command, Data, Fixed, Input, LLRNNCell, Weight
from llrnn.cells.declarations import components
from llrnn.logic import Atom, Fst, LetStar, Lolli, One, Snd, With, bang, banged, both, lam

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

FEATURES, LOCATIONS, WIDTH = 3, 4, 2
H, W, V = Atom("H", FEATURES), Atom("W", LOCATIONS), Atom("V", WIDTH)
E = logic.endo(H)


def test_draft_equation_on_a_product_state():
    """Compares (2.11) with sigma, H, U and B on all of h, and two given commands, with NumPy."""
    a, b = Atom("a", 2), Atom("b", 3)
    state = With(a, b)
    swap = banged(
        logic.integer(a),
        Lolli(a, b),
        Lolli(b, a),
        logic.integer(b),
        logic.endo(a),
        state,
        lambda m, f, g, n, alpha, s: both(
            g(Snd(s)) + m(bang(alpha))(Fst(s)), n(bang(lam(b, lambda z: f(g(z)))))(Snd(s))
        ),
    )
    rng = np.random.default_rng(1)
    f, g, alpha = rng.normal(size=(3, 2)), rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
    cell = LLRNNCell(
        swap,
        (
            Command("m", tuple(logic.numeral(k, a) for k in (0, 2)), "given"),
            Fixed("f", f),
            Fixed("g", lambda z: jnp.asarray(g) @ z),
            Command("n", logic.numeral_span(2, b), "given"),
            Weight("alpha"),
        ),
        initial=(np.ones(2), np.zeros(3)),
        activation=jnp.tanh,
        param_dtype=jnp.float64,
    )
    x = rng.normal(size=(4, 2 + 3 + 2))
    h = rng.normal(size=(4, 5))
    params = {
        "hidden": {"kernel": rng.normal(size=(5, 5))},
        "input": {"kernel": rng.normal(size=(2, 5)), "bias": rng.normal(size=5)},
        "alpha": alpha.ravel(),
    }

    @jax.jit
    def run(h, x):
        return cell.apply({"params": params}, h, x)

    # any number of batch axes, including none
    new, output = (part.reshape(4, 5) for part in jax.device_get(run(h.reshape(2, 2, 5), x.reshape(2, 2, 7))))
    for row, (m, n, rest) in enumerate(zip(x[:, :2], x[:, 2:5], x[:, 5:], strict=True)):
        first, second = h[row, :2], h[row, 2:]
        fg = f @ g
        z = np.concatenate(
            [
                g @ second + m[0] * first + m[1] * alpha @ alpha @ first,
                n[0] * second + n[1] * fg @ second + n[2] * fg @ fg @ second,
            ]
        )
        want = np.tanh(
            z
            + h[row] @ params["hidden"]["kernel"]
            + rest @ params["input"]["kernel"]
            + params["input"]["bias"]
        )
        np.testing.assert_allclose(new[row], want, rtol=1e-9)
    np.testing.assert_array_equal(new, output)
    np.testing.assert_array_equal(cell.initialize_carry(jax.random.key(0), (2, 7)), [[1, 1, 0, 0, 0]] * 2)
    flat, _ = run(h[0], x[0])
    np.testing.assert_allclose(flat, new[0], rtol=1e-9)


def test_initial_coordinates_keep_lengths():
    """A linear map A -o B starts with entries of variance 1 / dim A, any other vector with variance 1."""
    a, b = Atom("a", 25), Atom("b", 400)
    endo = logic.endo(a)
    master = banged(
        endo, a, Lolli(a, b), Lolli(b, a), b, endo,
        lambda c, d, f, g, w, e: lam(a, lambda h: c(h) + logic.Zero(a)),
    )  # fmt: skip
    inputs = (
        Input("operator"), Input("vector"), Weight("wide"), Weight("narrow"), Weight("weight"),
        Input("diagonal", basis=jnp.eye(625)[:30]),
    )  # fmt: skip
    cell = LLRNNCell(master, inputs)
    names = [declared.name for declared in inputs]

    @jax.jit
    def init(key):
        params: Any = cell.init(key, jnp.zeros((1, 25)), jnp.zeros((1, 40)))["params"]
        return {name: params[name] for name in names}  # without the other maps, which take long to compile

    params = jax.device_get(init(jax.random.key(0)))
    assert set(params["operator"]) == {"kernel"}  # c = W x, without a bias
    stds = {name: np.std(params[name]["kernel"]) for name in ("operator", "vector", "diagonal")}
    stds |= {name: np.std(params[name]) for name in ("wide", "narrow", "weight")}
    want = {"operator": 0.2, "vector": 1, "diagonal": 1, "wide": 0.2, "narrow": 0.05, "weight": 1}
    assert stds == pytest.approx(want, rel=0.1)


def test_the_proof_is_computed_in_the_states_precision():
    """With numerals of powers of the identity Z h is h, exactly if the coefficients keep their sum of 1."""
    with jax.enable_x64(False):
        cell = LLRNNCell(
            banged(logic.integer(H), H, H, lambda n, d, c: lam(H, lambda h: n(bang(lam(H, lambda z: z)))(h))),
            (Command("p", logic.numeral_span(4, H)), Data("d"), Input("c")),
            inside=(),
            dtype=jnp.bfloat16,
        )
        rng = np.random.default_rng(0)
        h, x = (jnp.asarray(rng.normal(size=(5, 3)), jnp.float32) for _ in range(2))
        variables = jax.eval_shape(cell.init, jax.random.key(0), h, x)
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
        variables = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), variables)
        new, _ = jax.jit(cell.apply)(variables, h, x)
        assert new.dtype == jnp.float32
        np.testing.assert_allclose(new, h, rtol=1e-5)


def test_heads_read_the_controller_and_the_rest_of_the_state_evolves_linearly():
    """The factors that are read, activated and returned, with a data vector on a basis, against NumPy."""
    a, b = Atom("a", 2), Atom("b", 3)
    master = banged(
        b, Lolli(b, b), With(a, With(b, b)), lambda d, f, s: both(Fst(s), f(Fst(Snd(s))), Snd(Snd(s)) + d)
    )
    rng = np.random.default_rng(3)
    basis, f = rng.normal(size=(2, 3)), rng.normal(size=(3, 3))
    inputs = (Data("d", activation=jnp.sin, basis=jnp.asarray(basis)), Fixed("f", f))
    cell = LLRNNCell(
        master, inputs, controller=(1,), inside=(0, 2), activation=jnp.tanh, param_dtype=jnp.float64
    )
    h, x = rng.normal(size=(4, 8)), rng.normal(size=(4, 6))
    shapes = jax.eval_shape(cell.init, jax.random.key(0), *map(jnp.asarray, (h, x)))["params"]
    p = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes)
    assert jax.tree.map(np.shape, p) == {
        "d": {"kernel": (3, 2), "bias": (2,)},
        "hidden": {"kernel": (3, 5)},
        "input": {"kernel": (6, 5), "bias": (5,)},
    }
    new, output = cast(Any, jax.jit(cell.apply)({"params": p}, jnp.asarray(h), jnp.asarray(x)))
    seen = h[:, 2:5]
    d = np.sin(seen @ p["d"]["kernel"] + p["d"]["bias"]) @ basis
    affine = seen @ p["hidden"]["kernel"] + x @ p["input"]["kernel"] + p["input"]["bias"]
    moved = seen @ f.T
    want = [np.tanh(h[:, :2] + affine[:, :2]), moved, np.tanh(h[:, 5:] + d + affine[:, 2:])]
    np.testing.assert_allclose(new, np.concatenate(want, axis=1), rtol=1e-9)
    np.testing.assert_allclose(output, moved, rtol=1e-9)


def test_a_numeral_is_a_cell_whose_state_is_an_operator():
    """[[2]] : !E -o E is of the form !A -o A with A = E and no inputs: h' = h h."""
    cell = LLRNNCell(logic.numeral(2, H), inside=(), param_dtype=jnp.float64)
    h = np.random.default_rng(2).normal(size=(2, FEATURES, FEATURES))
    new, _ = jax.jit(cell.apply)({}, jnp.asarray(h.reshape(2, -1)), jnp.ones((2, 1)))
    np.testing.assert_allclose(np.reshape(new, h.shape), h @ h, rtol=1e-12)


def test_operators_are_read_from_inputs_that_are_maps_of_a_space_to_itself():
    master = banged(E, H, Lolli(H, W), E, lambda c, v, f, d: lam(H, lambda h: c(h)))
    inputs = (Input("c"), Input("v"), Input("f"), Input("d", basis=jnp.eye(9)[:2]))
    kernels = {"c": (2, 9), "v": (2, 3), "f": (2, 12), "d": (2, 2)}
    params = {
        name: {"kernel": np.arange(1.0 * np.prod(shape)).reshape(shape)} for name, shape in kernels.items()
    }
    ((name, found),) = cells.read_operators(LLRNNCell(master, inputs), params).items()
    assert name == "c"
    np.testing.assert_array_equal(found, np.arange(18.0).reshape(2, 3, 3))


def test_components_are_the_factors_from_left_to_right():
    assert components(With(With(H, W), With(V, Lolli(W, V)))) == (H, W, V, Lolli(W, V))
    assert components(Lolli(W, V)) == (Lolli(W, V),)


OPERATOR = (Input("c"),)
BAD = [
    (logic.evaluate(H), (), r"master: got type .* after the 0 declared inputs ends in .* expected an end"),
    (logic.evaluate(H), OPERATOR, r"Input 'c': got the proof's input .*, expected a type without bangs"),
    (
        logic.dereliction(E),
        (Input("c"), Input("d")),
        r"inputs: got 2 declarations, expected 1, one per banged input",
    ),
    (logic.dereliction(H), OPERATOR, r"ends in H, expected"),
    (
        lam(H, lambda h: LetStar(logic.Star(), h)),
        OPERATOR,
        r"inputs: got 1 declarations, expected 0",
    ),
    (
        logic.dereliction(E),
        (Command("c", logic.numeral_span(2, H)),),
        r"programs of Command 'c': got type !\(H -o H\) -o H -o H, expected H -o H",
    ),
    *(
        (
            logic.evaluate(H),
            (Command("p", cast(Any, programs)), Input("c")),
            r"programs of Command 'p': got .*, expected a tuple of terms or a space of programs",
        )
        for programs in (
            [logic.numeral(n, H) for n in range(2)],
            logic.numeral(1, H),
            logic.word_products(2, H),
        )
    ),
    (
        logic.dereliction(E),
        (Fixed("c", np.eye(4)),),
        r"value of Fixed 'c', for the proof's input of type H -o H: value: got shape \(4, 4\)",
    ),
    (
        logic.dereliction(E),
        (Input("c", basis=jnp.ones((2, 8))),),
        r"basis of Input 'c': got shape \(2, 8\), expected \[N, 9\]",
    ),
    *(
        (
            logic.dereliction(E),
            (Input("c", features=features),),
            rf"features of Input 'c': got \({features[0]}, {features[1]}\), expected 0 <= start < stop",
        )
        for features in ((-1, 2), (2, 2))
    ),
    (
        logic.dereliction(E),
        (Input("hidden"),),
        r"inputs: got 'hidden' .*, expected distinct names other than 'hidden', 'input'",
    ),
    (
        logic.dereliction(E),
        (Input("input"),),
        r"inputs: got 'input' .*, expected distinct names other than 'hidden', 'input'",
    ),
    (
        banged(E, E, lambda c, d: lam(H, lambda h: c(d(h)))),
        (Input("c"), Weight("c")),
        r"inputs: got 'c' among the names \['c', 'c'\], expected distinct names",
    ),
    (
        logic.dereliction(E),
        (Data("c", basis=jnp.ones(9)),),
        r"basis of Data 'c': got shape \(9,\), expected \[N, 9\]",
    ),
    (logic.dereliction(Lolli(H, W)), OPERATOR, r"ends in H -o W, expected an end A -o A"),
    (
        logic.evaluate(H),
        (Weight("n"),),
        r"Weight 'n': got the proof's input .*, expected a type without bangs",
    ),
    (logic.dereliction(Lolli(Lolli(H, One), Lolli(H, One))), OPERATOR, None),
]


def test_an_input_may_read_some_features_only():
    """V(x) of those; the others do not matter, and x needs to have them."""
    part = LLRNNCell(logic.dereliction(E), (Input("c", features=(1, 3)),), inside=())
    whole = LLRNNCell(logic.dereliction(E), OPERATOR, inside=())
    h = jnp.asarray(np.random.default_rng(0).normal(size=(4, FEATURES)))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(4, 5)))
    params = {"c": {"kernel": np.random.default_rng(2).normal(size=(2, FEATURES**2))}}
    want, _ = whole.apply({"params": params}, h, x[:, 1:3])
    new, _ = part.apply({"params": params}, h, x)
    np.testing.assert_array_equal(new, want)
    shapes = jax.eval_shape(part.init, jax.random.key(0), h, x)["params"]
    assert shapes["c"]["kernel"].shape == (2, FEATURES**2)
    with pytest.raises(ValueError, match=r"features of Input 'c': got \(1, 3\), expected at most the 2 fea"):
        part.init(jax.random.key(0), h, x[:, :2])


@pytest.mark.parametrize(("master", "inputs", "message"), BAD)
def test_masters_that_do_not_fit(master, inputs, message):
    cell = LLRNNCell(master, inputs)
    if message is None:  # the state may have any type without bangs, including functionals
        assert cell.initialize_carry(jax.random.key(0), (1, 2)).shape == (1, FEATURES)
        return
    with pytest.raises(ValueError, match=message):
        cell.initialize_carry(jax.random.key(0), (1, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inside": (1,)}, r"inside: got \(1,\), expected None or factors 0 .. 0 of the state H"),
        ({"inside": (0, 0)}, r"inside: got \(0, 0\), expected distinct factors"),
        ({"controller": (0, 1)}, r"controller: got \(0, 1\), expected None or factors 0 .. 0 of the state H"),
        ({"controller": (-1,)}, r"controller: got \(-1,\), expected None or factors 0 .. 0 of the state H"),
        ({"controller": ()}, r"controller: got \(\), expected None or at least one factor"),
        (
            {"master_out": logic.dereliction(logic.endo(W))},
            r"master_out: got a proof on the state W, expected H as in master",
        ),
        (
            {"master_out": banged(V, lambda v: logic.Sum((lam(H, lambda h: h), logic.Zero(E))))},
            r"master_out: got type !V -o H -o H, expected the inputs of master, !\(H -o H\) -o H -o H",
        ),
        ({"initial": np.zeros(4)}, r"value: got shape \(4,\), expected \(3,\) for type H"),
    ],
)
def test_fields_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        LLRNNCell(logic.dereliction(E), OPERATOR, **options).initialize_carry(jax.random.key(0), (1, 2))


def test_the_draft_s_linear_master_is_rejected_with_the_repair():
    """Slip 1: M(r) + w'(r') u uses the state more than once, so the state of Example 2.10 needs its bang."""
    state = logic.ntm_state(H, W, V)
    linear = banged(
        Lolli(V, H), lambda v: lam(state, lambda s: both(v(Snd(Snd(Snd(s)))(Fst(Snd(s)))), Snd(s)))
    )
    with pytest.raises(ValueError, match=r"variable s .*got two uses.*give it type !"):
        LLRNNCell(linear, (Weight("content"),)).initialize_carry(jax.random.key(0), (1, 2))


def powers_cell(coupling):
    return LLRNNCell(logic.evaluate(H), (Command("p", logic.numeral_span(2, H), coupling), Input("c")))


def test_carry_and_given_shapes_are_shown():
    cell = powers_cell("given")
    with pytest.raises(
        ValueError, match=r"carry: got shape \(1, 4\), expected \[\*B, 3\] = \(1, 3\) for inputs \(1, 5\)"
    ):
        cell.init(jax.random.key(0), jnp.ones((1, 4)), jnp.ones((1, 5)))
    with pytest.raises(ValueError, match=r"inputs: got shape \(1, 3\), expected more than 3 .* Command 'p'"):
        cell.init(jax.random.key(0), jnp.ones((1, 3)), jnp.ones((1, 3)))
    with pytest.raises(
        ValueError, match=r"coupling of Command 'p': got 'guessed', expected one of 'predicted', 'given'"
    ):
        powers_cell("guessed").initialize_carry(jax.random.key(0), (1, 3))


@pytest.mark.parametrize("normalize", [False, True])
def test_a_given_command_of_zeros_is_the_zero_program(normalize):
    """Z h is 0, by which a normalized cell cannot divide: it keeps its state, and its gradient is finite."""
    rng = np.random.default_rng(4)
    h = rng.normal(size=(2, FEATURES))
    h /= np.linalg.norm(h, axis=1, keepdims=True)
    x = np.concatenate([np.array([[0.0, 0, 0], [0, 1, 0]]), np.ones((2, 1))], axis=1)
    general = LLRNNCell(
        logic.evaluate(H),
        (Command("p", logic.numeral_span(2, H), "given"), Input("c")),
        inside=(),
        normalize=normalize,
    )
    named = cells.HigherOrderCell(
        FEATURES, max_power=2, coupling="given", update="linear", normalize=normalize
    )
    operator = rng.normal(size=(1, FEATURES, FEATURES))
    moved = h[1] @ operator[0].T
    want = [h[0] if normalize else 0 * h[0], moved / np.linalg.norm(moved) if normalize else moved]
    for cell, params in (
        (general, {"c": {"kernel": operator.reshape(1, -1)}}),
        (named, {"operators": operator}),
    ):
        step = lambda h, cell=cell, params=params: cell.apply({"params": params}, h, jnp.asarray(x))[0]  # noqa: E731
        both = jax.jit(lambda h, step=step: (step(h), jax.grad(lambda h: step(h)[0].sum())(h)))
        new, gradient = jax.device_get(both(jnp.asarray(h)))
        np.testing.assert_allclose(new, want, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(gradient[0], np.full(FEATURES, float(normalize)))
