"""What of ours is compared: the kernels' operations, blocks, layers and cells of all four papers.

Weights are those a model starts with, and numbers of order 1/10 are added to vectors: so biases and
LayerNorms' gains count when results are compared. Everything is float32.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
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


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    two_simplicial: tuple[two_simplicial_shapes.Shape, ...]  # shapes of 2-simplicial attention
    signed: two_simplicial_shapes.Shape  # of the one with signed determinants
    trans: tuple[trans_shapes.Shape, ...]  # of trans
    trilinear: tuple[trilinear_shapes.Shape, ...]  # of trilinear attention without windows
    attention: tuple[int, int, int, int]  # B, T, H, S of self-attention
    agent: Mapping[str, Any]  # fields of the agent, and of its block
    entities: tuple[int, int, int]  # B, N, M of the block
    pictures: tuple[int, int, int]  # batch and sides of the agents'
    transformer: tuple[int, int, int, int, int]  # B, T, features, heads, hidden of the TP-Transformer's parts
    folnet: tuple[FOLNetConfig, int, int]  # the layer's model, B and T
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
"""To see that everything runs; measures nothing."""

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
    agent={
        "features": 64,
        "num_heads": 2,
        "num_two_simplicial_heads": 1,
        "two_simplicial_features": 48,
        "conv_features": (12, 24),
        "head_features": (256, 256, 256, 256),
    },
    entities=(128, 40, 2),
    pictures=(128, 7, 10),
    transformer=(16, 64, 512, 8, 2048),
    folnet=(BASE, 1, 128),
    higher_order={"features": 128, "max_power": 16},
    ntm={"features": 100, "memory_size": 128, "memory_width": 20, "powers": (0, -1, 1)},
    sequence=(32, 16, 10),
)
"""Sizes of the papers' models, batches that two cores manage."""

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
"""The same with batches for one accelerator."""
DECIDED = 1e-4
"""What is left between the greatest entity of a feature and the next, in the agents' pictures."""
SIZES = {"small": SMALL, "papers": PAPERS, "accelerator": ACCELERATOR}


def subjects(sizes: Sizes) -> dict[str, Callable[[], Subject]]:
    """All, by name; made when they are called."""
    found: dict[str, Callable[[], Subject]] = {}
    for name, make in _all(sizes):
        found[name] = lambda name=name, make=make: dataclasses.replace(make(), name=name)
    return found


def _all(sizes: Sizes) -> Iterator[tuple[str, Callable[[], Subject]]]:
    """Operations first; agents, which take compilers longest, last: a budget may end before them."""
    for shape in sizes.two_simplicial:
        yield f"2-simplicial attention, {shape.name}", lambda shape=shape: two_simplicial(shape)
    for shape in sizes.trans:
        yield f"trans, {shape.name}", lambda shape=shape: trans(shape)
    for shape in sizes.trilinear:
        yield f"trilinear attention, {shape.name}", lambda shape=shape: trilinear(shape)
    yield "FOLNet layer", lambda: folnet_layer(*sizes.folnet)
    yield "simplicial block", lambda: simplicial_block(sizes)
    yield "TP-Transformer encoder layer", lambda: tp_encoder_layer(*sizes.transformer)
    yield "TP attention", lambda: tp_attention(*sizes.transformer[:4])
    yield "higher-order cell", lambda: higher_order(sizes)
    yield "Neural Turing Machine", lambda: ntm(sizes)
    yield "signed 2-simplicial attention", lambda: signed(sizes.signed)
    yield "self-attention by assoc and join", lambda: self_attention(*sizes.attention)
    yield "simplicial agent", lambda: agent(sizes, 2)
    yield "relational agent", lambda: agent(sizes, 0)


