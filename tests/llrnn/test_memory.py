"""Memory cells against plain float64 NumPy in which rotations are matrices and words are matrix products."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import cells, memory
from tests.llrnn.memory_equations import (
    one_ring_step,
    programmed_step,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly", "x64")

BATCH, INPUTS, FEATURES, LOCATIONS, WIDTH = 2, 3, 5, 6, 4


def quickly(function: Any) -> Any:
    """Compiles a function without optimisation, since compilation dominates the time of these tests."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def apply(module: Any, variables: Any, *args: Any, **options: Any) -> Any:
    return quickly(lambda v, *a: module.apply(v, *a, **options))(variables, *args)


ONE_RING = {
    "paper": memory.NTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH),
    "authors": memory.NTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        powers=(0, -1, 1),
        erase=True,
        sharpen=True,
        activation=nn.tanh,
        read="previous",
    ),
    "many powers": memory.NTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, powers=(0, 7, -2, 3, 3, 11, -6, 5, 4, 1)
    ),
    "eleven locations": memory.NTMCell(FEATURES, memory_size=11, memory_width=WIDTH),
    "one location": memory.NTMCell(FEATURES, memory_size=1, memory_width=WIDTH, powers=(0, 1)),
    "dihedral": memory.DihedralNTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH),
    "dihedral words": memory.DihedralNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        words=("", "0", "1", "001", "0101", "110", "10", "00010", "01", "011"),
        erase=True,
    ),
    "operators": memory.OperatorNTMCell(FEATURES, memory_size=3),
    "operators from the input": memory.OperatorNTMCell(
        FEATURES, memory_size=3, source="input", max_power=3, erase=True, sharpen=True, powers=(-1, 1)
    ),
}
PROGRAMMED = {
    "pattern": memory.PatternNTMCell(FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3),
    "pattern, the draft": memory.PatternNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=3,
        direct=False,
        squash=False,
        program_powers=(0, 2),
        read="previous",
    ),
    "multiple": memory.MultiplePatternNTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3, sharpen=True, erase=True
    ),
    "multiple, words": memory.MultiplePatternNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=3,
        words=("", "00", "01", "010", "1"),
        program_powers=(0, 1, -1),
    ),
    "polynomial": memory.PolynomialStepNTMCell(
        FEATURES, memory_size=LOCATIONS, memory_width=WIDTH, program_size=3, sharpen=True
    ),
    "polynomials": memory.PolynomialStepNTMCell(
        FEATURES,
        memory_size=LOCATIONS,
        memory_width=WIDTH,
        program_size=2,
        polynomials=((2,), (1, 2), (0, 0, 1), (0, 1, 0, 1)),
    ),
}


def random_state(cell, rng):
    """Returns a state of the cell's shapes: distributions for addresses, any numbers for the rest."""
    start = jax.eval_shape(lambda: cell.initialize_carry(jax.random.key(0), (BATCH, INPUTS)))

    def ring(like):
        read, write = (rng.dirichlet(np.ones(like.read_address.shape[-1]), size=BATCH) for _ in range(2))
        return memory.Ring(*map(jnp.asarray, (read, write, rng.normal(size=like.memory.shape))))

    controller = jnp.asarray(rng.normal(size=start.controller.shape))
    if isinstance(start, memory.NTMState):
        return memory.NTMState(controller, ring(start.ring))
    return memory.RingsState(controller, tuple(map(ring, start.rings)))


def parts(state, b):
    """Returns the state of one sequence as the equations take it."""
    first = jax.tree.map(lambda leaf: np.asarray(leaf[b]), state)
    if isinstance(first, memory.NTMState):
        return (first.controller, *dataclasses.astuple(first.ring))
    return (first.controller, *(dataclasses.astuple(ring) for ring in first.rings))


