"""Tables of parameters: mismatches, initialized heads, encoders with other heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNet, FOLNetForPreTraining, FOLNetForSequenceClassification, parameters
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIG = small.config(operators="j.a")


def test_there_and_back():
    """Nested and by name."""
    tree = {"a": {"b": {"c": 1}, "d": 2}, "e": 3}
    assert parameters.flatten(tree) == {"a.b.c": 1, "a.d": 2, "e": 3}
    assert parameters.nest(parameters.flatten(tree)) == tree


def test_heads_that_are_missing_are_drawn_with_a_key_only():
    """The encoder's parameters are never initialized."""
    model = FOLNetForSequenceClassification(CONFIG)
    table = {name: np.asarray(leaf) for name, leaf in parameters.flatten(small.draw(model)).items()}
    encoder = {name: leaf for name, leaf in table.items() if name.startswith("folnet.")}
    with pytest.raises(
        ValueError, match=r"(?s)a table: does not fit FOLNetForSequence.*classifier.weight: miss"
    ):
        parameters.filled(model, encoder, "a table")
    params = parameters.filled(model, encoder, "a table", key=jax.random.key(0))
    assert 0.005 < float(params["classifier"]["weight"].std()) < 0.04
    assert not params["classifier"]["bias"].any()
    np.testing.assert_array_equal(params["folnet"]["pooler"]["weight"], table["folnet.pooler.weight"])
    del encoder["folnet.pooler.bias"]
    with pytest.raises(ValueError, match=r"folnet.pooler.bias: missing, expected \(14,\)$"):
        parameters.filled(model, encoder, "a table", key=jax.random.key(0))


def test_parameters_become_float32():
    """Whatever dtype they were saved in."""
    model = FOLNet(CONFIG)
    half = {
        name: np.asarray(leaf, jnp.bfloat16) for name, leaf in parameters.flatten(small.draw(model)).items()
    }
    params = parameters.filled(model, half, "a table")
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_an_encoder_is_found_in_every_class():
    """With or without a prefix; other heads are left out."""
    pretraining = parameters.shapes(FOLNetForPreTraining(CONFIG))
    bare = parameters.shapes(FOLNet(CONFIG))
    classes = parameters.shapes(FOLNetForSequenceClassification(CONFIG))
    assert parameters.adapted(pretraining, bare) == bare
    encoder = {name: shape for name, shape in classes.items() if name.startswith("folnet.")}
    assert parameters.adapted(pretraining, classes) == encoder
    assert parameters.adapted(bare, classes) == encoder
    assert parameters.adapted(classes, classes) == classes
    # What no model has stays, for an error that names it; only a pooler is left out in silence.
    more = {"extra": (2,), "pooler.extra": (3,)}
    assert parameters.adapted(bare | more, classes) == encoder | {"folnet.extra": (2,)}
    assert sorted(parameters.missing_heads(classes, encoder)) == ["classifier.bias", "classifier.weight"]
    assert parameters.missing_heads(bare, []) == []