def two_simplicial(shape: two_simplicial_shapes.Shape) -> Subject:
    """2-simplicial attention, equation (10)."""
    arrays = kernel_cases.two_simplicial(shape, jnp.float32).draw()[:5]
    return Subject(
        "",
        "two_simplicial",
        f"B={shape.batch} H={shape.heads} N={shape.queries} M={shape.keys} D={shape.features}",
        lambda params, *inputs: (kernels.two_simplicial_attention(*inputs),),
        {},
        tuple(map(np.asarray, arrays)),
    )


def signed(shape: two_simplicial_shapes.Shape) -> Subject:
    """The determinant form of Roy et al. (2025); its values multiply coordinate by coordinate.

    With one B for it: 1 where all three indices agree.
    """
    arrays = kernel_cases.two_simplicial(shape, jnp.float32, "signed").draw()[:4]
    diagonal = np.zeros((shape.heads, shape.f, shape.e, shape.e), np.float32)
    each = np.arange(shape.e)
    diagonal[:, each, each, each] = 1

    def ours(params, query, key1, key2, value):
        each = query, key1, key2, value, jnp.asarray(diagonal)
        return (kernels.two_simplicial_attention(*each, logit="signed", scale=shape.features**-0.5),)

    return Subject(
        "",
        "signed",
        f"B={shape.batch} H={shape.heads} N={shape.queries} M={shape.keys} D={shape.features}",
        ours,
        {},
        tuple(map(np.asarray, arrays)),
    )


def trans(shape: trans_shapes.Shape) -> Subject:
    """The triangular contraction."""
    arrays = kernel_cases.trans(shape, jnp.float32).draw()[:2]
    return Subject(
        "",
        "causal_trans" if shape.causal else "trans",
        f"B={shape.batch} H={shape.heads} T={shape.rows}",
        lambda params, *inputs: (kernels.trans(*inputs, causal=shape.causal),),
        {},
        tuple(map(np.asarray, arrays)),
    )


def trilinear(shape: trilinear_shapes.Shape) -> Subject:
    """Trilinear attention without windows."""
    arrays = kernel_cases.trilinear(shape, jnp.float32).draw()
    return Subject(
        "",
        "trilinear",
        f"B={shape.batch} N={shape.length} H={shape.heads} G={shape.groups} D={shape.features}",
        lambda params, *inputs: (kernels.trilinear_attention(*inputs, causal=shape.causal),),
        {},
        tuple(map(np.asarray, arrays)),
        {"causal": shape.causal},
    )


def self_attention(batch: int, length: int, heads: int, size: int) -> Subject:
    """FOLNet's assoc and then join: Appendix A.3 says that this is self-attention."""
    inputs = tuple(_normal(i, (batch, length, heads, size)) for i in range(3))

    def ours(params, query, key, value):
        return (operators.join(operators.assoc(query * size**-0.5, key), value),)

    return Subject("", "self_attention", f"B={batch} T={length} H={heads} S={size}", ours, {}, inputs)


def folnet_layer(config: FOLNetConfig, batch: int, length: int) -> Subject:
    """A layer with all operators, its trans the fastest here."""
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
    """One block, standard and virtual entities."""
    fields, (batch, entities, virtual) = sizes.agent, sizes.entities
    features, pairs = fields["features"], fields["two_simplicial_features"]
    heads, pair_heads = fields["num_heads"], fields["num_two_simplicial_heads"]
    module = SimplicialBlock(
        OneSimplicialAttention(heads, features),
        TwoSimplicialAttention(pair_heads, pairs),
        FeedForward(features, features),
    )
    inputs = _normal(0, (batch, entities, features)), _normal(1, (batch, virtual, features))
    settings = {"features": features, "pairs": pairs, "heads": heads, "pair_heads": pair_heads}
    shape = f"B={batch} N={entities} M={virtual} V={features}"
    return _module("simplicial_block", shape, module, inputs, settings)


