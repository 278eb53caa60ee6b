"""The computations to compare: the kernels' operations, and blocks, layers and cells of all four papers.

Weights are initial weights, with random numbers of order 1/10 added to vectors, so that biases and the scales
of LayerNorms affect results. Everything is float32.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util

import kernels
from benchmarks import kernel_cases
from benchmarks.peers.comparing import Subject
from folnet import BASE, FOLNetConfig, operators
from folnet.layers import ReasonerLayer
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import shapes as two_simplicial_shapes
from llrnn.model import make_cell
from simplicial.agent import Agent
from simplicial.attention import OneSimplicialAttention, TwoSimplicialAttention
from simplicial.blocks import FeedForward, SimplicialBlock
from tp_transformer import TPMultiHeadAttention
from tp_transformer.layers import EncoderLayer

AGENT_FIELDS = {
    "features": "features",
    "pairs": "two_simplicial_features",
    "heads": "num_heads",
    "pair_heads": "num_two_simplicial_heads",
    "convolutions": "conv_features",
    "dense": "head_features",
}
"""Names of the other libraries' settings of an agent, with our fields."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of all subjects."""

    two_simplicial: tuple[two_simplicial_shapes.Shape, ...]  # shapes of 2-simplicial attention
    signed: two_simplicial_shapes.Shape  # shape of attention with signed determinants
    trans: tuple[trans_shapes.Shape, ...]  # shapes of trans
    trilinear: tuple[trilinear_shapes.Shape, ...]  # shapes of trilinear attention without windows
    attention: tuple[int, int, int, int]  # B, T, H, S of self-attention
    agent: Mapping[str, Any]  # fields of the agent and of its block
    entities: tuple[int, int, int]  # B, N, M of the block
    pictures: tuple[int, int, int]  # batch size, rows and columns of the agents' pictures
    transformer: tuple[int, int, int, int, int]  # B, T, features, heads, hidden of the TP-Transformer's parts
    folnet: tuple[FOLNetConfig, int, int]  # config of the layer's model, B and T
    higher_order: Mapping[str, int]  # fields of the cell
    ntm: Mapping[str, Any]  # fields of the cell
    sequence: tuple[int, int, int]  # B, T and input features of the cells


SMALL = Sizes(
    two_simplicial=(two_simplicial_shapes.ODD,),
    signed=dataclasses.replace(two_simplicial_shapes.ODD, value_features=9, out_features=9),
    trans=(trans_shapes.square("odd", 2, 2, 13), trans_shapes.square("odd, causal", 2, 2, 13, causal=True)),
    trilinear=(
        trilinear_shapes.Shape("tiny, all pairs", 2, 5, 4, 2, 6, causal=False),
        trilinear_shapes.Shape("tiny, all the past", 1, 7, 2, 2, 5),
    ),
    attention=(2, 7, 3, 4),
    agent={
        "features": 16,
        "num_heads": 2,
        "num_two_simplicial_heads": 1,
        "two_simplicial_features": 6,
        "conv_features": (4, 5),
        "head_features": (8, 8),
    },
    entities=(3, 5, 2),
    pictures=(3, 5, 6),
    transformer=(2, 6, 16, 2, 24),
    folnet=(
        BASE.replace(
            hidden_size=16,
            relation_size=6,
            num_attention_heads=2,
            head_size=4,
            intermediate_size=20,
            relation_intermediate_size=10,
        ),
        2,
        7,
    ),
    higher_order={"features": 6, "max_power": 3},
    ntm={"features": 6, "memory_size": 8, "memory_width": 3, "powers": (0, -1, 1)},
    sequence=(3, 4, 5),
)
"""Tiny sizes to check that everything runs, not to measure."""

PAPERS = Sizes(
    two_simplicial=(
        two_simplicial_shapes.AGENT,
        two_simplicial_shapes.VIRTUAL_SMALL,
        two_simplicial_shapes.FULL_128,
    ),
    signed=two_simplicial_shapes.Shape("signed", batch=2, heads=2, queries=128, keys=128, features=48),
    trans=tuple(shape for shape in trans_shapes.REAL if shape.name in ("pre-training", "decoder")),
    trilinear=trilinear_shapes.CPU[2:],
    attention=(8, 128, 12, 64),
    agent={name: getattr(Agent(), name) for name in AGENT_FIELDS.values()},
    entities=(128, 40, 2),
    pictures=(128, 7, 10),
    transformer=(16, 64, 512, 8, 2048),
    folnet=(BASE, 1, 128),
    higher_order={"features": 128, "max_power": 16},
    ntm={"features": 100, "memory_size": 128, "memory_width": 20, "powers": (0, -1, 1)},
    sequence=(32, 16, 10),
)
"""Sizes of the papers' models, with batches suitable for two cores."""

