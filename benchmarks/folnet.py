"""A layer of FOLNet and one of BERT against their bare contractions; on an accelerator, pretraining.

    python -m benchmarks.folnet --out=results/folnet/speed.json
    python -m benchmarks.folnet --accelerator --out=results/folnet/accelerator.json

A layer is called with atoms, not tokens, so no vocabulary is in it. Its floor is the contractions that it has
when it is traced, alone (`benchmarks.contractions`), forward, and with those of the backward pass. Three
programs are held against it: the layer without dropout, the same with gradients of parameters and inputs, and
a training step: with dropout and LAMB. The operators of FOLNet are measured each by itself as well. All of
a row take turns in one process; ratios are medians over neighbouring blocks, with the least and the greatest.
A program that is traced twice is an error.

With `--accelerator`: training steps of `base_16gb` (FOLNet Base, masked words and sentences, LAMB) at T = 128
and 512 in bfloat16; tokens/s, the peak of memory, and how much of the measured rate of matrix products
the model's own contractions make up: what rematerialisation adds is not counted. With dropout, trans is made
of plain operations; without dropout of kernels the kernel for it can be compared with XLA's.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags
from flax import linen as nn

from benchmarks import contractions, folnet_pretraining, timing
from benchmarks.tp_transformer import once
from experiments import folnet_optimizer
from folnet import BASE, FOLNetConfig
from folnet.layers import ReasonerLayer
from folnet.modules import MIXERS, Boolean, BooleanPairs
from folnet.transformer import TransformerLayer, matched_to
from folnet.transformer_configuration import BERT_BASE, TransformerConfig

SMALL = BASE.replace(
    vocab_size=64,
    hidden_size=32,
    relation_size=8,
    num_hidden_layers=2,  # the last one's conclusions about pairs are no one's premises
    num_attention_heads=4,
    head_size=8,
    intermediate_size=256,
    relation_intermediate_size=32,
)


class Layer(NamedTuple):
    """What is measured by itself."""

    name: str  # of the row
    module: nn.Module  # called with `inputs`, and told what to drop if `drops`
    inputs: tuple[Any, ...]  # arrays or their shapes
    drops: bool = True  # whether it takes `deterministic`


def layers(config: FOLNetConfig, bert: TransformerConfig, batch: int, length: int) -> list[Layer]:
    """The layers compared: FOLNet's, BERT's, and the Transformer's that has as many parameters as FOLNet."""
    unary, pairs = atoms(config, batch, length)
    # The compiler that counts and the one that measures see the same plain operations.
    plain = config.replace(trans_implementation="xla")
    return [
        Layer("folnet", ReasonerLayer(plain), (unary, pairs)),
        Layer("bert", TransformerLayer(bert), (unary,)),
        Layer("matched", TransformerLayer(matched_to(config)), (unary,)),
    ]


def operators(config: FOLNetConfig, batch: int, length: int) -> list[Layer]:
    """FOLNet's operators with their projections, in the order of the layer."""
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
    """Shapes of unary and of binary atoms."""
    return (
        jax.ShapeDtypeStruct((batch, length, config.hidden_size), config.dtype),
        jax.ShapeDtypeStruct((batch, config.relation_size, length, length), config.dtype),
    )


class Programs(NamedTuple):
    """Functions of a layer; `Layer.inputs`, parameters, cotangents and states are arguments, or their shapes."""

    forward: Callable[..., Any]  # the layer's outputs
    gradient: Callable[..., Any]  # outputs and, given cotangents, the gradients of parameters and inputs
    step: Callable[..., Any]  # with dropout; new parameters and optimizer state
    optimizer: optax.GradientTransformation  # of `step`


def programs(layer: Layer) -> Programs:
    """The functions of a layer."""
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

    def step(params, state, inputs, cotangents, key):
        # A layer among others needs the gradient of its inputs, and hands on its outputs.
        outputs, back = jax.vjp(lambda params, inputs: applied(params, inputs, key), params, inputs)
        dparams, dinputs = back(cotangents)
        updates, state = optimizer.update(dparams, state, params)
        return optax.apply_updates(params, updates), state, outputs, dinputs

    return Programs(forward, gradient, step, optimizer)


def shapes(layer: Layer) -> tuple[Any, Any]:
    """Shapes of a layer's parameters and outputs."""
    params = jax.eval_shape(layer.module.init, jax.random.key(0), *layer.inputs)["params"]
    return params, jax.eval_shape(programs(layer).forward, params, layer.inputs)


def contractions_of(layer: Layer) -> dict[str, list[contractions.Contraction]]:
    """Those of the forward pass, and of the forward and backward passes."""
    of = programs(layer)
    params, outputs = shapes(layer)
    return {
        "forward": contractions.of(of.forward, params, layer.inputs),
        "gradient": contractions.of(of.gradient, params, layer.inputs, outputs),
    }