@pytest.mark.parametrize("case", [*ONE_RING, *PROGRAMMED])
def test_against_the_equations(case):
    """One step from random states, for parameters that are all random."""
    cell = {**ONE_RING, **PROGRAMMED}[case].copy(param_dtype=jnp.float64)
    step = one_ring_step if case in ONE_RING else programmed_step
    rng = np.random.default_rng(0)
    x, state = jnp.asarray(rng.normal(size=(BATCH, INPUTS))), random_state(cell, rng)
    params = jax.eval_shape(cell.init, jax.random.key(0), state, x)["params"]
    params = jax.tree.map(lambda leaf: 0.6 * rng.normal(size=leaf.shape), params)
    new, output = jax.device_get(apply(cell, {"params": params}, state, x))
    state, x = jax.device_get((state, x))
    for b in range(BATCH):
        want = step(cell, params, parts(state, b), x[b])
        for ours, theirs in zip(jax.tree.leaves(parts(new, b)), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(output, new.controller)
    assert np.abs(output).max() > 0.1


@pytest.mark.parametrize(
    "case", ["paper", "dihedral", "operators", "pattern", "multiple, words", "polynomials"]
)
def test_a_sequence_starts_at_location_0_with_the_first_programs(case):
    cell = {**ONE_RING, **PROGRAMMED}[case].copy(initial_memory=0.25)
    carry = jax.jit(lambda: cell.initialize_carry(jax.random.key(0), (2, 3, INPUTS)))()
    assert {leaf.dtype for leaf in jax.tree.leaves(carry)} == {jnp.dtype("float32")}
    np.testing.assert_array_equal(carry.controller, np.zeros((2, 3, FEATURES)))
    content, *programs = (carry.ring,) if isinstance(carry, memory.NTMState) else carry.rings
    width, size = FEATURES**2 if case == "operators" else WIDTH, cell.memory_size
    np.testing.assert_array_equal(content.memory, np.full((2, 3, width, size), 0.25))
    widths = {"pattern": [3], "multiple, words": [3, 3, 5], "polynomials": [3, 4]}.get(case, [])
    assert len(programs) == len(widths)
    for ring, programs_of in zip(programs, widths, strict=True):
        first = np.zeros((programs_of, cell.program_size))
        first[0] = 1  # every location holds the first program
        np.testing.assert_array_equal(ring.memory, np.broadcast_to(first, (2, 3, *first.shape)))
    for ring in (content, *programs):
        start = np.zeros((2, 3, ring.memory.shape[-1]))
        start[..., 0] = 1
        np.testing.assert_array_equal(ring.read_address, start)
        np.testing.assert_array_equal(ring.write_address, start)


def test_the_gate_starts_open_and_every_other_head_without_a_bias():
    """The gate's bias is 1 at first, so that the controller moves the address by sigmoid(1) = 0.73."""
    x = jnp.ones((1, INPUTS), jnp.float32)
    sizes = {"memory_size": 4, "memory_width": 3, "program_size": 2, "sharpen": True, "erase": True}
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 1.0), ({"direct_bias": -2.5}, -2.5), ({"direct": False}, 0.0),
    ]  # fmt: skip

    @quickly
    def begun(key):
        """Returns the biases of each cell and its gate; what else would be computed is not compiled."""
        results = []
        for cell in (
            *(memory.PolynomialStepNTMCell(2, **sizes, **options) for options, _ in cases),
            memory.PatternNTMCell(2, **sizes, bias_init=nn.initializers.constant(0.5)),
        ):
            carry = cell.initialize_carry(key, x.shape)
            variables = cell.init(key, carry, x)
            recorded = cell.apply(variables, carry, x, mutable=["intermediates"])[1]["intermediates"]
            params = variables["params"]
            results.append((params["heads"]["bias"], params["input"]["bias"], recorded.get("gate")))
        return results

    *found, (heads, inputs, _) = jax.device_get(begun(jax.random.key(0)))
    for ((*others, last), _, gate), (options, bias) in zip(found, cases, strict=True):
        np.testing.assert_array_equal(others, 0)
        assert last == bias
        assert (gate is None) == (options == {"direct": False})
        if gate is not None:  # the controller starts at 0, so that the heads are their biases
            np.testing.assert_allclose(gate[0], 1 / (1 + np.exp(-bias)), rtol=1e-6)
    np.testing.assert_array_equal(heads[:-1], 0.5)
    assert heads[-1] == 1.0
    np.testing.assert_array_equal(inputs, 0.5)