ACCELERATOR = dataclasses.replace(
    PAPERS,
    two_simplicial=(two_simplicial_shapes.AGENT, two_simplicial_shapes.VIRTUAL, two_simplicial_shapes.FULL),
    trans=tuple(shape for shape in trans_shapes.REAL if shape.name in ("pre-training", "FOLIO", "decoder")),
    entities=(1280, 40, 2),
    pictures=(1280, 7, 10),
    transformer=(64, 128, 512, 8, 2048),
    folnet=(BASE, 16, 128),
    sequence=(256, 32, 10),
)
"""Sizes of the papers' models, with batches for one accelerator."""
DECIDED = 1e-4
"""Minimum gap between the largest entity of a feature and the second largest, in the agents' pictures."""
SIZES = {"small": SMALL, "papers": PAPERS, "accelerator": ACCELERATOR}


def subjects(sizes: Sizes) -> dict[str, Callable[[], Subject]]:
    """Returns functions that make all subjects, by name.

    Operations are first and agents, which take longest to compile, are last, in case the budget is exhausted.
    """
    found: dict[str, Callable[[], Subject]] = {}
    for shape in sizes.two_simplicial:
        found[f"2-simplicial attention, {shape.name}"] = functools.partial(two_simplicial, shape)
    for shape in sizes.trans:
        found[f"trans, {shape.name}"] = functools.partial(trans, shape)
    for shape in sizes.trilinear:
        found[f"trilinear attention, {shape.name}"] = functools.partial(trilinear, shape)
    found |= {
        "FOLNet layer": lambda: folnet_layer(*sizes.folnet),
        "simplicial block": lambda: simplicial_block(sizes),
        "TP-Transformer encoder layer": lambda: tp_encoder_layer(*sizes.transformer),
        "TP attention": lambda: tp_attention(*sizes.transformer[:4]),
        "higher-order cell": lambda: higher_order(sizes),
        "Neural Turing Machine": lambda: ntm(sizes),
        "signed 2-simplicial attention": lambda: signed(sizes.signed),
        "self-attention by assoc and join": lambda: self_attention(*sizes.attention),
        "simplicial agent": lambda: agent(sizes, 2),
        "relational agent": lambda: agent(sizes, 0),
    }
    return {
        name: lambda name=name, make=make: dataclasses.replace(make(), name=name)
        for name, make in found.items()
    }


def _operation(
    kind: str, sizes: str, ours: Callable[..., jax.Array], arrays: Sequence[Any], **settings: Any
) -> Subject:
    """Returns a subject for a function without parameters."""
    inputs = tuple(map(np.asarray, arrays))
    return Subject("", kind, sizes, lambda params, *given: (ours(*given),), {}, inputs, settings)


def two_simplicial(shape: two_simplicial_shapes.Shape) -> Subject:
    """Returns 2-simplicial attention, equation (10) of Clift et al. (2020)."""
    arrays = kernel_cases.two_simplicial(shape, jnp.float32).draw()[:5]
    return _operation("two_simplicial", _simplicial(shape), kernels.two_simplicial_attention, arrays)


def _simplicial(shape: two_simplicial_shapes.Shape) -> str:
    return f"B={shape.batch} H={shape.heads} N={shape.queries} M={shape.keys} D={shape.features}"


def signed(shape: two_simplicial_shapes.Shape) -> Subject:
    """Returns the determinant form of Roy et al. (2025), whose values are multiplied elementwise.

    So B is 1 where all three indices are equal, else 0.
    """
    arrays = kernel_cases.two_simplicial(shape, jnp.float32, "signed").draw()[:4]
    diagonal = np.zeros((shape.heads, shape.f, shape.e, shape.e), np.float32)
    each = np.arange(shape.e)
    diagonal[:, each, each, each] = 1

    def ours(query, key1, key2, value):
        each = query, key1, key2, value, jnp.asarray(diagonal)
        return kernels.two_simplicial_attention(*each, logit="signed", scale=shape.features**-0.5)

    return _operation("signed", _simplicial(shape), ours, arrays)


