"""A second implementation of the agents from the paper's text, in float64 NumPy, one observation at a time.

It shares no code with the package: convolutions are sums over windows, attention loops over entities and
pairs, and the scalar triple product is the norm of the vector of equation (7), not the polynomial in
dot products of equation (8).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Params = Mapping[str, Any]


@dataclass
class Maps:
    """Attention of each block, one list entry per block.

    Attributes:
      standard: [H, N, N].
      virtual: [H, M, N+M].
      pairs: [H2, N, M, M].
    """

    standard: list[np.ndarray] = field(default_factory=list)
    virtual: list[np.ndarray] = field(default_factory=list)
    pairs: list[np.ndarray] = field(default_factory=list)


def layer_norm(params: Params, x: np.ndarray) -> np.ndarray:
    """Normalises each row to mean 0 and variance 1, then applies a gain and a bias per feature."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * params["scale"] + params["bias"]


def dense(params: Params, x: np.ndarray) -> np.ndarray:
    """Computes inputs times W, plus b if there is one."""
    return x @ params["kernel"] + params.get("bias", 0)


def relu(x: np.ndarray) -> np.ndarray:
    """Computes max(x, 0) for each entry."""
    return np.maximum(x, 0)


def softmax(x: np.ndarray) -> np.ndarray:
    """Normalises over all entries of x."""
    e = np.exp(x - x.max())
    return e / e.sum()


def convolution(params: Params, x: np.ndarray) -> np.ndarray:
    """Applies a 2 x 2 convolution without padding, and ReLU."""
    kernel, rows, columns = params["kernel"], x.shape[0] - 1, x.shape[1] - 1
    out = np.zeros((rows, columns, kernel.shape[-1]))
    for y in range(rows):
        for x0 in range(columns):
            out[y, x0] = np.tensordot(x[y : y + 2, x0 : x0 + 2], kernel, 3) + params["bias"]
    return relu(out)


def triple_product(a: np.ndarray, b: np.ndarray, c: np.ndarray, eps: float = 1e-6) -> float:
    """Computes |(a.b) c - (a.c) b + (b.c) a|, equation (7)."""
    vector = (a @ b) * c - (a @ c) * b + (b @ c) * a
    return float(np.sqrt(vector @ vector + eps**2))


def one_simplicial(
    kernel: np.ndarray, x: np.ndarray, num_virtual: int, heads: int
) -> tuple[np.ndarray, list]:
    """Returns the first terms of (13) and (14), [N+M, F], and each head's rows of weights."""
    n, size = len(x) - num_virtual, kernel.shape[1] // 3
    query, key, value = (x @ kernel[:, i * size : (i + 1) * size] for i in range(3))
    width = size // heads
    out, weights = np.zeros((len(x), size)), []
    for h in range(heads):
        own = slice(h * width, (h + 1) * width)
        rows = []
        for i in range(len(x)):
            seen = n if i < n else len(x)
            row = softmax(np.array([query[i, own] @ key[j, own] / np.sqrt(width) for j in range(seen)]))
            out[i, own] = row @ value[:seen, own]
            rows.append(row)
        weights.append(rows)
    return out, weights


def two_simplicial(
    kernel: np.ndarray, bilinear: np.ndarray, x: np.ndarray, num_virtual: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the second terms of (13) and (14) before LayerNorm, [N+M, F], and weights [H, N, M, M]."""
    heads, width = bilinear.shape[:2]
    n, m, size = len(x) - num_virtual, num_virtual, heads * width
    p, l1, l2, u = (x @ kernel[:, i * size : (i + 1) * size] for i in range(4))
    out, weights = u.copy(), np.zeros((heads, n, m, m))
    for h in range(heads):
        own = slice(h * width, (h + 1) * width)
        products = np.zeros((m, m, width))
        for j in range(m):
            for k in range(m):
                left = np.tensordot(bilinear[h], u[n + k, own], axes=([2], [0]))
                products[j, k] = left @ u[n + j, own]
        for i in range(n):
            logits = np.array(
                [
                    [triple_product(p[i, own], l1[n + j, own], l2[n + k, own]) for k in range(m)]
                    for j in range(m)
                ]
            )
            weights[h, i] = softmax(logits)
            out[i, own] = np.tensordot(weights[h, i], products, 2)
    return out, weights


def transformer(params: Params, entities: np.ndarray, heads: int = 2, maps: Maps | None = None) -> np.ndarray:
    """Applies blocks with shared weights to standard entities [N, V]."""
    maps = Maps() if maps is None else maps
    n = len(entities)
    virtual = params.get("virtual_entities", np.zeros((0, entities.shape[1])))
    m, x = len(virtual), np.concatenate([entities, virtual])
    for i in range(sum(name.startswith("block_") for name in params)):
        block = params[f"block_{i}"]
        normed = layer_norm(block["input_norm"], x)
        attended, weights = one_simplicial(params["attention"]["qkv"]["kernel"], normed, m, heads)
        maps.standard.append(np.array([head[:n] for head in weights]))
        if m:
            maps.virtual.append(np.array([head[n:] for head in weights]))
            two = params["two_simplicial"]
            pairs, weights = two_simplicial(two["qkkv"]["kernel"], two["bilinear"], normed, m)
            maps.pairs.append(weights)
            attended = np.concatenate([attended, layer_norm(block["pair_norm"], pairs)], axis=1)
        hidden = relu(dense(params["feed_forward"]["hidden"], attended))
        x = layer_norm(block["output_norm"], x + dense(params["feed_forward"]["output"], hidden))
    return x[:n]


def agent(
    params: Params, observation: np.ndarray, heads: int = 2, centre: float = 0.0, scale: float = 255.0
) -> tuple[np.ndarray, float, Maps]:
    """Returns logits, value and attention for one observation [R, C+1, 3]."""
    x = (observation - centre) / scale
    for i in range(sum(name.startswith("conv_") for name in params)):
        x = convolution(params[f"conv_{i}"], x)
    rows, columns = x.shape[:2]
    x = dense(params["embed"], x)
    entities = [
        [*x[j, i], 2 * j / (rows - 1) - 1, 2 * i / (columns - 1) - 1]
        for j in range(rows)
        for i in range(columns)
    ]
    maps = Maps()
    pooled = transformer(params["transformer"], np.array(entities), heads, maps).max(axis=0)
    for i in range(sum(name.startswith("head_") for name in params)):
        pooled = relu(dense(params[f"head_{i}"], pooled))
    return dense(params["logits"], pooled), float(dense(params["value"], pooled)[0]), maps
