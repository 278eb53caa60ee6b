"""Measures a layer of FOLNet and one of BERT against the time of their matrix products alone.

    python -m benchmarks.folnet --out=results/folnet/speed.json

A layer is called with atoms instead of tokens, so the vocabulary plays no part. Its lower bound is the time
of its contractions alone (`benchmarks.contractions`), for the forward pass and for forward and backward.
Three programs are compared with it: the layer without dropout; the same with gradients of parameters and
inputs; and a training step with dropout and LAMB. Each operator of FOLNet is also measured by itself. All
functions of a row alternate in one process; ratios are medians over neighbouring blocks, with minimum and
maximum. Tracing a program twice is an error.

As in a run on CPUs, large blocks of memory are kept between calls, and the training step is that of the
fastest of several cuts of the batch (`experiments.runtime.chunks`).
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags
from flax import linen as nn

from benchmarks import contractions, launching, timing
from benchmarks.tp_transformer import once
from experiments.folnet_pretrain import optimizer as folnet_optimizer
from experiments.runtime import memory
from folnet import BASE, FOLNetConfig
from folnet.layers import ReasonerLayer
from folnet.modules import MIXERS, Boolean, BooleanPairs
from folnet.transformer import TransformerLayer, matched_to
from folnet.transformer_configuration import BERT_BASE, TransformerConfig

PARTS = (1, 2, 4, 8)
"""Cuts of a batch that are tried."""
SMALL = BASE.replace(
    vocab_size=64,
    hidden_size=32,
    relation_size=8,
    num_hidden_layers=2,  # the last layer's conclusions about pairs are unused
    num_attention_heads=4,
    head_size=8,
    intermediate_size=256,
    relation_intermediate_size=32,
)


class Layer(NamedTuple):
    """A module to measure, called with `inputs` (arrays or shapes).

    `drops` says whether it has dropout, and thus a `deterministic` argument.
    """

    name: str
    module: nn.Module
    inputs: tuple[Any, ...]
    drops: bool = True


def layers(config: FOLNetConfig, bert: TransformerConfig, batch: int, length: int) -> list[Layer]:
    """Returns the layers to compare: FOLNet's, BERT's, and a Transformer's matched to FOLNet's parameters."""
    unary, pairs = atoms(config, batch, length)
    # Plain operations, so that the counted contractions are those that run.
    plain = config.replace(trans_implementation="xla")
    return [
        Layer("folnet", ReasonerLayer(plain), (unary, pairs)),
        Layer("bert", TransformerLayer(bert), (unary,)),
        Layer("matched", TransformerLayer(matched_to(config)), (unary,)),
    ]


def operators(config: FOLNetConfig, batch: int, length: int) -> list[Layer]:
    """Returns FOLNet's operators with their projections, in the order of the layer."""
    unary, pairs = atoms(config, batch, length)
    inputs = {
        "join": (pairs, unary),
        "mu": (pairs,),
        "cjoin": (pairs, unary),
        "assoc": (unary,),
        "prod": (unary, pairs),
        "trans": (pairs,),
    }
    plain = config.replace(trans_implementation="xla")
    mixers = [
        Layer(name, MIXERS[name](plain), inputs[name], name in ("join", "cjoin", "trans"))
        for name in (*plain.unary_operators, *plain.binary_operators)
    ]
    return [
        *mixers,
        Layer("bool_unary", Boolean(plain), (unary,), False),
        Layer("bool_binary", BooleanPairs(plain), (pairs, pairs), False),
    ]


