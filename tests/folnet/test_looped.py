"""FOLNet in loops: the same layers again and again, and relations read by likeness to base atoms."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from folnet import FOLNet, parameters
from folnet.embeddings import Embeddings
from folnet.layers import Reasoner
from folnet.looped import LoopedFOLNet, RelationHead, settled
from folnet.transformer_configuration import TransformerConfig
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
CONFIG = small.config(relation_vocab_size=5, operators=".a")
RELATIONS = jnp.asarray(np.random.default_rng(0).integers(-1, 5, (*IDS.shape, IDS.shape[1])), jnp.int32)
INJECTION = 0.5


@functools.cache
def params() -> Any:
    return small.draw(LoopedFOLNet(CONFIG))


@functools.cache
def base() -> Any:
    """Returns the base atoms."""
    module: Any = Embeddings(CONFIG)
    run = small.quickly(lambda p: module.apply({"params": p}, IDS, TYPES, relation_ids=RELATIONS))
    return jax.device_get(run(params()["embeddings"]))


@functools.cache
def layers() -> Any:
    """Returns a compiled function from atoms to the last atoms of a FOLNet without embeddings."""
    module: Any = Reasoner(CONFIG)
    return small.quickly(lambda p, *atoms: module.apply({"params": p}, *atoms, None)[-1])


def unit(x, axis):
    x = x - x.mean(axis, keepdims=True)
    return x / np.sqrt((x**2).mean(axis, keepdims=True) + CONFIG.layer_norm_eps)


@functools.cache
def expected(loops: int, injection: float = 0.0) -> list[Any]:
    """Returns the atoms after each loop: the layers again and again, with base atoms added before each."""
    atoms, states = base(), []
    for _ in range(loops):
        if injection:
            atoms = [
                unit(of + injection * given, axis)
                for of, given, axis in zip(atoms, base(), (-1, 1), strict=True)
            ]
        atoms = jax.device_get(layers()(params()["reasoner"], *atoms))
        states.append(atoms)
    return states


def states(model: Any, **named: Any):
    run = small.quickly(lambda p: model.apply({"params": p}, IDS, TYPES, relation_ids=RELATIONS, **named))
    return run(params())


def agree(got: Any, want: Any):
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=1e-5), [*map(tuple, got)], want)


def test_one_loop_is_the_folnet():
    """Without injection: its layers, applied to its base atoms, with its parameters but for the pooler."""
    agree(states(LoopedFOLNet(CONFIG, num_loops=1)), expected(1))
    names, mine = (parameters.shapes(cls(CONFIG)) for cls in (FOLNet, LoopedFOLNet))
    assert mine == {name: shape for name, shape in names.items() if not name.startswith("pooler")}


def test_a_call_may_loop_more_often_after_loops_ahead():
    """Loops apply the layers to their own atoms; injection adds the base atoms before every loop."""
    want = expected(3, INJECTION)[1:]
    agree(states(LoopedFOLNet(CONFIG, num_loops=1, injection=INJECTION), num_loops=2, ahead=1), want)
    assert np.abs(want[1][1] - want[0][1]).max() > 0.1


def after(given: Any, ahead: Any):
    """Returns the last binary atoms of a model with injection; `ahead` may be traced."""
    model: Any = LoopedFOLNet(CONFIG, injection=INJECTION)
    named = {"relation_ids": RELATIONS, "num_loops": 1, "ahead": ahead}
    return model.apply({"params": given}, IDS, TYPES, **named)[-1][1]


class Dropping(nn.Module):
    """Each loop drops half of the state."""

    @nn.compact
    def loop(self, state, deterministic):
        return (nn.Dropout(0.5)(state, deterministic=deterministic),)

    def __call__(self, state, ahead):
        return settled(self, (state,), (False,), ahead)


def test_loops_ahead_have_dropout_of_their_own():
    state: Any = Dropping().apply({}, jnp.ones(4000), 3, rngs={"dropout": jax.random.key(0)})
    assert float((state[0] > 0).mean()) == pytest.approx(0.5**3, abs=0.02)


def test_loops_ahead_have_no_gradient():
    """Any number of them may come first, and the gradient is that of one loop from constant atoms."""
    weights = np.random.default_rng(3).normal(size=base()[1].shape).astype(np.float32)

    def ahead_of(p, ahead):
        atoms = after(p, ahead)
        return jnp.sum(weights * atoms), atoms

    def of_one_loop(p, start):
        model: Any = LoopedFOLNet(CONFIG, injection=INJECTION)
        embeddings: Any = Embeddings(CONFIG)
        given = embeddings.apply({"params": p["embeddings"]}, IDS, TYPES, relation_ids=RELATIONS)
        return jnp.sum(weights * model.apply({"params": p}, *start, given, None, True, method="loop")[1])

    traced = small.quickly(jax.grad(ahead_of, has_aux=True))
    one = small.quickly(jax.grad(of_one_loop))
    for ahead in range(1, 3):
        got, atoms = traced(params(), ahead)
        np.testing.assert_allclose(atoms, expected(3, INJECTION)[ahead][1], atol=1e-5)
        want = one(params(), expected(2, INJECTION)[ahead - 1])
        jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=1e-4), got, want)
        assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(got)) > 0.1
    np.testing.assert_allclose(traced(params(), 0)[1], expected(3, INJECTION)[0][1], atol=1e-5)


def test_a_relation_is_read_by_its_likeness_to_a_base_atom():
    """The atom of class c itself has the logit sharpness + b_c for class c, its opposite the negative."""
    head: Any = RelationHead(CONFIG, 7, sharpness=3.0)
    size = CONFIG.relation_size
    rng = np.random.default_rng(1)
    atoms = rng.normal(size=(5, size)).astype(np.float32)
    relation = unit(atoms, -1).T[None, :, :, None] * np.asarray([1, -1], np.float32)
    names = jax.eval_shape(head.init, jax.random.key(2), relation, atoms)["params"]
    assert {name: leaf.shape for name, leaf in names.items()} == {"rows": (2, size), "bias": (7,)}
    drawn = {"rows": rng.normal(size=(2, size)).astype(np.float32), "bias": np.arange(7, dtype=np.float32)}
    logits = small.quickly(head.apply)({"params": drawn}, relation, atoms)
    assert logits.shape == (1, 5, 2, 7)
    places = np.arange(5)
    np.testing.assert_allclose(logits[0, places, 0, places], 3 + places, atol=1e-5)
    np.testing.assert_allclose(logits[0, places, 1, places], places - 3, atol=1e-5)
    want = 3 * unit(atoms, -1) @ unit(drawn["rows"], -1).T / size + np.arange(5, 7)
    np.testing.assert_allclose(logits[0, :, 0, 5:], want, atol=1e-5)
    # As many atoms as classes leave no class with a row of its own.
    given = RelationHead(CONFIG, 5)
    assert list(jax.eval_shape(given.init, jax.random.key(2), relation, atoms)["params"]) == ["bias"]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="num_loops: got 0, expected at least 1"):
        jax.eval_shape(LoopedFOLNet(CONFIG, num_loops=0).init, jax.random.key(0), IDS)
    transformer: Any = TransformerConfig()
    with pytest.raises(ValueError, match="config: got a TransformerConfig, expected a FOLNetConfig"):
        jax.eval_shape(LoopedFOLNet(transformer).init, jax.random.key(0), IDS)
    with pytest.raises(ValueError, match="injection: got -1"):
        jax.eval_shape(LoopedFOLNet(CONFIG, injection=-1.0).init, jax.random.key(0), IDS)
    with pytest.raises(ValueError, match="ahead: got -1, expected at least 0"):
        jax.eval_shape(lambda p: after(p, -1), params())
    with pytest.raises(ValueError, match="diagonal_link: got True"):
        jax.eval_shape(LoopedFOLNet(small.config(diagonal_link=True)).init, jax.random.key(0), IDS)
    for shape in ((3, 5), (9, CONFIG.relation_size)):
        relation = np.zeros((1, CONFIG.relation_size, 2, 2), np.float32)
        with pytest.raises(ValueError, match="atoms: got shape"):
            RelationHead(CONFIG, 7).init(jax.random.key(0), relation, np.zeros(shape, np.float32))
