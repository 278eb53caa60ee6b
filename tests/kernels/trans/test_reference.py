"""The definition of trans: against a loop, and float64 formulas; what must hold of it whoever computes it."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels.trans import reference, shapes
from tests.kernels.trans import cases

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def by_autodiff(config, arrays, dout):
    """Values and gradients of the reference in float64."""
    with jax.enable_x64(True):
        kernel_logits, premise, mask = (None if x is None else jnp.asarray(x) for x in arrays)

        @jax.jit
        def both(kernel_logits, premise, dout):
            function = functools.partial(reference.trans, config, mask=mask)
            (out, lse), pull = jax.vjp(function, kernel_logits, premise)
            return out, lse, *pull((dout, jnp.zeros_like(lse)))

        return dict(zip(cases.NAMES, both(kernel_logits, premise, jnp.asarray(dout)), strict=True))


@pytest.mark.parametrize(
    ("shape", "mask"),
    [
        (shapes.SMALL[1], "full"),
        (shapes.SMALL[4], "nothing allowed"),
        *((shape, "none") for shape in shapes.SMALL[4:]),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_values_and_gradients_are_those_of_the_formulas(shape, mask):
    arrays, dout = cases.make(shape, "float64", mask)
    want = cases.answers(shape.config, arrays, dout)
    cases.assert_close(by_autodiff(shape.config, arrays, dout), want, "float64")


def test_the_formulas_are_a_loop():
    """Table 2 word by word, in Python floats: the answers that every backend is compared with."""
    shape = shapes.Shape("", 2, 2, rows=4, columns=6, outputs=3, causal=True, row_offset=1)
    arrays, dout = cases.make(shape, "float64", "full")
    kernel_logits, premise, mask = arrays
    want = cases.answers(shape.config, arrays, dout)
    for b, h, x in np.ndindex(2, 2, 4):
        past = [a for a in range(6) if mask[b, h, x, a] and a <= x + 1]
        powers = {a: math.exp(kernel_logits[b, h, x, a]) for a in past}
        for y in range(3):
            total = sum(powers[a] * premise[b, h, a, y] for a in past)
            expected = total / sum(powers.values()) if past else 0.0
            assert want["out"][b, h, x, y] == pytest.approx(expected, abs=1e-14)
        expected = math.log(sum(powers.values())) if past else 0.0
        assert want["lse"][b, h, x] == pytest.approx(expected, abs=1e-14)
    assert not mask.any(-1).all()


def test_the_formulas_gradients_are_differences():
    shape = shapes.Shape("", 1, 1, rows=3, columns=4, outputs=2, causal=True)
    arrays, dout = cases.make(shape, "float64", "tokens")
    want = cases.answers(shape.config, arrays, dout)
    for place, name in enumerate(("dkernel_logits", "dpremise")):
        for index in np.ndindex(arrays[place].shape):
            moved = []
            for step in (1e-5, -1e-5):
                changed = [x.copy() for x in arrays]
                changed[place][index] += step
                moved.append((cases.answers(shape.config, changed, dout)["out"] * dout).sum())
            assert want[name][index] == pytest.approx((moved[0] - moved[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("causal", [False, True])
def test_the_plain_paths_of_the_benchmarks_are_the_same_operator(causal):
    shape = shapes.square("", 2, 3, 7, causal=causal)
    (kernel_logits, premise, _), dout = cases.make(shape, "float32")
    want = cases.answers(shape.config, (kernel_logits, premise, None), dout)["out"]
    kernel_logits, premise = jnp.asarray(kernel_logits), jnp.asarray(premise)
    assert cases.error(reference.plain_head_major(kernel_logits, premise, causal), want) < 1e-6
    out = reference.plain(jnp.moveaxis(kernel_logits, 1, 3), jnp.moveaxis(premise, 1, 3), causal)
    assert cases.error(jnp.moveaxis(out, 3, 1), want) < 1e-6


def test_parents_of_fathers_are_grandparents():
    """The paper's example (Appendix A.1), with logits so large that the softmax picks one."""
    father = np.full((1, 1, 3, 3), -50.0)
    father[0, 0, 0, 1] = father[0, 0, 1, 2] = father[0, 0, 2, 0] = 50.0
    parent = np.zeros((1, 1, 3, 3))
    parent[0, 0, 1, 2] = 1.0
    grandparent, _ = reference.trans(reference.Config(), jnp.asarray(father), jnp.asarray(parent))
    np.testing.assert_array_equal(grandparent[0, 0], [[0, 0, 1], [0, 0, 0], [0, 0, 0]])
