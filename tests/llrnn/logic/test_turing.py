"""Turing machines: steps as proofs against a simulator, their values, and their derivatives."""

import random

import jax
import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import (
    Bang,
    Lolli,
    Pair,
    bang,
    check,
    denote,
    derivation,
    derivative,
    turing,
    validate,
)
from llrnn.logic.turing import Configuration, Machine, decode, encode, simulate, step
from llrnn.logic.types import With
from llrnn.logic.values import add, scale
from tests.llrnn.logic.matrices import A, D, close, matrices, matrix

pytestmark = pytest.mark.unchecked  # the functions of cut elimination are checked in other tests

# It turns ones into zeros to the right, a zero into a one, and comes back over zeros: the tape stays short.
SWEEPER = Machine(
    2,
    {
        (0, "1"): (0, "0", "right"),
        (0, "0"): (1, "1", "left"),
        (1, "0"): (1, "0", "left"),
        (1, "1"): (0, "1", "right"),
    },
)


def drawn(seed):
    """Returns a machine and a configuration."""
    choose = random.Random(seed)
    states = choose.randint(1, 4)
    places = [(state, symbol) for state in range(states) for symbol in ("0", "1")]
    ends = {
        p: (choose.randrange(states), choose.choice("01"), choose.choice(("left", "right"))) for p in places
    }
    tape = ["".join(choose.choices("01", k=choose.randint(0, 4))) for _ in range(2)]
    return Machine(states, ends), Configuration(choose.randrange(states), *tape)


def opened(configuration):
    """Returns the three programs of a configuration."""
    left, rest = configuration.children
    return [ket.children[0] for ket in (left, *rest.children)]


def closed(left, right, state):
    return Pair(bang(left), Pair(bang(right), bang(state)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Configuration(0, "01", "10"), Configuration(0, "000", "1")),  # to the right: the next symbol is last
        (Configuration(0, "01", ""), Configuration(0, "000", "")),  # beyond the end the tape has zeros
        (
            Configuration(0, "10", "1"),
            Configuration(1, "1", "11"),
        ),  # to the left: what is written is the next
        (Configuration(0, "", ""), Configuration(1, "", "1")),
    ],
)
def test_the_simulator(before, after):
    assert simulate(SWEEPER, before) == after


@pytest.mark.parametrize("seed", [2, 3, 5, 6])  # of 1 to 3 states, which move to the left and to the right
def test_a_step_is_a_proof_that_computes_the_next_configuration(seed):
    machine, configuration = drawn(seed)
    term = encode(machine, configuration)
    assert decode(machine, term) == configuration
    assert check(term) == turing.configuration_type(machine)
    program = step(machine)
    assert check(program) == Lolli(term.type, term.type)
    after = logic.normalize(program(term))
    assert after == encode(machine, simulate(machine, configuration))


def test_a_step_over_one_type_starts_from_triples():
    machine, configuration = drawn(1)
    triples = With(A, With(A, A))
    program = step(machine, A)
    assert check(program) == Lolli(
        turing.configuration_type(machine, triples), turing.configuration_type(machine, A)
    )
    after = logic.normalize(program(encode(machine, configuration, triples)))
    assert after == encode(machine, simulate(machine, configuration), A)
    assert decode(machine, after) == simulate(machine, configuration)


def test_a_numeral_of_steps_is_a_proof():
    of = turing.configuration_type(SWEEPER)
    fifty = logic.second_order.numeral(50)[of](bang(step(SWEEPER)))
    assert check(fifty(encode(SWEEPER, Configuration(0, "1", "1")))) == of


@pytest.mark.slow  # 50 steps take 8 seconds; the witness is the run of four
def test_a_run_of_fifty_steps():
    _run(SWEEPER, Configuration(0, "111", "011"), 50)


def test_a_run():
    """To the right and to the left, beyond both ends of the tape."""
    _run(SWEEPER, Configuration(0, "1", ""), 4)


def _run(machine, start, steps):
    seen = turing.run(machine, start, steps)
    want = [start]
    for _ in range(steps):
        want.append(simulate(machine, want[-1]))
    assert seen == want
    assert len(set(want)) > min(steps, 5)


def test_a_derivation_of_a_step():
    validate(derivation(step(SWEEPER)))


def test_the_value_of_a_step_is_that_of_the_next_tape(rng):
    x, y = matrices(rng, 2)
    machine, configuration = drawn(5)
    value = denote(step(machine, A))
    start = denote(encode(machine, configuration, With(A, With(A, A))))
    ((left, rest),) = value.apply(start).terms
    after = simulate(machine, configuration)
    word = np.eye(D)
    for digit in after.left:
        word = (x, y)[int(digit)] @ word
    close(matrix(left.terms[0].point(x)(y)), word)
    ((right, state),) = rest.terms
    word = np.eye(D)
    for digit in after.right:
        word = (x, y)[int(digit)] @ word
    close(matrix(right.terms[0].point(x)(y)), word)
    operands = [rng.normal(size=D) for _ in range(machine.states)]
    nested = operands[-1]
    for vector in reversed(operands[:-1]):
        nested = (vector, nested)
    close(state.terms[0].point(nested), operands[after.state])


PARTS = ("left", "right", "state")