def drawn(tree: Any, scale: float = 1.0) -> Any:
    """Normal numbers for shapes."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        return jnp.asarray(scale * rng.standard_normal(leaf.shape, np.float32), leaf.dtype)

    return jax.tree.map(draw, tree)


def measure(layer: Layer, *, blocks: int, block_seconds: float, step: bool) -> dict[str, Any]:
    """A row: times of a layer's programs and of their floors, and their ratios."""
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
    if step:
        functions["step"] = _stepping(of, params, inputs, cotangents)
        against["step"] = "gradient_products"
    # One call of each block is not counted: it pays for the memory that another program gave back.
    times = timing.alternate(functions, blocks=blocks, block_seconds=block_seconds, uncounted=1)
    batch, length = _first(layer.inputs)
    tokens = batch * length
    seconds = {name: statistics.median(values) for name, values in times.items()}
    return {
        "name": layer.name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "batch": batch,
        "length": length,
        "gflop_a_token": {name: contractions.operations(some) / tokens / 1e9 for name, some in found.items()},
        "seconds": seconds,
        "tokens_per_second": {name: tokens / seconds[name] for name in against},
        "over_products": {name: timing.ratio(times[name], times[floor]) for name, floor in against.items()},
        "products_gflop_per_second": {
            name: contractions.operations(some) / seconds[f"{name}_products"] / 1e9
            for name, some in found.items()
        },
    }


def _first(inputs: tuple[Any, ...]) -> tuple[int, int]:
    """[B, T], of unary or binary atoms."""
    shape = inputs[0].shape
    return (shape[0], shape[1] if len(shape) == 3 else shape[2])


def _stepping(of: Programs, params: Any, inputs: Any, cotangents: Any) -> Callable[[], Any]:
    """Calls of the training step, each on the last one's parameters, which it may overwrite."""
    compiled = jax.jit(once(of.step), donate_argnums=(0, 1))
    held = [jax.tree.map(jnp.copy, params), jax.jit(of.optimizer.init)(params)]
    key = jax.random.key(0)

    def call():
        *held[:], outputs, dinputs = compiled(*held, inputs, cotangents, key)
        return held, outputs, dinputs

    return call


def told(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    ratios = ", ".join(
        f"{name} {over['median']:.2f} ({over['least']:.2f} to {over['greatest']:.2f})"
        for name, over in row["over_products"].items()
    )
    milliseconds = ", ".join(f"{name} {1e3 * row['seconds'][name]:.1f}" for name in row["over_products"])
    return (
        f"{row['name']:12} {1e3 * row['gflop_a_token']['gradient']:6.2f} MFLOP a token with gradients; "
        f"ms: {milliseconds}; over its products: {ratios}"
    )


def compare(
    config: FOLNetConfig, bert: TransformerConfig, batch: int, length: int, **options: Any
) -> Iterator[dict[str, Any]]:
    """Rows of layers and operators, as they are found; options are those of `measure`."""
    for layer in layers(config, bert, batch, length):
        yield {"what": "layer", **measure(layer, step=True, **options)}
    for layer in operators(config, batch, length):
        yield {"what": "operator", **measure(layer, step=False, **options)}


def found(values: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """The rows that the flags ask for, each with its line."""
    config = SMALL if values.small else BASE
    if values.accelerator:
        cases = folnet_pretraining.cases(8, 16, 2)[:2] if values.small else folnet_pretraining.cases()
        for row in folnet_pretraining.rows(
            config.replace(dtype="bfloat16"),
            cases,
            matrix=64 if values.small else 0,
            seconds=0.01 if values.small else 0.5,
            budget=values.budget,
        ):
            yield row, folnet_pretraining.told(row)
        return
    bert = matched_to(SMALL) if values.small else BERT_BASE
    batch, length = (2, 16) if values.small else (values.batch, values.length)
    for row in compare(
        config, bert, batch, length, blocks=values.blocks, block_seconds=0.01 if values.small else 0.25
    ):
        yield row, told(row)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    asked = [f"--{name}" for name in ("small", "accelerator") if values[name].value]
    record: dict[str, Any] = {
        **timing.where_and_when(),
        "command": " ".join(["python -m benchmarks.folnet", *asked]),
        "rows": [],
    }
    for row, line in found(values):
        print(line, flush=True)
        record["rows"].append(row)
        if values.out:  # whole whenever the program is ended
            Path(values.out).parent.mkdir(parents=True, exist_ok=True)
            Path(values.out).write_text(json.dumps(record, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    flags.DEFINE_string("out", "results/folnet/speed.json", "where the record goes; empty: nowhere")
    flags.DEFINE_bool("small", False, "tiny sizes, to see that everything runs; measures nothing")
    flags.DEFINE_bool("accelerator", False, "training steps of whole models instead of layers")
    flags.DEFINE_integer("batch", 8, "texts in a call of a layer", lower_bound=1)
    flags.DEFINE_integer("length", 128, "tokens of a text, T", lower_bound=2)
    flags.DEFINE_integer("blocks", 5, "blocks of each function", lower_bound=1)
    flags.DEFINE_float("budget", 400, "seconds after which no case of --accelerator is begun", lower_bound=0)
    app.run(main)
