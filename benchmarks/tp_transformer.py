"""Training steps of both architectures against their floor, and decoding with the cache against without.

    python -m benchmarks.tp_transformer --out=results/tp_transformer/speed.json

The floor of a training step (forward, backward, Adam with clipped gradients) is the time of its bare matrix
products, each alone and by itself, and of the optimizer's update alone. Decoding without the cache computes
the decoder over all positions for each symbol; the encoder works once in either. That both give the same
symbols is checked first. All take turns in one process; ratios are medians over neighbouring blocks, with the
least and the greatest. Every compiled function must be traced once.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from benchmarks import timing
from tp_transformer import TPTransformer, Transformer, decoding, objective
from tp_transformer.model import EncoderDecoder

ARCHITECTURES = {"tp_transformer": TPTransformer, "transformer": Transformer}


class Product(NamedTuple):
    """So many matrix products [batch, m, k] x [batch, k, n] of a training step."""

    count: int  # how many, of this shape
    batch: int  # how many at once
    m: int  # rows
    k: int  # summed over
    n: int  # columns
    has_input_gradient: bool = True  # whether the backward pass has a product for the left factor as well

    @property
    def operations(self) -> int:
        """Multiplications and additions, forward and backward."""
        return 2 * self.count * self.batch * self.m * self.k * self.n * (3 if self.has_input_gradient else 2)


def products(model: EncoderDecoder, batch: int, source: int, target: int) -> list[Product]:
    """The products of a training step's forward pass; the backward pass has two or one for each."""
    d, f, v, layers = model.features, model.filter_features, model.vocab_size, model.num_layers
    heads, width = batch * model.num_heads, d // model.num_heads
    s, t, roles = batch * source, batch * target, int(model.binds_roles)
    return [
        Product(1, 1, s, v, d, False),  # lookup
        Product(1, 1, t, v, d, False),
        Product(1, 1, t, d, v),  # logits
        Product(layers * (4 + roles + 2) + roles, 1, s, d, d),  # with cross-attention's keys and values
        Product(layers * (4 + roles + 2 + roles) + roles, 1, t, d, d),
        *(Product(layers, 1, rows, *sizes) for rows in (s, t) for sizes in ((d, f), (f, d))),
        *(
            Product(layers, heads, queries, *sizes)
            for queries, keys in ((source, source), (target, target), (target, source))
            for sizes in ((width, keys), (keys, width))
        ),
    ]