@pytest.mark.parametrize("after", PARTS)
def test_a_part_of_a_step_is_that_of_the_next_configuration(after):
    """Whichever part is its first input; over one type, and over every type."""
    machine, configuration = drawn(5)
    for a, triples in ((A, With(A, With(A, A))), (None, None)):
        before = dict(zip(PARTS, opened(encode(machine, configuration, triples)), strict=True))
        want = dict(zip(PARTS, opened(encode(machine, simulate(machine, configuration), a)), strict=True))
        for by in PARTS:
            program = turing.part(machine, after, by=by, a=a)
            given = [before[by], *(before[name] for name in PARTS if name != by)]
            assert check(program(*map(bang, given))) == want[after].type
            assert logic.normalize(program(*map(bang, given))) == want[after]


@pytest.mark.parametrize(
    ("after", "by"),
    [("left", "left"), ("left", "right"), ("left", "state"), ("right", "left"), ("state", "state")],
)
def test_a_step_is_differentiated_in_its_tapes_and_its_state(after, by, rng):
    """At a superposition P + t V of that part: the derivative in t, as a program and by jax.jvp."""
    triples = With(A, With(A, A))
    program = turing.part(SWEEPER, after, by=by, a=A)
    start, change = (
        dict(zip(PARTS, opened(encode(SWEEPER, of, triples)), strict=True))
        for of in (Configuration(0, "01", "10"), Configuration(1, "110", "0111"))
    )
    slope = derivative(program)
    whole = check(program)
    assert isinstance(whole, Lolli)
    of = start[by].type
    assert check(slope) == Lolli(Bang(of), Lolli(of, whole.codomain))
    others = [denote(start[name]) for name in PARTS if name != by]
    point, vector = denote(start[by]), denote(change[by])
    if after == "state":
        arguments = [(rng.normal(size=D), rng.normal(size=D))]
    else:
        arguments = [*matrices(rng, 2), rng.normal(size=D)]

    def at(step_size):
        found = denote(program)(add(point, scale(step_size, vector)), *others)
        return found(*arguments)

    def pair():
        return denote(slope)(point, vector, *others)(*arguments), jax.jvp(at, (0.0,), (1.0,))[1]

    got, want = jax.jit(pair)()
    close(got, want)
    assert np.abs(want).max() > 1e-3


def test_the_state_after_a_step_does_not_depend_on_the_right_tape():
    triples = With(A, With(A, A))
    _, right, _ = opened(encode(SWEEPER, Configuration(0, "", "1"), triples))
    slope = derivative(turing.part(SWEEPER, "state", by="right", a=A))
    assert isinstance(logic.normalize(slope(bang(right), right)), logic.Zero)


def test_a_step_over_every_type_has_derivatives():
    program = turing.part(SWEEPER, "left", by="state")
    whole = check(program)
    assert isinstance(whole, Lolli)
    assert isinstance(whole.domain, Bang)
    assert check(derivative(program)) == Lolli(whole.domain, Lolli(whole.domain.body, whole.codomain))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Machine(1, {(0, "0"): (0, "1", "left")}), "transitions: got entries for"),
        (lambda: Machine(0, {}), "transitions: got entries for"),
        (
            lambda: Machine(1, {(0, "0"): (0, "1", "left"), (0, "1"): (1, "1", "left")}),
            r"transitions: got \(1, '1', 'left'\) for \(0, '1'\), expected a state below 1",
        ),
        (
            lambda: Machine(1, {(0, "0"): (0, "1", "stay"), (0, "1"): (0, "1", "left")}),
            r"transitions: got \(0, '1', 'stay'\)",
        ),
        (
            lambda: encode(SWEEPER, Configuration(2, "", "")),
            "configuration: got state 2, expected one of 0 to 1",
        ),
        (lambda: encode(SWEEPER, Configuration(0, "2", "")), "word: got '2'"),
        (
            lambda: turing.part(SWEEPER, "tape"),  # pyrefly: ignore
            "after: got 'tape', expected one of 'left', 'right', 'state'",
        ),
        (
            lambda: turing.part(SWEEPER, "left", by="head"),  # pyrefly: ignore
            "by: got 'head', expected one of",
        ),
        (lambda: decode(SWEEPER, logic.numeral(1, A)), "term: got a proof of !.*, expected !.* at a point"),
    ],
)
def test_what_is_no_machine_or_configuration_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_a_superposition_is_no_configuration():
    one, other = (encode(SWEEPER, Configuration(0, tape, "")) for tape in ("0", "1"))
    later = encode(SWEEPER, Configuration(1, "", ""))
    with pytest.raises(ValueError, match="term: got a proof of"):
        decode(SWEEPER, one + other)
    (zero, right, first), (digit, _, _), (_, _, second) = map(opened, (one, other, later))
    parts = [logic.Ket(part) for part in (zero, right, first)]
    for place, vector in enumerate((digit, right, second)):  # a tangent is no configuration either
        kets = [logic.Ket(ket.point, (vector,)) if i == place else ket for i, ket in enumerate(parts)]
        with pytest.raises(ValueError, match=r"expected .* at a point"):
            decode(SWEEPER, Pair(kets[0], Pair(kets[1], kets[2])))
    with pytest.raises(ValueError, match="as a part of the tape, expected a word"):
        decode(SWEEPER, closed(zero + digit, right, first))
    with pytest.raises(ValueError, match="as the state, expected a projection of 2 components"):
        decode(SWEEPER, closed(zero, right, first + second))
