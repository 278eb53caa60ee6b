"""The named cells, their proofs, and the mappings of their parameters to those of the general cell."""

import jax.numpy as jnp
import numpy as np

from llrnn import cells, logic
from llrnn.cells import Command, Input, LLRNNCell, Weight
from llrnn.logic import Atom, Lolli, bang, banged, lam

INPUTS, FEATURES, LOCATIONS, WIDTH = 3, 3, 4, 2
H, W, V = Atom("H", FEATURES), Atom("W", LOCATIONS), Atom("V", WIDTH)
W_DUAL, E = logic.dual(W), logic.endo(H)
ROTATION, REFLECTION = np.roll(np.eye(LOCATIONS), 1, axis=0), np.eye(LOCATIONS)[[0, 3, 2, 1]]
SHARED = {"features": FEATURES, "param_dtype": jnp.float64}


def affine(params):
    return {"hidden": params["hidden"], "input": params["input"]}


def operators(params, name="operators"):
    """Reshapes operators [I, D, D], one per input feature, to the kernel [I, D D] of an Input."""
    return {"kernel": params[name].reshape(len(params[name]), -1)}


def cut(params, **widths):
    """Splits the fused heads of a memory cell into the maps of commands and data, in order."""
    parts, at = {}, 0
    for name, width in widths.items():
        parts[name] = {key: leaf[..., at : at + width] for key, leaf in params["heads"].items()}
        at += width
    assert at == params["heads"]["bias"].shape[0]
    return parts


def ring(content):
    """Returns the initial (r, (w, M)): both addresses at location 0, M : W -o V with equal columns."""
    return (np.eye(LOCATIONS)[0], (np.eye(LOCATIONS)[0], np.tile(np.asarray(content)[:, None], LOCATIONS)))


# ---- the cells without a memory


def elman():
    """(2.1) has no operator: its proof is the zero of differential linear logic."""
    general = LLRNNCell(lam(H, lambda h: logic.Zero(H)))
    return cells.ElmanCell(**SHARED), general, affine


def second_order(update):
    named = cells.SecondOrderCell(update=update, normalize=update == "linear", **SHARED)
    if update == "later":
        first, second = banged(E, E, lambda a, b: a), banged(E, E, lambda a, b: b)
        general = LLRNNCell(first, (Input("in"), Input("out")), master_out=second)
        return (
            named,
            general,
            lambda p: {"in": operators(p, "operators_in"), "out": operators(p, "operators_out"), **affine(p)},
        )
    inputs = (Input("operators"),)
    if update == "draft":
        general = LLRNNCell(logic.dereliction(E), inputs)  # Example 2.8
        return named, general, lambda p: {"operators": operators(p), **affine(p)}
    general = LLRNNCell(logic.dereliction(E), inputs, inside=(), normalize=True, initial=np.eye(FEATURES)[0])
    return named, general, lambda p: {"operators": operators(p)}


def multiplicative():
    """(2.7): W^c x lies in the diagonal operators on K; I and J are weights of the cell."""
    k = Atom("K", 4)
    master = banged(logic.endo(k), Lolli(k, H), Lolli(H, k), lambda v, i, j: lam(H, lambda h: i(v(j(h)))))
    diagonals = np.stack([np.diag(row).ravel() for row in np.eye(4)])
    general = LLRNNCell(master, (Input("v", basis=jnp.asarray(diagonals)), Weight("i"), Weight("j")))
    return (
        cells.MultiplicativeCell(factors=4, **SHARED),
        general,
        lambda p: {
            "v": {"kernel": p["diagonal"]},
            "i": p["expand"].ravel(),
            "j": p["contract"].ravel(),
            **affine(p),
        },
    )


def higher_order(coupling, update, span):
    """Example 2.9, with the span of the numerals given as such or by Horner's rule."""
    named = cells.HigherOrderCell(max_power=3, coupling=coupling, update=update, **SHARED)
    command = Command("powers", span, coupling)
    powers = lambda p: {} if coupling == "given" else {"powers": p["powers"]}  # noqa: E731
    if update == "draft":
        general = LLRNNCell(logic.evaluate(H), (command, Input("operators")))
        return named, general, lambda p: {"operators": operators(p), **powers(p), **affine(p)}
    first = banged(logic.integer(H), E, E, lambda n, a, b: n(bang(a)))
    second = banged(logic.integer(H), E, E, lambda n, a, b: n(bang(b)))
    general = LLRNNCell(first, (command, Input("in"), Input("out")), master_out=second)
    return (
        named,
        general,
        lambda p: {
            "in": operators(p, "operators_in"),
            "out": operators(p, "operators_out"),
            **powers(p),
            **affine(p),
        },
    )


HORNER = logic.numeral_span(3, H)
GENERIC = tuple(logic.numeral(n, H) for n in range(4))
