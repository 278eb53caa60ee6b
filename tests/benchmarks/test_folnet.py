"""The benchmark counts what the paper's formulas need, and its rows hold together."""

import jax
import pytest

from benchmarks import contractions
from benchmarks import folnet as benchmark
from folnet import BASE
from folnet.transformer import matched_to

pytestmark = pytest.mark.usefixtures("compiled_quickly")

T, D1, D2, H, S = 128, BASE.hidden_size, BASE.relation_size, BASE.num_attention_heads, BASE.head_size
FF1, FF2 = BASE.intermediate_size, BASE.relation_intermediate_size
# Multiplications with additions for one token x, and all of its pairs (x, y).
FORWARD = {
    "join": T * D2 * H + D1 * H * S + T * H * S + H * S * D1,
    "mu": T * D2 * H + T * H * D2 + H * D2 * S + H * S * D1,
    "cjoin": D1 * H * S + T * D2 * S + T * H * S + H * S * D1,
    "assoc": 2 * D1 * H * S + T * H * S + T * H * D2,
    "prod": D1 * H * S + H * S * D2 + H * S + T * H * D2 + T * H * D2,
    "trans": T * D2 * 2 * D2 + T * T * D2 + T * D2 * D2,
    "bool_unary": 2 * D1 * FF1,
    "bool_binary": T * (2 * D2 * FF2 + FF2 * D2 + D2 * D2),
}


def test_what_is_counted_is_what_the_formulas_need():
    """Each operator by hand; the layer is their sum, and its backward pass has two for each."""
    batch = 2
    for layer in benchmark.operators(BASE, batch, T):
        params = jax.eval_shape(layer.module.init, jax.random.key(0), *layer.inputs)["params"]
        found = contractions.of(benchmark.programs(layer).forward, params, layer.inputs)
        assert contractions.operations(found) == 2 * batch * T * FORWARD[layer.name], layer.name
    layer = benchmark.layers(BASE, benchmark.BERT_BASE, batch, T)[0]
    found = benchmark.contractions_of(layer)
    assert contractions.operations(found["forward"]) == 2 * batch * T * sum(FORWARD.values())
    assert contractions.operations(found["gradient"]) == 3 * contractions.operations(found["forward"])


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_the_compiler_counts_nearly_the_same(which):
    """What XLA counts beyond contractions is little, forward and with gradients."""
    layer = benchmark.layers(BASE, benchmark.BERT_BASE, 2, T)[which]
    of, found = benchmark.programs(layer), benchmark.contractions_of(layer)
    params, outputs = benchmark.shapes(layer)
    for function, args, name in (
        (of.forward, (params, layer.inputs), "forward"),
        (of.gradient, (params, layer.inputs, outputs), "gradient"),
    ):
        analysis = jax.jit(function).lower(*args).cost_analysis()
        assert analysis is not None
        assert 0.95 < contractions.operations(found[name]) / analysis["flops"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 2])
def test_a_row(which):
    """Numbers that fit together, a line that says them; the step is called several times, and traced once."""
    layer = benchmark.layers(benchmark.SMALL, matched_to(benchmark.SMALL), 2, 8)[which]
    row = benchmark.measure(layer, blocks=2, block_seconds=1e-3, step=True)
    assert (row["batch"], row["length"]) == (2, 8)
    assert set(row["seconds_by_parts"]) == {1, 2}
    assert row["seconds"]["step"] == row["seconds_by_parts"][row["parts"]]
    assert row["seconds"]["step"] == min(row["seconds_by_parts"].values())
    for name in ("forward", "gradient", "step"):
        assert row["tokens_per_second"][name] == pytest.approx(2 * 8 / row["seconds"][name])
        over = row["over_products"][name]
        assert 0 < over["least"] <= over["median"] <= over["greatest"]
    rate = row["gflop_a_token"]["forward"] * 16 / row["seconds"]["forward_products"]
    assert row["products_gflop_per_second"]["forward"] == pytest.approx(rate)
    assert benchmark.format_row(row).startswith(layer.name)
    assert f"step {row['over_products']['step']['median']:.2f} (" in benchmark.format_row(row)


def test_tokens_of_binary_atoms(monkeypatch):
    """An operator that takes pairs alone is counted by its tokens too; it is called, its gradient is not."""

    def alternate(functions, **_):
        functions["forward"]()
        return {name: [1.0] for name in functions}

    monkeypatch.setattr(benchmark.timing, "alternate", alternate)
    monkeypatch.setattr(benchmark.contractions, "alone", lambda found: None)  # draws each of their arrays
    layer = next(layer for layer in benchmark.operators(benchmark.SMALL, 2, 8) if layer.name == "mu")
    row = benchmark.measure(layer, blocks=1, block_seconds=1e-3, step=False)
    assert (row["batch"], row["length"]) == (2, 8)
    assert "step" not in row["seconds"]
    assert benchmark.format_row(row).startswith("mu ")
