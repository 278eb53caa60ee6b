"""The cells with a memory, their proofs, and the mappings of their parameters."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from llrnn import logic, memory
from llrnn.cells import Command, Data, Fixed, Input, LLRNNCell, Weight
from llrnn.logic import Fst, LetStar, Lolli, One, Snd, With, bang, banged, both, lam
from tests.llrnn.instances import (
    FEATURES,
    LOCATIONS,
    REFLECTION,
    ROTATION,
    SHARED,
    W_DUAL,
    WIDTH,
    E,
    H,
    V,
    W,
    affine,
    cut,
    operators,
    ring,
)

# ---- one ring


def of_ring(params, parts):
    """Returns the general cell's parameters: these parts, and what every cell with a ring has."""
    return {**parts, "content": params["content"]["kernel"].T.ravel(), **affine(params)}


def add_outer(matrix, functional, vector):
    """M + w (x) u : W -o V."""
    return lam(W, lambda a: matrix(a) + LetStar(functional(a), vector))


def one_ring_state(content):
    return With(H, With(W, With(W_DUAL, Lolli(W, content))))


def erased(matrix, functional, copy, eraser):
    """M - M * (w (x) e) : W -o V, at a the value M(a) + e(M(a1)) w(a2) with a1 (x) a2 the copy of a.

    The eraser e : V -o V is the diagonal operator of -e. The copy maps the location a to a (x) a and extends
    linearly, so that a location is erased as far as the address is on it; a sum of proofs.
    """

    def at(a):
        forgotten = logic.let_pair(copy(a), lambda a1, a2: LetStar(functional(a2), eraser(matrix(a1))))
        return matrix(a) + forgotten

    return lam(W, at)


COPY = np.eye(LOCATIONS**2)[:, :: LOCATIONS + 1]
"""The matrix of the linear map W -o W (x) W with a -> a (x) a for every location a."""


def minus_sigmoid(x):
    return -nn.sigmoid(x)


def eraser(width, name="erase"):
    """The diagonal operators of -e on the content of a location, with e a data vector."""
    diagonals = np.stack([np.diag(row).ravel() for row in np.eye(width)])
    return Data(name, activation=minus_sigmoid, basis=jnp.asarray(diagonals))


def written(matrix, functional, vector, erasing):
    """M + w (x) u; with a copy and an eraser, of what they leave of M."""
    return add_outer(erased(matrix, functional, *erasing) if erasing else matrix, functional, vector)


COPIES = Lolli(W, logic.Tensor(W, W))


def erasing_ntm():
    """The NTM that erases, gated by the write address: its proof copies locations, and e is a data vector."""

    def step(m, n, a, b, copy, e, u, v, s):
        r, w, matrix = m(bang(a))(Fst(Snd(s))), n(bang(b))(Fst(Snd(Snd(s)))), Snd(Snd(Snd(s)))
        new = written(matrix, w, u, (copy, e))
        return both(v(new(r)), r, w, new)

    master = banged(
        logic.integer(W),
        logic.integer(W_DUAL),
        logic.endo(W),
        logic.endo(W_DUAL),
        COPIES,
        logic.endo(V),
        V,
        Lolli(V, H),
        one_ring_state(V),
        step,
    )
    general = LLRNNCell(
        master,
        (
            Command("read", logic.numeral_span(LOCATIONS - 1, W)),
            Command("write", logic.numeral_span(LOCATIONS - 1, W_DUAL)),
            Fixed("rotation", ROTATION),
            Fixed("dual rotation", ROTATION.T),
            Fixed("copy", COPY),
            eraser(WIDTH),
            Data("add"),
            Weight("content"),
        ),
        controller=(0,),
        inside=(0,),
        initial=(np.zeros(FEATURES), ring([0.3] * WIDTH)),
    )
    named = memory.NTMCell(
        memory_size=LOCATIONS, memory_width=WIDTH, erase=True, initial_memory=0.3, **SHARED
    )
    return (
        named,
        general,
        lambda p: of_ring(p, cut(p, read=LOCATIONS, write=LOCATIONS, add=WIDTH, erase=WIDTH)),
    )