def atoms(config: FOLNetConfig, batch: int, length: int) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Returns the shapes of unary atoms [B, T, D] and binary atoms [B, R, T, T]."""
    return (
        jax.ShapeDtypeStruct((batch, length, config.hidden_size), config.dtype),
        jax.ShapeDtypeStruct((batch, config.relation_size, length, length), config.dtype),
    )


class Programs(NamedTuple):
    """Functions of a layer's parameters and inputs.

    `forward` returns the outputs. `gradient` also takes cotangents, and returns the outputs and the gradients
    of parameters and inputs. `step` applies dropout and returns the new parameters and `optimizer` state.
    """

    forward: Callable[..., Any]
    gradient: Callable[..., Any]
    step: Callable[..., Any]
    optimizer: optax.GradientTransformation


def programs(layer: Layer) -> Programs:
    """Builds the functions of a layer."""
    optimizer = folnet_optimizer.lamb(optax.constant_schedule(1e-4))

    def applied(params, inputs, key=None):
        options: dict[str, Any] = {}
        if key is not None and layer.drops:
            options = {"deterministic": False, "rngs": {"dropout": key}}
        return layer.module.apply({"params": params}, *inputs, **options)

    def forward(params, inputs):
        return applied(params, inputs)

    def gradient(params, inputs, cotangents):
        outputs, back = jax.vjp(forward, params, inputs)
        return outputs, back(cotangents)

    def step(parts, params, state, inputs, cotangents, key):
        def of_part(total, given):
            inputs, cotangents, key = given
            # Inside a model, a layer needs the gradient of its inputs and returns its outputs.
            outputs, back = jax.vjp(lambda params, inputs: applied(params, inputs, key), params, inputs)
            dparams, dinputs = back(cotangents)
            return jax.tree.map(jnp.add, total, dparams), (outputs, dinputs)

        def cut(leaf):
            return leaf.reshape(parts, -1, *leaf.shape[1:])

        given = *jax.tree.map(cut, (inputs, cotangents)), jax.random.split(key, parts)
        dparams, others = jax.lax.scan(of_part, jax.tree.map(jnp.zeros_like, params), given)
        updates, state = optimizer.update(dparams, state, params)
        return optax.apply_updates(params, updates), state, *others

    return Programs(forward, gradient, step, optimizer)


def shapes(layer: Layer) -> tuple[Any, Any]:
    """Returns the shapes of a layer's parameters and outputs."""
    params = jax.eval_shape(layer.module.init, jax.random.key(0), *layer.inputs)["params"]
    return params, jax.eval_shape(programs(layer).forward, params, layer.inputs)


def contractions_of(layer: Layer) -> dict[str, list[contractions.Contraction]]:
    """Returns the contractions of the forward pass, and of forward and backward ("gradient")."""
    of = programs(layer)
    params, outputs = shapes(layer)
    return {
        "forward": contractions.of(of.forward, params, layer.inputs),
        "gradient": contractions.of(of.gradient, params, layer.inputs, outputs),
    }


def drawn(tree: Any, scale: float = 1.0) -> Any:
    """Draws normal numbers with the given shapes."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        return jnp.asarray(scale * rng.standard_normal(leaf.shape, np.float32), leaf.dtype)

    return jax.tree.map(draw, tree)


def measure(layer: Layer, *, blocks: int, block_seconds: float, step: bool) -> dict[str, Any]:
    """Measures a row: times of a layer's programs and of their contractions alone, and their ratios."""
    params, outputs = shapes(layer)
    of, found = programs(layer), contractions_of(layer)
    params, inputs, cotangents = drawn(params, 0.02), drawn(layer.inputs), drawn(outputs)
    forward, gradient = jax.jit(once(of.forward)), jax.jit(once(of.gradient))
    functions = {
        "forward": lambda: forward(params, inputs),
        "gradient": lambda: gradient(params, inputs, cotangents),
        **{f"{name}_products": contractions.alone(some) for name, some in found.items()},
    }
    against = {"forward": "forward_products", "gradient": "gradient_products"}
    batch, length = _first(layer.inputs)
    cuts = {parts: f"step in {parts}" for parts in PARTS if step and batch % parts == 0}
    for parts, name in cuts.items():
        functions[name] = _stepping(of, parts, params, inputs, cotangents)
    # The first call of each block is not counted: it reallocates memory freed by the other programs.
    times = timing.alternate(functions, blocks=blocks, block_seconds=block_seconds, uncounted=1)
    by_parts = {parts: times.pop(name) for parts, name in cuts.items()}
    chosen = {}
    if step:
        fastest = min(by_parts, key=lambda parts: statistics.median(by_parts[parts]))
        times["step"], against["step"] = by_parts[fastest], "gradient_products"
        chosen = {"parts": fastest, "seconds_by_parts": medians(by_parts)}
    tokens = batch * length
    seconds = medians(times)
    return {
        "name": layer.name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "batch": batch,
        "length": length,
        **chosen,
        "gflop_a_token": {name: contractions.operations(some) / tokens / 1e9 for name, some in found.items()},
        "seconds": seconds,
        "tokens_per_second": {name: tokens / seconds[name] for name in against},
        "over_products": {name: timing.ratio(times[name], times[floor]) for name, floor in against.items()},
        "products_gflop_per_second": {
            name: contractions.operations(some) / seconds[f"{name}_products"] / 1e9
            for name, some in found.items()
        },
    }


