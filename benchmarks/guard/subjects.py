"""Times one subject in the tree that is the current folder, for as long as it is asked to.

    python PATH/subjects.py NAME SIZE

Compiles the subject and calls it once. Then, for each line of standard input with a number of seconds, it
times calls for about so long and replies with one line of JSON. `benchmarks.guard` starts this file as a
script in this tree and in that of an earlier commit. Hence it imports nothing that is next to it, and of the
packages only names that exist in both trees; where a name has moved, the adapter is here. SIZE is "full" or
"tiny"; kernels have one size.
"""

import contextlib
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

Call = Callable[[], Any]


def found(*names: str) -> Any:
    """Imports the first of some modules that exists in this tree."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
    raise ModuleNotFoundError(f"got a tree without {', '.join(names)}, expected one of them")


def drawn(*shapes: tuple[int, ...]) -> list[jax.Array]:
    """Draws normal numbers."""
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in shapes]


def training(loss: Callable[[Any], jax.Array], params: Any) -> Call:
    """Returns a compiled training step with Adam that continues from its own result."""
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(1e-4))

    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    held = [(params, optimizer.init(params))]
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held[0]).compile()

    def call():
        held[0] = compiled(*held[0])
        return held[0]

    return call


def kernel(shape: str, direction: str) -> Call:
    """A row of `benchmarks.kernels`: a forward pass, or both passes with all gradients."""
    from benchmarks import kernel_cases

    case = next(case for case in kernel_cases.all_cases("cpu") if case.name == f"{shape} float32")
    arrays = case.draw()
    compiled = jax.jit(case.function(direction, "xla")).lower(*arrays).compile()
    return lambda: compiled(*arrays)


def boxworld(kind: str, tiny: bool) -> Call:
    """An iteration of IMPALA, acting and learning, with the paper's settings, as a run on CPUs makes it."""
    engine = found("experiments.boxworld.engine", "experiments.boxworld_engine")
    presets = found("experiments.boxworld.config", "experiments.configs.boxworld")
    config = presets.paper()
    config.agent = dataclasses.replace(config.agent, kind=kind)
    if tiny:
        config = dataclasses.replace(config, batch_size=8, updates=1, unroll=2)
    parallel = "jit"
    with contextlib.suppress(ModuleNotFoundError):  # of earlier trees, which had none of these
        names = ("mesh", "memory", "chunks")
        mesh, memory, chunks = (importlib.import_module(f"experiments.runtime.{name}") for name in names)
        if hasattr(mesh, "split_cores") and mesh.split_cores(config.cpu_devices(mesh.usable_cores(), 1)):
            parallel = "shard_map"
        memory.keep_large_blocks()
        config = chunks.resolved(config, None, config.init_params)
    learner = engine.Impala(config, parallel)
    carry = [learner.place(learner.initial())]
    learner.prepare(carry[0], 0, 1)

    def call():
        carry[0], report = learner.advance(carry[0], 0, 1)
        if not np.asarray(report.finite).all():
            raise FloatingPointError("training: loss or parameters are not finite")
        return report.grad_norm

    return call


def folnet_layer(batch: int, length: int) -> Call:
    """A training step of a layer of FOLNet Base, with the gradient of its inputs and without dropout."""
    from folnet import BASE
    from folnet.layers import ReasonerLayer

    layer = ReasonerLayer(BASE)
    shapes = (batch, length, BASE.hidden_size), (batch, BASE.relation_size, length, length)
    inputs, cotangents = drawn(*shapes), drawn(*shapes)
    params = jax.jit(layer.init)(jax.random.key(0), *inputs)["params"]

    def step(params, *inputs):
        outputs, back = jax.vjp(
            lambda params, *inputs: layer.apply({"params": params}, *inputs), params, *inputs
        )
        gradient, *of_inputs = back(type(outputs)(cotangents))
        return jax.tree.map(lambda p, g: p - 1e-6 * g, params, gradient), outputs, of_inputs

    compiled = jax.jit(step).lower(params, *inputs).compile()
    return lambda: compiled(params, *inputs)