def ntm(read):
    """Example 2.10, with the corrected master of the library and V : V -o H0 a weight."""
    core = logic.ntm_master(H, W, V)

    def updated(m, n, a, b, u, v, s):
        done = core(*map(bang, (m, n, a, b, u, s)))
        return both(v(Fst(done)), Snd(done))

    def previous(m, n, a, b, u, v, s):
        r, w, matrix = Fst(Snd(s)), Fst(Snd(Snd(s))), Snd(Snd(Snd(s)))
        moved = n(bang(b))(w)
        return both(v(matrix(r)), m(bang(a))(r), moved, add_outer(matrix, moved, u))

    master = banged(
        logic.integer(W),
        logic.integer(W_DUAL),
        logic.endo(W),
        logic.endo(W_DUAL),
        V,
        Lolli(V, H),
        one_ring_state(V),
        updated if read == "updated" else previous,
    )
    general = LLRNNCell(
        master,
        (
            Command("read", logic.numeral_span(LOCATIONS - 1, W)),
            Command("write", logic.numeral_span(LOCATIONS - 1, W_DUAL)),
            Fixed("rotation", ROTATION),
            Fixed("dual rotation", ROTATION.T),
            Data("add"),
            Weight("content"),
        ),
        controller=(0,),
        inside=(0,),
        initial=(np.zeros(FEATURES), ring([0.3] * WIDTH)),
    )
    named = memory.NTMCell(memory_size=LOCATIONS, memory_width=WIDTH, read=read, initial_memory=0.3, **SHARED)
    return named, general, lambda p: of_ring(p, cut(p, read=LOCATIONS, write=LOCATIONS, add=WIDTH))


def dihedral(erase=False):
    words = ("", "0", "1", "101", "0010")

    def step(f, g, rot, ref, dual_rot, dual_ref, u, v, *more):
        *erasing, s = more
        r = f(bang(rot), bang(ref))(Fst(Snd(s)))
        w = g(bang(dual_rot), bang(dual_ref))(Fst(Snd(Snd(s))))
        matrix = written(Snd(Snd(Snd(s))), w, u, erasing)
        return both(v(matrix(r)), r, w, matrix)

    ew, ed = logic.endo(W), logic.endo(W_DUAL)
    types = [logic.binary(W), logic.binary(W_DUAL), ew, ew, ed, ed, V, Lolli(V, H)]
    types += [COPIES, logic.endo(V)] if erase else []
    master = banged_one_by_one([*types, one_ring_state(V)], step)
    general = LLRNNCell(
        master,
        (
            Command("read", tuple(logic.binary_integer(word, W) for word in words)),
            Command("write", tuple(logic.binary_integer(word, W_DUAL) for word in words)),
            Fixed("rotation", ROTATION),
            Fixed("reflection", REFLECTION),
            Fixed("dual rotation", ROTATION.T),
            Fixed("dual reflection", REFLECTION.T),
            Data("add"),
            Weight("content"),
            *((Fixed("copy", COPY), eraser(WIDTH)) if erase else ()),
        ),
        controller=(0,),
        inside=(0,),
        initial=(np.zeros(FEATURES), ring([0.3] * WIDTH)),
    )
    named = memory.DihedralNTMCell(
        memory_size=LOCATIONS, memory_width=WIDTH, words=words, erase=erase, initial_memory=0.3, **SHARED
    )
    widths = {"read": 5, "write": 5, "add": WIDTH, **({"erase": WIDTH} if erase else {})}
    return named, general, lambda p: of_ring(p, cut(p, **widths))