def medians[Key](times: Mapping[Key, list[float]]) -> dict[Key, float]:
    """Returns the median of each program's blocks."""
    return {name: statistics.median(values) for name, values in times.items()}


def _first(inputs: tuple[Any, ...]) -> tuple[int, int]:
    """Returns batch size and length, given unary or binary atoms."""
    shape = inputs[0].shape
    return (shape[0], shape[1] if len(shape) == 3 else shape[2])


def _stepping(of: Programs, parts: int, params: Any, inputs: Any, cotangents: Any) -> Callable[[], Any]:
    """Returns a function that makes one training step per call, donating the previous parameters."""
    compiled = jax.jit(once(of.step), static_argnums=0, donate_argnums=(1, 2))
    held = [jax.tree.map(jnp.copy, params), jax.jit(of.optimizer.init)(params)]
    key = jax.random.key(0)

    def call():
        *held[:], outputs, dinputs = compiled(parts, *held, inputs, cotangents, key)
        return held, outputs, dinputs

    return call


def format_row(row: Mapping[str, Any]) -> str:
    """Formats a row as one line."""
    ratios = ", ".join(f"{name} {timing.shown(over)}" for name, over in row["over_products"].items())
    milliseconds = ", ".join(f"{name} {1e3 * row['seconds'][name]:.1f}" for name in row["over_products"])
    return (
        f"{row['name']:12} {1e3 * row['gflop_a_token']['gradient']:6.2f} MFLOP per token with gradients; "
        f"ms: {milliseconds}; relative to its products: {ratios}"
    )


def compare(
    config: FOLNetConfig, bert: TransformerConfig, batch: int, length: int, **options: Any
) -> Iterator[dict[str, Any]]:
    """Yields the rows of layers and operators; `options` are passed to `measure`."""
    for layer in layers(config, bert, batch, length):
        yield {"what": "layer", **measure(layer, step=True, **options)}
    for layer in operators(config, batch, length):
        yield {"what": "operator", **measure(layer, step=False, **options)}


def main() -> None:
    """Runs the program with the values of its flags."""
    memory.keep_large_blocks()
    values = flags.FLAGS
    sizes, batch, length = (BASE, BERT_BASE), values.batch, values.length
    if values.small:
        sizes, batch, length = (SMALL, matched_to(SMALL)), 2, 16
    seconds = 0.01 if values.small else 0.25
    rows = compare(*sizes, batch, length, blocks=values.blocks, block_seconds=seconds)
    command = "python -m benchmarks.folnet" + " --small" * values.small
    launching.record(rows, format_row, values.out, command)


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/folnet/speed.json", "output file; empty to write none")
    flags.DEFINE_bool("small", False, "use tiny sizes, as a smoke test; the times mean nothing")
    flags.DEFINE_integer("batch", 8, "texts per call", lower_bound=1)
    flags.DEFINE_integer("length", 128, "tokens per text, T", lower_bound=2)
    flags.DEFINE_integer("blocks", 5, "timing blocks per function", lower_bound=1)
    launching.run(main)