def trans(shape: trans_shapes.Shape) -> Subject:
    """Returns FOLNet's trans (Chen 2023, Table 2), causal or not."""
    arrays = kernel_cases.trans(shape, jnp.float32).draw()[:2]
    kind = "causal_trans" if shape.causal else "trans"
    ours = functools.partial(kernels.trans, causal=shape.causal)
    return _operation(kind, f"B={shape.batch} H={shape.heads} T={shape.rows}", ours, arrays)


def trilinear(shape: trilinear_shapes.Shape) -> Subject:
    """Returns trilinear attention without windows, causal or not."""
    arrays = kernel_cases.trilinear(shape, jnp.float32).draw()
    sizes = f"B={shape.batch} N={shape.length} H={shape.heads} G={shape.groups} D={shape.features}"
    ours = functools.partial(kernels.trilinear_attention, causal=shape.causal)
    return _operation("trilinear", sizes, ours, arrays, causal=shape.causal)


def self_attention(batch: int, length: int, heads: int, size: int) -> Subject:
    """Returns FOLNet's assoc followed by join, which is self-attention (Chen 2023, Appendix A.3)."""
    inputs = [_normal(i, (batch, length, heads, size)) for i in range(3)]

    def ours(query, key, value):
        return operators.join(operators.assoc(query * size**-0.5, key), value)

    return _operation("self_attention", f"B={batch} T={length} H={heads} S={size}", ours, inputs)


def folnet_layer(config: FOLNetConfig, batch: int, length: int) -> Subject:
    """Returns a layer with all operators and the default implementation of trans."""
    inputs = (
        _normal(0, (batch, length, config.hidden_size)),
        _normal(1, (batch, config.relation_size, length, length)),
    )
    settings = {
        "properties": config.hidden_size,
        "relations": config.relation_size,
        "heads": config.num_attention_heads,
        "size": config.head_size,
        "hidden": config.intermediate_size,
        "pair_hidden": config.relation_intermediate_size,
        "eps": config.layer_norm_eps,
    }
    shape = f"B={batch} T={length} D1={config.hidden_size} D2={config.relation_size}"
    return _module("folnet_layer", shape, ReasonerLayer(config), inputs, settings)


def simplicial_block(sizes: Sizes) -> Subject:
    """Returns a simplicial block on standard and virtual entities."""
    batch, entities, virtual = sizes.entities
    settings = {
        name: sizes.agent[AGENT_FIELDS[name]] for name in ("features", "pairs", "heads", "pair_heads")
    }
    features, pairs, heads, pair_heads = settings.values()
    module = SimplicialBlock(
        OneSimplicialAttention(heads, features),
        TwoSimplicialAttention(pair_heads, pairs),
        FeedForward(features, features),
    )
    inputs = _normal(0, (batch, entities, features)), _normal(1, (batch, virtual, features))
    shape = f"B={batch} N={entities} M={virtual} V={features}"
    return _module("simplicial_block", shape, module, inputs, settings)


def agent(sizes: Sizes, virtual: int, blocks: int = 2) -> Subject:
    """Returns an agent, from pictures to logits and values; without virtual entities it is relational."""
    fields, (batch, rows, columns) = sizes.agent, sizes.pictures
    module = Agent(num_virtual_entities=virtual, num_blocks=blocks, **fields)
    pictures = np.random.default_rng(0).integers(0, 256, (2 * batch, rows, columns, 3), np.uint8)
    settings = {theirs: fields[ours] for theirs, ours in AGENT_FIELDS.items()}
    settings |= {"virtual": virtual, "blocks": module.num_blocks, "actions": module.num_actions}
    shape = f"{batch} pictures of {rows} x {columns}"
    subject = _module("agent", shape, module, (pictures,), settings, lambda out: (out.logits, out.value))
    decided = pictures[_gap(module, subject.params, pictures) > DECIDED]
    if len(decided) < batch:
        raise ValueError(f"pictures: got {len(decided)} with unambiguous maxima, expected at least {batch}")
    return dataclasses.replace(subject, inputs=(decided[:batch],))