def agent(sizes: Sizes, virtual: int) -> Subject:
    """Logits and value of a batch of pictures; forward and backward is the gradient of a batch."""
    fields, (batch, rows, columns) = sizes.agent, sizes.pictures
    module = Agent(num_virtual_entities=virtual, **fields)
    pictures = np.random.default_rng(0).integers(0, 256, (2 * batch, rows, columns, 3), np.uint8)
    settings = {
        "features": fields["features"],
        "pairs": fields["two_simplicial_features"],
        "virtual": virtual,
        "blocks": module.num_blocks,
        "heads": fields["num_heads"],
        "pair_heads": fields["num_two_simplicial_heads"],
        "convolutions": fields["conv_features"],
        "dense": fields["head_features"],
        "actions": module.num_actions,
    }
    subject = _module(
        "agent",
        f"{batch} pictures of {rows} x {columns}",
        module,
        (pictures,),
        settings,
        lambda out: (out.logits, out.value),
    )
    decided = pictures[_gap(module, subject.params, pictures) > DECIDED]
    if len(decided) < batch:
        raise ValueError(f"only {len(decided)} of {len(pictures)} pictures have maxima that are decided")
    return dataclasses.replace(subject, inputs=(decided[:batch],))


def _gap(module: Agent, params: Mapping[str, np.ndarray], pictures: np.ndarray) -> np.ndarray:
    """How far, at least, the greatest entity of a feature is from the next, for each picture.

    The gradient of a maximum is that of one entity. Where two are as good as equal, rounding says which, and
    two right programs may disagree.
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
    """TPMHA of a sequence with itself."""
    inputs = (_normal(0, (batch, length, features)),)
    settings = {"features": features, "heads": heads}
    shape = f"B={batch} T={length} I={features} H={heads}"
    return _module("tp_attention", shape, TPMultiHeadAttention(heads), inputs, settings)


def tp_encoder_layer(batch: int, length: int, features: int, heads: int, hidden: int) -> Subject:
    """An encoder layer on texts of which each second one is padded by a quarter."""
    mask = np.ones((batch, length), bool)
    mask[1::2, length - length // 4 :] = False
    settings = {"features": features, "heads": heads, "hidden": hidden}
    shape = f"B={batch} T={length} I={features} H={heads} F={hidden}"
    inputs = _normal(0, (batch, length, features)), mask
    return _module("tp_encoder_layer", shape, EncoderLayer(heads, hidden, True), inputs, settings)


def higher_order(sizes: Sizes) -> Subject:
    """The higher-order cell over a sequence of one-hot symbols."""
    batch, steps, features = sizes.sequence
    symbols = np.random.default_rng(0).integers(0, features, (batch, steps))
    inputs = (np.eye(features, dtype=np.float32)[symbols],)
    settings = {"inputs": features, **sizes.higher_order}
    return _module(
        "higher_order", _recurrent(sizes), _rnn("higher_order", sizes.higher_order), inputs, settings
    )


def ntm(sizes: Sizes) -> Subject:
    """The Neural Turing Machine over a sequence of numbers."""
    settings = {
        "inputs": sizes.sequence[-1],
        "features": sizes.ntm["features"],
        "locations": sizes.ntm["memory_size"],
        "width": sizes.ntm["memory_width"],
        "powers": sizes.ntm["powers"],
    }
    inputs = (_normal(0, sizes.sequence),)
    return _module("ntm", _recurrent(sizes), _rnn("ntm", sizes.ntm), inputs, settings)


def _recurrent(sizes: Sizes) -> str:
    batch, steps, features = sizes.sequence
    return f"B={batch}, {steps} steps, I={features}"


def _rnn(cell: str, fields: Mapping[str, Any]) -> nn.RNN:
    return nn.RNN(make_cell(cell, **fields))


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
    """A subject of a module of ours."""

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
        # Biases start at 0 and gains at 1: a missing one would not show.
        flat[path] = array + (0.1 * rng.standard_normal(array.shape, np.float32) if array.ndim == 1 else 0)
    return Subject("", kind, shape, ours, flat, inputs, settings)
