"""The benchmark of decoding at a small size: its rows, and its check of the outputs."""

import dataclasses

import jax.numpy as jnp
import pytest
from flax import linen as nn

from benchmarks import decoding

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_row(monkeypatch):
    layer = dataclasses.replace(decoding.LAYERS["signed"], window1=2, window2=5)
    monkeypatch.setitem(decoding.LAYERS, "signed", layer)
    monkeypatch.setattr(
        decoding.timing,
        "alternate",
        lambda functions, blocks: {
            name: [call().shape[1] * seconds]
            for (name, call), seconds in zip(functions.items(), (3.0, 0.1), strict=True)
        },
    )
    row = decoding.measure("signed", 8, 1)
    assert row["speedup"]["median"] == pytest.approx(30)
    assert decoding.format_row(row).endswith("30 (30 to 30) times as fast")


class Drifting(nn.Module):
    """Adds one to what it decodes."""

    decode: bool = False

    @nn.compact
    def __call__(self, x):
        if self.decode:
            self.variable("cache", "nothing", lambda: jnp.zeros(()))
        return x + self.param("bias", nn.initializers.zeros, ()) + self.decode


def test_a_step_that_differs_from_the_whole_sequence_is_not_timed(monkeypatch):
    monkeypatch.setitem(decoding.LAYERS, "drifting", Drifting())
    with pytest.raises(ValueError, match=r"drifting: a step differs from the whole sequence by 1\.0e\+00"):
        decoding.measure("drifting", 3, 1)