def _gap(module: Agent, params: Mapping[str, np.ndarray], pictures: np.ndarray) -> np.ndarray:
    """Returns for each picture the minimum gap between a feature's largest entity and the second largest.

    The gradient of a maximum goes to one entity. If two are almost equal, rounding decides which, and two
    correct programs may disagree.
    """

    @jax.jit
    def gap(params, pictures):
        nested = traverse_util.unflatten_dict(params, sep="/")
        _, state = module.apply(
            {"params": nested}, pictures, capture_intermediates=lambda m, _: m.name == "transformer"
        )
        (entities,) = state["intermediates"]["transformer"]["__call__"]
        two, _ = jax.lax.top_k(jnp.swapaxes(entities, 1, 2), 2)
        return jnp.min(two[..., 0] - two[..., 1], axis=-1)

    return np.asarray(gap(dict(params), pictures))


def tp_attention(batch: int, length: int, features: int, heads: int) -> Subject:
    """Returns TPMHA (Schlag et al. 2019) as self-attention."""
    inputs = (_normal(0, (batch, length, features)),)
    settings = {"features": features, "heads": heads}
    shape = f"B={batch} T={length} I={features} H={heads}"
    return _module("tp_attention", shape, TPMultiHeadAttention(heads), inputs, settings)


def tp_encoder_layer(batch: int, length: int, features: int, heads: int, hidden: int) -> Subject:
    """Returns an encoder layer; every second text has a quarter of padding."""
    mask = np.ones((batch, length), bool)
    mask[1::2, length - length // 4 :] = False
    settings = {"features": features, "heads": heads, "hidden": hidden}
    shape = f"B={batch} T={length} I={features} H={heads} F={hidden}"
    inputs = _normal(0, (batch, length, features)), mask
    return _module(
        "tp_encoder_layer", shape, EncoderLayer(heads, hidden, TPMultiHeadAttention), inputs, settings
    )


def higher_order(sizes: Sizes) -> Subject:
    """Returns the higher-order cell on sequences of one-hot symbols."""
    batch, steps, features = sizes.sequence
    symbols = np.random.default_rng(0).integers(0, features, (batch, steps))
    inputs = (np.eye(features, dtype=np.float32)[symbols],)
    settings = {"inputs": features, **sizes.higher_order}
    return _recurrent("higher_order", sizes, sizes.higher_order, inputs, settings)


def ntm(sizes: Sizes) -> Subject:
    """Returns the Neural Turing Machine on sequences of normal numbers."""
    settings = {
        "inputs": sizes.sequence[-1],
        "features": sizes.ntm["features"],
        "locations": sizes.ntm["memory_size"],
        "width": sizes.ntm["memory_width"],
        "powers": sizes.ntm["powers"],
    }
    return _recurrent("ntm", sizes, sizes.ntm, (_normal(0, sizes.sequence),), settings)


def _recurrent(kind: str, sizes: Sizes, fields: Mapping[str, Any], inputs: Any, settings: Any) -> Subject:
    """Returns a subject for a cell on sequences."""
    batch, steps, features = sizes.sequence
    shape = f"B={batch}, {steps} steps, I={features}"
    return _module(kind, shape, nn.RNN(make_cell(kind, **fields)), inputs, settings)


def _normal(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _module(
    kind: str,
    shape: str,
    module: nn.Module,
    inputs: tuple[np.ndarray, ...],
    settings: Mapping[str, Any],
    outputs: Callable[[Any], tuple[jax.Array, ...]] | None = None,
) -> Subject:
    """Returns a subject for one of our modules."""

    def ours(params, *inputs):
        result = module.apply({"params": params}, *inputs)
        if outputs is not None:
            return outputs(result)
        return result if isinstance(result, tuple) else (result,)

    params = jax.jit(module.init)(jax.random.key(0), *inputs)["params"]
    rng = np.random.default_rng(2)
    flat = {}
    for path, leaf in traverse_util.flatten_dict(params, sep="/").items():
        array = np.asarray(leaf)
        # Biases start at 0 and scales at 1, where a missing one would go unnoticed.
        flat[path] = array + (0.1 * rng.standard_normal(array.shape, np.float32) if array.ndim == 1 else 0)
    return Subject("", kind, shape, ours, flat, inputs, settings)
