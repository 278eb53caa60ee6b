"""Tests the cell of a proof that is given as text: every declaration, and its errors."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import logic
from llrnn.cells import Command, Data, Fixed, Input, Weight, cell_of_text
from llrnn.logic import Atom
from tests.llrnn.instances import FEATURES, LOCATIONS, WIDTH
from tests.llrnn.memory_instances import ntm

H, W = Atom("H", 3), Atom("W", 4)


def test_every_declaration():
    cell = cell_of_text(
        3,
        r"\!a:!E. \!b:!H. \!c:!H. \!r:!(W[4] -o W[4]). \!m:!int. \!s:!bint. \!p:!(E -o E). \!h:!H. h",
        (
            "a: input 2:4",
            "b : data",
            "c:weight",
            "r: roll -1",
            "m: command numerals 5",
            "s: given words 2",
            r"p: command \f:E. f; \f:E. \h:H. f h; compose (\h:H. h)",
        ),
        activation=jnp.tanh,
        temperature=0.5,
        straight_through=True,
    )
    a = cast(Any, cell.inputs)[0]
    r, m, s, p = cast(Any, cell.inputs)[3:]
    assert a.features == (2, 4)
    assert [(each.temperature, each.straight_through) for each in (m, s, p)] == [(0.5, True)] * 3
    assert [type(declared) for declared in cell.inputs] == [
        Input,
        Data,
        Weight,
        Fixed,
        Command,
        Command,
        Command,
    ]
    assert [declared.name for declared in cell.inputs] == list("abcrmsp")
    np.testing.assert_array_equal(r.value @ np.arange(4.0), [1, 2, 3, 0])
    assert m.span == logic.numeral_span(5, H)
    assert (s.span, s.coupling, m.coupling) == (logic.word_span(2, H), "given", "predicted")
    identity = logic.lam(logic.endo(H), lambda f: f)
    assert p.programs[0] == identity
    assert len(p.programs) == 3
    assert cell.activation is jnp.tanh
    np.testing.assert_array_equal(cell.initialize_carry(jax.random.key(0), (1, 9)), np.zeros((1, 3)))


def test_the_controller_is_that_of_the_cell():
    assert cell_of_text(3, r"\s:H & H. s", (), controller=(1,)).controller == (1,)


def test_a_program_may_be_a_function_of_a_number():
    cell = cell_of_text(3, r"\!p:!(int -o int). \h:H. h", ("p: command plus 3",))
    (declared,) = cast(Any, cell.inputs)
    assert declared.programs == (logic.plus(H)(logic.numeral(3, H)),)


def test_the_default_is_the_second_order_cell():
    """The proof of Example 2.8, whose cell is compared with `SecondOrderCell` in test_instances."""
    made = cell_of_text(3)
    assert made.master == logic.dereliction(logic.endo(H))
    assert [type(declared) for declared in made.inputs] == [Input]
    linear = cell_of_text(3, inside=()).initialize_carry(jax.random.key(0), (1, 9))
    np.testing.assert_array_equal(linear, [[1, 0, 0]])


@pytest.mark.usefixtures("compiled_quickly")
def test_a_memory_from_text_is_the_named_cell():
    """The NTM of Example 2.10: its addresses start at location 0, its memory at a constant."""
    w, v = f"W[{LOCATIONS}]", f"V[{WIDTH}]"
    dual = f"({w} -o 1)"
    moves, dual_moves = (f"!(!({a} -o {a}) -o {a} -o {a})" for a in (w, dual))
    state = rf"(H & ({w} & ({dual} & ({w} -o {v}))))"
    read, write = "m !a (fst (snd s))", "n !b (fst (snd (snd s)))"
    memory = rf"(\p:{w}. snd (snd (snd s)) p + (let * = {write} p in u))"
    cell = cell_of_text(
        FEATURES,
        rf"\!m:{moves}. \!n:{dual_moves}. \!a:!({w} -o {w}). \!b:!({dual} -o {dual}). \!u:!{v}. "
        rf"\!v:!({v} -o H). \!s:!{state}. <v ({memory} ({read})), <{read}, <{write}, {memory}>>>",
        (
            f"read: command numerals {LOCATIONS - 1}",
            f"write: command numerals {LOCATIONS - 1}",
            "rotation: roll 1",
            "dual rotation: roll -1",
            "add: data",
            "content: weight",
        ),
        controller=(0,),
        inside=(0,),
        initial=("0", "unit 0", "unit 0", "0.3"),
    ).copy(param_dtype=jnp.float32)
    named, _, mapped = ntm("updated")
    named = named.copy(param_dtype=jnp.float32)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, 5, 3)), jnp.float32)
    shapes = jax.eval_shape(nn.RNN(named).init, jax.random.key(0), x)["params"]["cell"]
    params = jax.tree.map(lambda leaf: np.float32(0.6 * rng.normal(size=leaf.shape)), shapes)

    @jax.jit
    def outputs(params):
        both = ((named, params), (cell, mapped(params)))
        return [nn.RNN(cell).apply({"params": {"cell": of_cell}}, x) for cell, of_cell in both]

    ours, expected = outputs(params)
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=1e-6)
    assert np.abs(ours[:, -1] - ours[:, 0]).max() > 0.1


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("m: table numerals 2", "m_table: input"),
        ("m: both numerals 2", "m_input: input"),
        ("m: command numerals 2", "m_coordinates: input"),
    ],
)
def test_a_name_that_a_command_also_takes_is_refused(command, other):
    """Flax refuses a name that is used twice, too, but only when the cell runs, and without the reason."""
    cell = cell_of_text(3, r"\!m:!int. \!x:!E. m !x", (command, other))
    taken = other.split(":")[0]
    with pytest.raises(ValueError, match=rf"inputs: got '{taken}' among the names \['m', .*\], expected"):
        cell.validate()
    given = cell_of_text(3, r"\!m:!int. \!x:!E. m !x", ("m: given numerals 2", other))
    assert given.validate() == H


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        (("0",), r"initial: got 1 texts, expected 2, one per factor of the state H & W"),
        (("0", "unit 4"), r"initial: got 'unit 4' for the factor W, expected a number, or `unit K`"),
        (("zero", "1"), r"initial: got 'zero' for the factor H, expected a number"),
        ((f"unit {'0' * 5000}", "1"), r"initial: got 'unit 0+' for the factor H, expected a number"),
    ],
)
def test_a_mistake_in_the_initial_state_is_named(initial, message):
    with pytest.raises(ValueError, match=message):
        cell_of_text(3, r"\s:H & W[4]. s", (), initial=initial)


@pytest.mark.parametrize(
    ("proof", "inputs", "message"),
    [
        (
            r"\!x:!E. \!y:!E. x",
            ("x: guess", "y: input"),
            r"inputs: got 'x: guess', expected `NAME: SOURCE` with a",
        ),
        (r"\!x:!E. x", (": input",), "inputs: got ': input', expected `NAME: SOURCE`"),
        (r"\!x:!E. x", ("x: input 3",), "inputs: got 'x: input 3', expected `NAME: SOURCE`"),
        (
            r"\!x:!H. 0:E",
            ("x: roll 1",),
            r"inputs: got 'x: roll 1' for type H, expected a type A -o A for `roll`",
        ),
        (
            r"\!x:!E. x",
            ("x: given numerals 3",),
            r"for type H -o H, expected the type of numerals, such as !\(H -o",
        ),
        *(
            (r"\!x:!E. x", (f"x: {source}",), rf"inputs: got 'x: {source}', expected `NAME: SOURCE`")
            for source in ("roll --1", "roll ²", f"roll {'1' * 5000}", f"input 0:{'1' * 5000}")
        ),
        *(
            (
                r"\!n:!int. \!x:!E. n !x",
                (f"n: given {kind} {size}", "x: input"),
                rf"inputs: got 'n: given {kind} {size}', expected numerals L, words L or terms: line 1",
            )
            for kind, size in (("numerals", "²"), ("words", "9" * 5000))
        ),
        (
            r"\!x:!E. x",
            ("x: given y; x",),
            r"got 'x: given y; x', expected numerals L, words L or terms: line 1",
        ),
        (
            r"\!x:!E. x",
            ("x: given 3",),
            r"programs of Command 'x': got type !\(H -o H\) -o H -o H, expected H",
        ),
        (r"\!x:!E. x x", ("x: input",), r"proof: line 1, column 11: argument: got `x`"),
        (
            r"\x:!E. let !y = x in 0:1",
            ("x: input",),
            r"proof: got type !\(H -o H\) -o 1, which after the 1 decl",
        ),
        (
            r"\!x:!E. \h:H. 0:(H[4] & H)",
            ("x: input",),
            r"ends in H\[3\] -o H\[4\] & H\[3\], expected an end A -o A",
        ),
    ],
)
def test_a_mistake_is_named(proof, inputs, message):
    with pytest.raises(ValueError, match=message):
        cell_of_text(3, proof, inputs)