def operator_memory(source, erase=False):
    """Remark 2.11; with source="input" the operator read is raised to predicted powers.

    Erasing takes one number from the controller for all of an operator.
    """
    powers = source == "input"
    whole = Data("erase", activation=minus_sigmoid, basis=jnp.eye(FEATURES**2).reshape(1, -1))

    def step(m, n, p, a, b, u, *more):
        *erasing, s = more
        r = m(bang(a))(Fst(Snd(s)))
        w = n(bang(b))(Fst(Snd(Snd(s))))
        matrix = written(Snd(Snd(Snd(s))), w, u, erasing)
        operator = p(bang(matrix(r))) if powers else matrix(r)
        return both(operator(Fst(s)), r, w, matrix)

    types = [logic.integer(W), logic.integer(W_DUAL), logic.integer(H), logic.endo(W), logic.endo(W_DUAL), E]
    types += [COPIES, logic.endo(E)] if erase else []
    master = banged_one_by_one([*types, one_ring_state(E)], step)
    general = LLRNNCell(
        master,
        (
            Command("read", logic.numeral_span(LOCATIONS - 1, W)),
            Command("write", logic.numeral_span(LOCATIONS - 1, W_DUAL)),
            Command("powers", logic.numeral_span(2, H))
            if powers
            else Fixed("powers", logic.denote(logic.numeral(1, H))),
            Fixed("rotation", ROTATION),
            Fixed("dual rotation", ROTATION.T),
            Input("operators") if powers else Data("add", activation=lambda x: x),
            *((Fixed("copy", COPY), whole) if erase else ()),
        ),
        controller=(0,),
        inside=(0,),
        initial=(np.zeros(FEATURES), ring([0.3] * FEATURES**2)),
    )
    named = memory.OperatorNTMCell(
        memory_size=LOCATIONS,
        source=source,
        max_power=2 if powers else None,
        erase=erase,
        initial_memory=0.3,
        **SHARED,
    )
    erasing = {"erase": 1} if erase else {}
    if powers:
        return (
            named,
            general,
            lambda p: {
                **cut(p, read=LOCATIONS, write=LOCATIONS, **erasing, powers=3),
                "operators": operators(p),
                **affine(p),
            },
        )
    widths = {"read": LOCATIONS, "write": LOCATIONS, "add": FEATURES**2, **erasing}
    return named, general, lambda p: {**cut(p, **widths), **affine(p)}


# ---- several rings: a location of a later ring holds coordinates 1 & (1 & ..) of programs


def coordinates(count):
    return One if count == 1 else With(One, coordinates(count - 1))


def decoded(value, programs):
    """The program sum_k c_k program_k, linear in c : 1 & (1 & ..): a sum of proofs, so differential logic."""
    terms = []
    for place, program in enumerate(programs):
        terms.append(LetStar(value if place == len(programs) - 1 else Fst(value), program))
        value = value if place == len(programs) - 1 else Snd(value)
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def parts_of(rings):
    """The parts r_1, w_1, M_1, r_2, .. of rings (r, w, M)."""
    return [part for ring in rings for part in ring]


def product(pair, parts):
    """The product (a, (b, (c, ..))) of types or of values."""
    result = parts[-1]
    for part in reversed(parts[:-1]):
        result = pair(part, result)
    return result


def banged_one_by_one(types, body, *variables):
    """`banged` for any number of types."""
    if not types:
        return body(*variables)
    return banged(types[0], lambda x: banged_one_by_one(types[1:], body, *variables, x))


def gated(gate, first, second):
    """G first + (1 - g) second, with (g, 1 - g) : 1 & 1."""
    return LetStar(Fst(gate), first) + LetStar(Snd(gate), second)