def test_operators_that_are_written_keep_the_length_of_the_state():
    """W^c of an operator per input feature: entries of variance 1 / D, for any number of features."""
    cell = memory.OperatorNTMCell(20, memory_size=1, source="input")
    carry, x = cell.initialize_carry(jax.random.key(0), (1, 30)), jnp.ones((1, 30), jnp.float32)
    operators = quickly(lambda key: cell.init(key, carry, x)["params"]["operators"])(jax.random.key(0))
    assert np.std(operators) == pytest.approx(20**-0.5, rel=0.03)


def test_cells_are_those_of_the_paper_unless_asked_otherwise():
    """Example 2.10: relu, all powers of R, M'(r') is read, nothing is erased or sharpened."""
    for cell in (memory.NTMCell(3), memory.DihedralNTMCell(3), memory.OperatorNTMCell(3)):
        assert cell.activation is cell.add_activation is nn.relu
        assert (cell.erase, cell.sharpen, cell.read, cell.initial_memory) == (False, False, "updated", 1e-6)
        assert cell.memory_size == 64
    assert memory.NTMCell(3, memory_size=7).num_moves() == 7
    assert memory.NTMCell(3).memory_width == memory.DihedralNTMCell(3).memory_width == 12
    assert memory.OperatorNTMCell(3).max_power is None  # the remark's own term
    assert memory.DihedralNTMCell(3).words == ("", "0", "1", "101")  # 1, R, R', R^-1
    # The authors' sizes: a ring of 128 x 20 and rings of 20 programs, moved by -1, 0 or 1.
    for cell in (memory.PatternNTMCell(3), memory.MultiplePatternNTMCell(3), memory.PolynomialStepNTMCell(3)):
        assert (cell.memory_size, cell.memory_width, cell.program_size) == (128, 20, 20)
        assert set(cell.powers) == {-1, 0, 1}
        assert (cell.direct, cell.squash) == (True, True)
    assert memory.PatternNTMCell(3).program_powers == (0, 1, 2)
    assert memory.MultiplePatternNTMCell(3).words == ("0", "1")
    cell = memory.PolynomialStepNTMCell(3)
    assert (cell.max_power, cell.polynomials) == (2, ((0, 1), (0, 0, 1)))  # 0, 1, 2; x and x^2


def test_addresses_and_memory_keep_their_precision_in_a_bfloat16_computation():
    """The controller's products are rounded; the coefficients of moves still sum to 1 in float32."""
    rng = np.random.default_rng(0)
    for kind in (memory.NTMCell, memory.PatternNTMCell, memory.OperatorNTMCell):
        cell = kind(3, memory_size=5, powers=(0, 1, -1), sharpen=False, dtype=jnp.bfloat16)
        x = jnp.ones((2, 4), jnp.float32)
        carry = jax.jit(lambda cell=cell: cell.initialize_carry(jax.random.key(0), (2, 4)))()
        variables = jax.eval_shape(cell.init, jax.random.key(0), carry, x)
        assert {leaf.dtype for leaf in jax.tree.leaves(variables)} == {jnp.dtype("float32")}
        variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), variables)
        carry = dataclasses.replace(carry, controller=jnp.asarray(rng.normal(size=(2, 3)), jnp.float32))
        new, output = jax.device_get(apply(cell, variables, carry, x))
        assert {leaf.dtype for leaf in jax.tree.leaves((new, output))} == {jnp.dtype("float32")}
        for ring in new.rings if kind is memory.PatternNTMCell else (new.ring,):
            np.testing.assert_allclose(ring.write_address.sum(axis=-1), 1, rtol=1e-6)
        if kind is memory.NTMCell:  # each of the three maps was computed in bfloat16, and so was their sum
            assert (output.astype(jnp.bfloat16) == output).all()