def tp_layer(batch: int, features: int) -> Call:
    """A training step of a TP-Transformer with one layer on either side."""
    from tp_transformer import TPTransformer, objective

    model = TPTransformer(features=features, filter_features=4 * features, num_heads=8, num_layers=1)
    rng = np.random.default_rng(0)
    question, answer = (
        jnp.asarray(rng.integers(3, model.vocab_size, (batch, n)), jnp.int32) for n in (64, 17)
    )
    given, labels = objective.shifted(answer)
    params = jax.jit(model.init)(jax.random.key(0), question[:1], given[:1])["params"]

    def loss(params):
        logits: Any = model.apply({"params": params}, question, given)
        sums = objective.next_symbol_sums(logits, labels)
        return sums.loss / sums.symbols

    return training(loss, params)


def llrnn(name: str, batch: int, **options: Any) -> Call:
    """A training step of a recurrent cell on sequences of 32 symbols."""
    from llrnn import model as models

    (inputs,) = drawn((batch, 32, 10))
    targets = jnp.asarray(np.random.default_rng(1).integers(0, 10, (batch, 32)))
    model = models.RecurrentModel(models.make_cell(name, **options), 10)
    params = jax.jit(model.init)(jax.random.key(0), inputs)["params"]

    def loss(params):
        out: Any = model.apply({"params": params}, inputs)
        return optax.softmax_cross_entropy_with_integer_labels(out.logits, targets).mean()

    return training(loss, params)


KERNELS = {
    "two_simplicial": ("agent", "virtual-small", "full-128", "full-small"),
    "trans": ("pre-training", "decoder"),
    "trilinear": ("cpu, grouped", "cpu, ungrouped", "cpu, all the past", "cpu, all pairs"),
}
"""The shapes of `benchmarks.kernels` on CPUs, which are the same in both trees."""
MEMORY = {"features": 100, "memory_size": 128, "memory_width": 20}
SUBJECTS: dict[str, Callable[[bool], Call]] = {
    **{
        f"kernels.{operation}.{shape}.{direction}": lambda tiny, row=(shape, direction): kernel(*row)
        for operation, shapes in KERNELS.items()
        for shape in shapes
        for direction in ("forward", "both")
    },
    "boxworld.relational": lambda tiny: boxworld("relational", tiny),
    "boxworld.simplicial": lambda tiny: boxworld("simplicial", tiny),
    "folnet.layer": lambda tiny: folnet_layer(*((1, 4) if tiny else (8, 128))),
    "tp_transformer.layer": lambda tiny: tp_layer(*((1, 8) if tiny else (16, 512))),
    "llrnn.higher_order": lambda tiny: llrnn("higher_order", 2 if tiny else 64, features=128, max_power=16),
    "llrnn.second_order": lambda tiny: llrnn("second_order", 2 if tiny else 64, features=128),
    "llrnn.ntm": lambda tiny: llrnn("ntm", 2 if tiny else 64, **MEMORY),
    "llrnn.pattern_ntm": lambda tiny: llrnn("pattern_ntm", 2 if tiny else 64, features=100),
}
"""Functions that compile a subject, tiny or not, and return a call to time."""


def measure(call: Call, seconds: float) -> list[float]:
    """Returns the seconds of each call, at least one."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return times


def main(name: str, size: str) -> None:
    """Replies to the requests of standard input."""
    import kernels

    if Path.cwd() not in Path(kernels.__file__).resolve().parents:
        raise SystemExit(f"got kernels from {kernels.__file__}, expected those of {Path.cwd()}")
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(2, 1)  # what a tree prints is no reply
        call = SUBJECTS[name](size == "tiny")
        jax.block_until_ready(call())
        for seconds in sys.stdin:
            print(json.dumps({"seconds": measure(call, float(seconds))}), file=replies, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