def programmed(named, widths, follow):
    """A cell with rings of programs: `follow` builds the operator on r_1 from what is read from them.

    With `named.direct` the controller moves r_1 too, and a data vector (g, 1 - g) gates the two. With
    `named.erase` each ring has an eraser.
    """
    contents = [V, *(coordinates(width) for width in widths)]
    rings = [(W, W_DUAL, Lolli(W, content)) for content in contents]
    state = product(With, [H, *parts_of(rings)])
    count = len(contents)
    types: list[logic.Type] = [logic.endo(W), logic.endo(W_DUAL), Lolli(V, H)]
    inputs: list[Any] = [Fixed("rotation", ROTATION), Fixed("dual rotation", ROTATION.T), Weight("content")]
    powers = named.powers
    if named.erase:
        inputs.append(Fixed("copy", COPY))
        types.append(COPIES)
    if named.direct:
        inputs.append(Data("gate", activation=nn.sigmoid))  # sigmoid(-x) = 1 - sigmoid(x)
        types.append(coordinates(2))
    for number in range(count):
        for kind, over in (("read", W), ("write", W_DUAL)):
            if kind == "write" or number or named.direct:
                inputs.append(Command(f"{kind}_{number + 1}", tuple(logic.numeral(p, over) for p in powers)))
                types.append(logic.integer(over))
        inputs.append(Data(f"add_{number + 1}"))
        types.append(contents[number])
        if named.erase:
            inputs.append(eraser((WIDTH, *widths)[number], f"erase_{number + 1}"))
            types.append(logic.endo(contents[number]))

    def factor(s, place):
        for _ in range(place):
            s = Snd(s)
        return s if place == 3 * count else Fst(s)

    def body(*variables):
        *given, s = variables
        a, b, v, *rest = given
        copy = rest.pop(0) if named.erase else None
        gate = rest.pop(0) if named.direct else None
        old = [tuple(factor(s, 1 + 3 * number + part) for part in range(3)) for number in range(count)]
        new = []
        for number, (r, w, matrix) in enumerate(old):
            followed = None if number else follow(a, [m(q) for q, _, m in old[1:]])(r)
            if followed is not None and gate is None:
                moved = followed
            else:
                moved = rest.pop(0)(bang(a))(r)
                moved = moved if followed is None else gated(gate, moved, followed)
            place, vector = rest.pop(0)(bang(b))(w), rest.pop(0)
            erasing = () if copy is None else (copy, rest.pop(0))
            new.append((moved, place, written(matrix, place, vector, erasing)))
        r, _, matrix = new[0] if named.read == "updated" else old[0]
        return both(v(matrix(r)), *parts_of(new))

    start = [(np.eye(LOCATIONS)[0], np.eye(LOCATIONS)[0], np.full((WIDTH, LOCATIONS), 0.3))]
    for width in widths:
        start.append((np.eye(LOCATIONS)[0], np.eye(LOCATIONS)[0], np.tile(np.eye(width)[:, :1], LOCATIONS)))
    values = [np.zeros(FEATURES), *parts_of(start)]
    general = LLRNNCell(
        banged_one_by_one([*types, state], body),
        tuple(inputs),
        controller=(0,),
        inside=(0,),
        initial=product(lambda left, right: (left, right), values),
    )

    def mapped(p):
        widths_of = {}
        for number, width in enumerate((WIDTH, *widths), start=1):
            if number > 1 or named.direct:
                widths_of[f"read_{number}"] = len(powers)
            widths_of |= {f"write_{number}": len(powers), f"add_{number}": width}
            widths_of |= {f"erase_{number}": width} if named.erase else {}
        parts = cut(p, **widths_of, **({"gate": 1} if named.direct else {}))
        if named.direct:
            parts["gate"] = {key: jnp.concatenate([x, -x], axis=-1) for key, x in parts["gate"].items()}
        return of_ring(p, parts)

    return named, general, mapped


PLAIN_RINGS = {
    "memory_size": LOCATIONS,
    "memory_width": WIDTH,
    "program_size": LOCATIONS,
    "powers": (0, 1),
    "direct": False,
    "squash": False,
    "initial_memory": 0.3,
    **SHARED,
}
NUMERALS = [logic.numeral(n, W) for n in range(3)]


def pattern(read, direct=False, erase=False):
    named = memory.PatternNTMCell(read=read, erase=erase, **{**PLAIN_RINGS, "direct": direct})
    return programmed(named, (3,), lambda a, programs: decoded(programs[0], NUMERALS)(bang(a)))


def multiple_pattern():
    words = ("0", "1", "00", "01")
    named = memory.MultiplePatternNTMCell(words=words, **PLAIN_RINGS)

    def follow(a, programs):
        first, second = (bang(decoded(value, NUMERALS)) for value in programs[:2])
        word = decoded(programs[2], [logic.binary_integer(word, W) for word in words])
        return logic.feed(W)(word, first, second, bang(a))

    return programmed(named, (3, 3, 4), follow)


def polynomial_step():
    named = memory.PolynomialStepNTMCell(**PLAIN_RINGS)  # the polynomials x and x^2
    steps = [logic.dereliction(logic.integer(W)), logic.square(W)]

    def follow(a, programs):
        return decoded(programs[1], steps)(bang(decoded(programs[0], NUMERALS)))(bang(a))

    return programmed(named, (3, 2), follow)