def test_addresses_stay_distributions():
    cell = memory.NTMCell(
        8, memory_size=16, memory_width=4, powers=(-1, 0, 1), sharpen=True, param_dtype=jnp.float64
    )
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 30, 3)))
    rnn = nn.RNN(cell, variable_axes={"intermediates": 0})
    shapes = jax.eval_shape(rnn.init, jax.random.key(1), x)
    assert set(shapes) == {"params"}
    variables = jax.tree.map(lambda leaf: 0.3 * rng.normal(size=leaf.shape), shapes)
    state = quickly(lambda v: rnn.apply(v, x, mutable=["intermediates"])[1])(variables)
    for name in ("read_address", "write_address"):
        (address,) = state["intermediates"]["cell"][name]  # the call that the cell's docstring gives
        address = np.asarray(address)
        assert address.shape == (30, 2, 16)
        np.testing.assert_allclose(address.sum(-1), 1, rtol=1e-9)
        assert address.min() >= 0
        assert np.abs(np.diff(address, axis=0)).max() > 1e-3  # and they move


def test_one_location_of_operators_is_the_higher_order_cell():
    """Remark 2.11: N = 1, all erased at every step (sigmoid(1000) is 1), operators from the input."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, 5, INPUTS))
    cell = memory.OperatorNTMCell(
        FEATURES, memory_size=1, source="input", max_power=3, erase=True, param_dtype=jnp.float64
    )
    plain = cells.HigherOrderCell(FEATURES, max_power=3, param_dtype=jnp.float64)
    params = jax.eval_shape(nn.RNN(plain).init, jax.random.key(0), x)["params"]["cell"]
    params = jax.tree.map(lambda leaf: 0.5 * rng.normal(size=leaf.shape), params)

    def as_memory(params):
        powers = params["powers"]
        # heads: one power to read, one to write (nothing to choose), the erasure, then the powers
        kernel = jnp.concatenate([jnp.zeros((FEATURES, 3)), powers["kernel"]], axis=1)
        bias = jnp.concatenate([jnp.zeros(2), jnp.full(1, 1e3), powers["bias"]])
        return {
            **{k: v for k, v in params.items() if k != "powers"},
            "heads": {"kernel": kernel, "bias": bias},
        }

    @quickly
    def both(params):
        parts = (plain, params), (cell, as_memory(params))
        return [nn.RNN(cell).apply({"params": {"cell": params}}, x) for cell, params in parts]

    ours, theirs = both(params)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    assert np.abs(ours).max() > 0.1


def test_no_square_of_the_ring():
    """No array of the batch has two axes of N, forwards and backwards, for any powers."""
    x = jnp.ones((2, 3, 4), jnp.float32)

    def program(powers):
        rnn = nn.RNN(
            memory.NTMCell(8, memory_size=37, memory_width=5, powers=powers, erase=True, sharpen=True)
        )

        def loss(variables):
            output: Any = rnn.apply(variables, x)
            return output.sum()

        return str(jax.make_jaxpr(jax.grad(loss))(jax.eval_shape(rnn.init, jax.random.key(0), x)))

    for powers in ((-1, 0, 1), None):
        text = program(powers)
        assert "2,5,37]" in text
        assert "2,37,37]" not in text


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (lambda: memory.NTMCell(0), "features: got 0, expected at least 1"),
        (lambda: memory.NTMCell(4, memory_size=0), "memory_size: got 0, expected at least 1"),
        (lambda: memory.NTMCell(4, memory_width=0), "memory_width: got 0, expected at least 1"),
        (lambda: memory.PatternNTMCell(4, memory_size=0), "memory_size: got 0, expected at least 1"),
        (lambda: memory.PatternNTMCell(4, memory_width=0), "memory_width: got 0, expected at least 1"),
        (lambda: memory.PatternNTMCell(4, program_size=0), "program_size: got 0, expected at least 1"),
        (lambda: memory.PatternNTMCell(4, powers=()), r"powers: got \(\), expected at least one power"),
        (lambda: memory.DihedralNTMCell(4, words="01"), r"words: got '01', expected a non-empty tuple"),  # pyrefly: ignore
        (
            lambda: memory.PolynomialStepNTMCell(4, polynomials=()),
            r"polynomials: got \(\), expected at least",
        ),
        (lambda: memory.NTMCell(4, powers=()), r"powers: got \(\), expected at least one power"),
        (
            lambda: memory.NTMCell(4, read="next"),  # pyrefly: ignore
            "read: got 'next', expected one of 'updated', 'previous'",
        ),
        (
            lambda: memory.DihedralNTMCell(4, words=()),
            r"words: got \(\), expected a non-empty tuple of words",
        ),
        (
            lambda: memory.DihedralNTMCell(4, words=("0", "2")),
            r"words: got \('0', '2'\), expected .* 0 and 1",
        ),
        (
            lambda: memory.OperatorNTMCell(4, source="x"),  # pyrefly: ignore
            "source: got 'x', expected one of 'controller', 'input'",
        ),
        (
            lambda: memory.OperatorNTMCell(4, max_power=-1),
            "max_power: got -1, expected None or at least 0",
        ),
        (
            lambda: memory.PatternNTMCell(4, program_powers=()),
            r"program_powers: got \(\), expected at least one",
        ),
        (
            lambda: memory.MultiplePatternNTMCell(4, words=("a",)),
            r"words: got \('a',\), expected a non-empty",
        ),
        (
            lambda: memory.PatternNTMCell(4, sharpen=True, squash=False, add_activation=jnp.tanh),
            "add_activation: got a function with the value -1, expected none below 0 with sharpen=True",
        ),
        (lambda: memory.PolynomialStepNTMCell(4, max_power=0), "max_power: got 0, expected at least 1"),
        (
            lambda: memory.PolynomialStepNTMCell(4, polynomials=((0, -1),)),
            r"polynomials: got \(\(0, -1\),\), expected at least one tuple",
        ),
    ],
)
def test_bad_fields_are_named(cell, message):
    with pytest.raises(ValueError, match=message):
        cell().initialize_carry(jax.random.key(0), (1, 3))


def test_the_smallest_memories():
    one: dict[str, Any] = {"memory_size": 1, "memory_width": 1}
    x = jnp.ones((1, 1))
    for cell in (
        memory.NTMCell(1, **one),
        memory.OperatorNTMCell(1, memory_size=1, max_power=0),
        memory.PatternNTMCell(1, **one, program_size=1, program_powers=(3,)),
        memory.PolynomialStepNTMCell(1, **one, program_size=1, max_power=1, polynomials=((1,),)),
    ):
        carry = cell.initialize_carry(jax.random.key(0), (1, 1))
        assert jax.eval_shape(cell.init_with_output, jax.random.key(0), carry, x)[0][1].shape == (1, 1)


def test_fields_are_checked_within_a_program_too():
    """Where the values of an activation would otherwise be unknown."""
    cell = memory.PatternNTMCell(4, memory_size=5, sharpen=True, squash=False)
    start = quickly(lambda: cell.initialize_carry(jax.random.key(0), (3,)))()
    assert start.controller.shape == (4,)


def test_fields_are_checked_when_a_step_is_run_too():
    carry = memory.NTMCell(4, memory_size=2).initialize_carry(jax.random.key(0), (1, 3))
    with pytest.raises(ValueError, match="read: got 'next', expected one of"):
        memory.NTMCell(4, memory_size=2, read="next").init(  # pyrefly: ignore
            jax.random.key(0), carry, jnp.ones((1, 3))
        )


@pytest.mark.parametrize("cell", [memory.NTMCell(5), memory.PatternNTMCell(5)])
def test_bad_shapes_are_shown(cell):
    carry = cell.initialize_carry(jax.random.key(0), (2, 3))
    with pytest.raises(
        ValueError, match=r"carry.controller: got shape \(2, 5\), expected \[\*B, 5\] = \(4, 5\) .*\(4, 3\)"
    ):
        cell.init(jax.random.key(0), carry, jnp.ones((4, 3)))
