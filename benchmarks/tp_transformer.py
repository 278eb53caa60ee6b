"""Measures training steps of both architectures, and decoding with and without the cache.

    python -m benchmarks.tp_transformer --out=results/tp_transformer/speed.json

A training step is a forward pass, a backward pass, and Adam with gradient clipping. Its lower bound is the
time of the gradient's contractions alone (`benchmarks.contractions`) plus that of the optimizer's update
alone. Decoding without the cache recomputes the decoder over all positions for each symbol; the encoder runs
once in both variants. Both are first checked to give the same symbols. All functions alternate in one
process; ratios are medians over neighbouring blocks, with minimum and maximum. Tracing a function twice is an
error.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags

from benchmarks import contractions, launching, timing
from tp_transformer import TPTransformer, Transformer, decoding, objective
from tp_transformer.model import EncoderDecoder

ARCHITECTURES = {"tp_transformer": TPTransformer, "transformer": Transformer}


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function so that tracing it twice raises RuntimeError, to rule out recompilation."""
    traces = itertools.count(1)

    def traced(*args: Any) -> Any:
        if next(traces) > 1:
            raise RuntimeError(f"{function.__name__}: traced a second time, expected once")
        return function(*args)

    return traced


def running(function: Callable[..., Any], *state: Any) -> Callable[[], Any]:
    """Returns a function that applies `function` to its own last result, which may be donated."""
    held = [jax.tree.map(jnp.copy, state)]

    def call():
        held[0] = function(*held[0])
        return held[0]

    return call


def training(model: EncoderDecoder, batch: int, source: int, target: int, blocks: int) -> dict[str, Any]:
    """Measures a row: tokens/s of one architecture, and its step relative to its lower bound."""
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

    found = contractions.of(jax.grad(loss), params)
    grads = jax.tree.map(lambda x: 1e-3 * x, params)
    times = timing.alternate(
        {
            "step": running(jax.jit(once(step), donate_argnums=(0, 1)), params, optimizer.init(params)),
            "products": contractions.alone(found),
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
        "gigaflops": contractions.operations(found) / seconds["step"] / 1e9,
        "over_floor": timing.ratio(times["step"], floor),
    }


def decoding_speed(
    model: EncoderDecoder, batch: int, source: int, length: int, blocks: int
) -> dict[str, Any]:
    """Measures a row: decoding `length` symbols for a batch of questions, with and without the cache."""
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
        raise ValueError(f"longest answer: got {symbols} symbols, expected {length}; use another seed")
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
    """Yields all rows as they are measured."""
    for name, architecture in ARCHITECTURES.items():
        row = training(architecture(**sizes), values.batch, values.source, values.target, values.blocks)
        yield {"what": "training", "model": name, **row}
    for source in sorted({values.source // 2, values.source}):
        row = decoding_speed(TPTransformer(**sizes), values.questions, source, values.length, values.blocks)
        yield {"what": "decoding", "model": "tp_transformer", **row}


def format_row(row: dict[str, Any]) -> str:
    """Formats a row as one line."""
    if row["what"] == "training":
        return (
            f"training {row['model']:15} {row['tokens_per_second']:9.0f} tokens/s, "
            f"{row['gigaflops']:.0f} GFLOP/s, relative to the lower bound {timing.shown(row['over_floor'])}"
        )
    return (
        f"decoding, source {row['source']:3}: {row['seconds']['cached']:.2f} s with the cache, "
        f"{row['seconds']['anew']:.2f} s without, {row['speedup']['median']:.1f} times as fast; "
        f"decoder alone: {row['speedup_of_the_decoder']['median']:.1f} times as fast"
    )


def main() -> None:
    """Runs the program with the values of its flags."""
    values = flags.FLAGS
    sizes = {
        "features": values.features,
        "filter_features": 4 * values.features,
        "num_heads": values.heads,
        "num_layers": values.layers,
    }
    command = "python -m benchmarks.tp_transformer"
    launching.record(measure(sizes, values), format_row, values.out, command, sizes=sizes)


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/tp_transformer/speed.json", "output file; empty to write none")
    for name, default, text in (
        ("blocks", 5, "timing blocks per function"),
        ("features", 512, "model width"),
        ("layers", 6, "layers of the encoder and of the decoder"),
        ("heads", 8, "attention heads"),
        ("batch", 16, "examples per training step"),
        ("source", 64, "symbols per question; decoding is also measured at half of it"),
        ("target", 16, "symbols per answer in training"),
        ("questions", 64, "questions decoded per batch"),
        ("length", 30, "symbols to decode"),
    ):
        flags.DEFINE_integer(name, default, text, lower_bound=1)
    launching.run(main)
