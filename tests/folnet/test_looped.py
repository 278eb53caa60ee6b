"""FOLNet in loops: the same layers again and again, and relations read by likeness to base atoms."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNet
from folnet.embeddings import Embeddings
from folnet.layers import Reasoner
from folnet.linear import normalize
from folnet.looped import LoopedFOLNet, RelationHead
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

IDS, TYPES = small.tokens()
CONFIG = small.config(relation_vocab_size=5, operators="jm.at")
RELATIONS = jnp.asarray(np.random.default_rng(0).integers(-1, 5, (*IDS.shape, IDS.shape[1])), jnp.int32)


@functools.cache
def params() -> Any:
    return small.draw(LoopedFOLNet(CONFIG))


def states(config: Any = CONFIG, **fields: Any):
    model = LoopedFOLNet(config, **fields)
    return small.quickly(lambda p: model.apply({"params": p}, IDS, TYPES, relation_ids=RELATIONS))(params())


def test_one_loop_is_the_folnet():
    """With the same parameters, its last atoms are those of `FOLNet`."""
    model = FOLNet(CONFIG)
    whole = small.draw(model) | params()
    run = small.quickly(lambda p: model.apply({"params": p}, IDS, TYPES, relation_ids=RELATIONS))
    ((unary, relation),) = states(num_loops=1)
    out = run(whole)
    np.testing.assert_array_equal(unary, out.last_hidden_state)
    np.testing.assert_array_equal(jnp.moveaxis(relation, 1, -1), out.relation_hidden_state)


def test_loops_apply_the_layers_to_their_own_atoms():
    """The second loop is a FOLNet without embeddings on the atoms of the first."""
    first, second = states(num_loops=2)
    reasoner = {"params": params()["reasoner"]}
    again = jax.jit(lambda *atoms: Reasoner(CONFIG).apply(reasoner, *atoms, None)[-1])
    for got, want in zip(second, again(*first), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert np.abs(second[1] - first[1]).max() > 0.1


def test_injection_adds_the_base_atoms_before_every_loop():
    first, second = states(num_loops=2, injection=0.5)
    np.testing.assert_allclose(first[1], states(num_loops=1)[0][1], atol=1e-5)  # base atoms to themselves
    tables = {"params": params()["embeddings"]}
    embeddings: Any = Embeddings(CONFIG)
    given = embeddings.apply(tables, IDS, TYPES, relation_ids=RELATIONS)
    added = [
        normalize(of_first + 0.5 * of_given, CONFIG.layer_norm_eps, axis=axis)
        for of_first, of_given, axis in zip(first, given, (-1, 1), strict=True)
    ]
    reasoner: Any = Reasoner(CONFIG)
    want = small.quickly(lambda p: reasoner.apply({"params": p}, *added, None)[-1])(params()["reasoner"])
    for got, expected in zip(second, want, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_call_may_loop_more_often():
    model: Any = LoopedFOLNet(CONFIG, num_loops=1)
    run = small.quickly(lambda p: model.apply({"params": p}, IDS, TYPES, relation_ids=RELATIONS, num_loops=3))
    for (_, got), (_, want) in zip(run(params()), states(num_loops=3), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def after(given: Any, ahead: Any, loops: int = 1):
    """Returns the last binary atoms of a model with injection; `ahead` may be traced."""
    model: Any = LoopedFOLNet(CONFIG, injection=0.5)
    named = {"relation_ids": RELATIONS, "num_loops": loops, "ahead": ahead}
    return model.apply({"params": given}, IDS, TYPES, **named)[-1][1]


def test_loops_ahead_come_before_those_that_are_returned():
    traced = small.quickly(lambda p, ahead: after(p, ahead))
    want = states(num_loops=3, injection=0.5)
    for ahead in range(3):
        np.testing.assert_allclose(traced(params(), ahead), want[ahead][1], atol=1e-5)
    fixed = small.quickly(lambda p: after(p, 2))
    np.testing.assert_allclose(fixed(params()), want[2][1], atol=1e-5)


def test_loops_ahead_have_no_gradient():
    """The gradient is that of one loop from constant atoms."""
    still = params()
    weights = jax.random.normal(jax.random.key(3), states(num_loops=1)[0][1].shape)
    got = small.quickly(jax.grad(lambda p: jnp.sum(weights * after(p, 2))))(still)
    start = states(num_loops=2, injection=0.5)[-1]

    def of_one_loop(p):
        model: Any = LoopedFOLNet(CONFIG, injection=0.5)
        embeddings: Any = Embeddings(CONFIG)
        given = embeddings.apply({"params": p["embeddings"]}, IDS, TYPES, relation_ids=RELATIONS)
        return jnp.sum(weights * model.apply({"params": p}, *start, given, None, True, method="loop")[1])

    want = small.quickly(jax.grad(of_one_loop))(still)
    jax.tree.map(lambda g, w: np.testing.assert_allclose(g, w, atol=1e-4), got, want)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(got)) > 0.1


def test_a_relation_is_read_by_its_likeness_to_a_base_atom():
    """The atom of class c itself has the logit sharpness + b_c for class c, its opposite the negative."""
    head: Any = RelationHead(CONFIG, 7, sharpness=3.0)
    size = CONFIG.relation_size
    atoms = jax.random.normal(jax.random.key(1), (5, size))
    relation = normalize(atoms, 1e-12).T[None, :, :, None] * jnp.array([1.0, -1.0])[None, None, None]
    drawn = head.init(jax.random.key(2), relation, atoms)["params"]
    drawn["bias"] = jnp.arange(7.0)
    assert drawn["rows"].shape == (2, size)
    logits = head.apply({"params": drawn}, relation, atoms)
    assert logits.shape == (1, 5, 2, 7)
    places = np.arange(5)
    np.testing.assert_allclose(logits[0, places, 0, places], 3 + places, atol=1e-5)
    np.testing.assert_allclose(logits[0, places, 1, places], places - 3, atol=1e-5)
    own = normalize(drawn["rows"], 1e-12)
    want = 3 * np.asarray(normalize(atoms, 1e-12) @ own.T) / size + np.arange(5, 7)
    np.testing.assert_allclose(logits[0, :, 0, 5:], want, atol=1e-5)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="num_loops: got 0, expected at least 1"):
        LoopedFOLNet(CONFIG, num_loops=0).init(jax.random.key(0), IDS)
    with pytest.raises(ValueError, match="injection: got -1"):
        LoopedFOLNet(CONFIG, injection=-1.0).init(jax.random.key(0), IDS)
    with pytest.raises(ValueError, match="ahead: got -1, expected at least 0"):
        after(params(), -1)
    with pytest.raises(ValueError, match="diagonal_link: got True"):
        LoopedFOLNet(small.config(diagonal_link=True)).init(jax.random.key(0), IDS)
    for shape in ((3, 5), (9, CONFIG.relation_size)):
        relation = jnp.zeros((1, CONFIG.relation_size, 2, 2))
        with pytest.raises(ValueError, match="atoms: got shape"):
            RelationHead(CONFIG, 7).init(jax.random.key(0), relation, jnp.zeros(shape))