def bare(shapes: Sequence[Product], dtype: Any = jnp.float32) -> Callable[[], Any]:
    """A call that does nothing but these products, forward and backward."""

    @jax.jit
    def forward(x, w):
        return x @ w

    @jax.jit
    def input_gradient(y, w):
        return jax.lax.dot_general(y, w, (((2,), (2,)), ((0,), (0,))))

    @jax.jit
    def weight_gradient(x, y):
        return jax.lax.dot_general(x, y, (((1,), (1,)), ((0,), (0,))))

    def call():
        last = []
        for shape, (x, w, y) in zip(shapes, arrays, strict=True):
            for _ in range(shape.count):
                last = [forward(x, w), weight_gradient(x, y)]
                if shape.has_input_gradient:
                    last.append(input_gradient(y, w))
        return last

    arrays = [
        (
            jnp.ones((p.batch, p.m, p.k), dtype),
            jnp.ones((p.batch, p.k, p.n), dtype),
            jnp.ones((p.batch, p.m, p.n), dtype),
        )
        for p in shapes
    ]
    return call


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that `jax.jit` may trace once: what is timed is never compiled anew."""
    traces = itertools.count(1)

    def traced(*args: Any) -> Any:
        if next(traces) > 1:
            raise RuntimeError(f"{function.__name__} was traced a second time")
        return function(*args)

    return traced


def running(function: Callable[..., Any], *state: Any) -> Callable[[], Any]:
    """Calls of a function on its own last result, which it may overwrite."""
    held = [jax.tree.map(jnp.copy, state)]

    def call():
        held[0] = function(*held[0])
        return held[0]

    return call


def training(model: EncoderDecoder, batch: int, source: int, target: int, blocks: int) -> dict[str, Any]:
    """A row: tokens/s of one architecture, and its step over its floor."""
    rng = np.random.default_rng(0)
    question, answer = (
        jnp.asarray(rng.integers(3, model.vocab_size, (batch, n)), jnp.int32) for n in (source, target + 1)
    )
    given, labels = objective.shifted(answer)
    params = jax.jit(model.init)(jax.random.key(0, impl="rbg"), question[:1], given[:1])["params"]
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-4, b1=0.9, b2=0.995))

    def loss(params):
        logits = model.apply({"params": params}, question, given)
        assert isinstance(logits, jax.Array)
        sums = objective.next_symbol_sums(logits, labels)
        return sums.loss / sums.symbols

    def step(params, state):
        return update(params, state, jax.grad(loss)(params))[:2]

    def update(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, grads

    shapes = products(model, batch, source, target)
    grads = jax.tree.map(lambda x: 1e-3 * x, params)
    times = timing.alternate(
        {
            "step": running(jax.jit(once(step), donate_argnums=(0, 1)), params, optimizer.init(params)),
            "products": bare(shapes, model.dtype or model.param_dtype),
            "optimizer": running(
                jax.jit(once(update), donate_argnums=(0, 1, 2)), params, optimizer.init(params), grads
            ),
        },
        blocks=blocks,
    )
    floor = [sum(parts) for parts in zip(times["products"], times["optimizer"], strict=True)]
    seconds = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "batch": batch,
        "source": source,
        "target": target,
        "seconds": seconds,
        "tokens_per_second": batch * (source + target) / seconds["step"],
        "gigaflops": sum(shape.operations for shape in shapes) / seconds["step"] / 1e9,
        "over_floor": timing.ratio(times["step"], floor),
    }


def decoding_speed(
    model: EncoderDecoder, batch: int, source: int, length: int, blocks: int
) -> dict[str, Any]:
    """A row: answers of `length` symbols to a batch of questions, with the cache and without."""
    question = jnp.asarray(np.random.default_rng(1).integers(3, model.vocab_size, (batch, source)), jnp.int32)
    params = jax.jit(model.init)(jax.random.key(0, impl="rbg"), question[:1], question[:1])["params"]

    def decode(cache: bool) -> Callable[[Any], jax.Array]:
        def traced(params):
            return decoding.greedy_decode(
                model, params, question, max_length=length, start=1, end=2, cache=cache
            )

        return jax.jit(once(traced))

    cached, anew = decode(True), decode(False)
    encode = jax.jit(once(lambda params: model.apply({"params": params}, question, method="remember")))
    answers = np.asarray(cached(params))
    np.testing.assert_array_equal(answers, anew(params))
    symbols = int(np.max(np.sum(answers != model.pad, axis=1))) - 1
    if symbols < length:
        raise ValueError(f"the longest answer has {symbols} symbols, expected {length}: use another seed")
    times = timing.alternate(
        {
            "cached": lambda: cached(params),
            "anew": lambda: anew(params),
            "encoder": lambda: encode(params),
        },
        blocks=blocks,
    )
    decoder = {
        name: [max(t - e, 1e-9) for t, e in zip(times[name], times["encoder"], strict=True)]
        for name in ("cached", "anew")
    }
    return {
        "batch": batch,
        "source": source,
        "length": length,
        "seconds": {name: float(np.median(values)) for name, values in times.items()},
        "speedup": timing.ratio(times["anew"], times["cached"]),
        "speedup_of_the_decoder": timing.ratio(decoder["anew"], decoder["cached"]),
    }


def measure(sizes: dict[str, Any], values: Any) -> Iterator[dict[str, Any]]:
    """All rows, as they are found."""
    for name, architecture in ARCHITECTURES.items():
        row = training(architecture(**sizes), values.batch, values.source, values.target, values.blocks)
        yield {"what": "training", "model": name, **row}
    for source in sorted({values.source // 2, values.source}):
        row = decoding_speed(TPTransformer(**sizes), values.questions, source, values.length, values.blocks)
        yield {"what": "decoding", "model": "tp_transformer", **row}


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    if row["what"] == "training":
        over = row["over_floor"]
        return (
            f"training {row['model']:15} {row['tokens_per_second']:9.0f} tokens/s, "
            f"{row['gigaflops']:.0f} GFLOP/s, over its floor {over['median']:.2f} "
            f"({over['least']:.2f} to {over['greatest']:.2f})"
        )
    return (
        f"decoding, source {row['source']:3}: {row['seconds']['cached']:.2f} s with the cache, "
        f"{row['seconds']['anew']:.2f} s without, {row['speedup']['median']:.1f} times as fast; "
        f"the decoder alone {row['speedup_of_the_decoder']['median']:.1f} times"
    )


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    sizes = {
        "features": values.features,
        "filter_features": 4 * values.features,
        "num_heads": values.heads,
        "num_layers": values.layers,
    }
    rows = []
    for row in measure(sizes, values):
        rows.append(row)
        print(told(row), flush=True)
    if values.out:
        record = {
            **timing.where_and_when(),
            "command": "python -m benchmarks.tp_transformer",
            "sizes": sizes,
            "rows": rows,
        }
        Path(values.out).parent.mkdir(parents=True, exist_ok=True)
        Path(values.out).write_text(json.dumps(record, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/tp_transformer/speed.json", "where the record goes; empty: nowhere")
    for name, default, text in (
        ("blocks", 5, "blocks of each function"),
        ("features", 512, "features of a cell"),
        ("layers", 6, "layers of the encoder, and of the decoder"),
        ("heads", 8, "heads of an attention"),
        ("batch", 16, "examples of a training step"),
        ("source", 64, "symbols of a question; decoding is measured at half of it too"),
        ("target", 16, "symbols of an answer in training"),
        ("questions", 64, "questions decoded at once"),
        ("length", 30, "symbols decoded"),
    ):
        flags.DEFINE_integer(name, default, text, lower_bound=1)
    app.run(main)
