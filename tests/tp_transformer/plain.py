"""The TP-Transformer in float64 NumPy, one head, position and equation at a time, with the authors' names.

`masks` are what dropout multiplies by, in the order of the equations; without dropout, ones.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

PAD = 0
ONES: Iterable[Any] = itertools.repeat(1.0)


def softmax(logits):
    """Normalises the exponentials of a vector to sum 1."""
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


def affine(state, name, x):
    """Computes W x + b for a vector, with PyTorch's layout of W: [outputs, inputs]."""
    return state[f"{name}.weight"] @ x + state[f"{name}.bias"]


def layer_norm(state, name, x):
    """Applies LayerNorm with epsilon 1e-5 to a vector."""
    normed = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return normed * state[f"{name}.weight"] + state[f"{name}.bias"]


def attention(query, key, value, role, output, allowed, mask=1.0):
    """Computes equations (4) to (6) for one position: the sum over heads of bindings times output matrices.

    Args:
      query: [H, D].
      key: [S, H, D].
      value: [S, H, D].
      role: [H, D], or None.
      output: [O, H, D], the matrix of each head.
      allowed: [S].
      mask: [H, S], dropout of alpha.
    """
    out, mask = 0.0, np.broadcast_to(mask, (len(query), len(key)))
    for h in range(len(query)):
        seen = np.flatnonzero(allowed)
        alpha = softmax([query[h] @ key[i, h] / np.sqrt(query.shape[1]) for i in seen])  # (5)
        filler = sum(a * mask[h, i] * value[i, h] for a, i in zip(alpha, seen, strict=True))  # (4)
        out = out + output[:, h] @ (filler if role is None else filler * role[h])  # (6)
    return out


def sublayer(state, name, heads, x, context, allowed, masks=ONES):
    """Applies attention of x [T, d] to a context [S, d], restricted by allowed [T, S]."""
    masks = iter(masks)
    of_weights = np.broadcast_to(next(masks), (heads, len(x), len(context)))

    def cut(map_, cells):
        return np.stack([affine(state, f"{name}.{map_}", cell).reshape(heads, -1) for cell in cells])

    q, k, v, r = cut("W_q", x), cut("W_k", context), cut("W_v", context), cut("W_r", x)
    matrix = state[f"{name}.W_o.weight"]
    matrix = matrix.reshape(len(matrix), heads, -1)
    bias = state[f"{name}.W_o.bias"]
    rows = [attention(q[t], k, v, r[t], matrix, allowed[t], of_weights[:, t]) + bias for t in range(len(x))]
    return np.stack(rows) * next(masks)


def feed_forward(state, name, x, masks=ONES):
    """Applies equation (7) to each cell."""
    masks = iter(masks)
    hidden = np.stack([np.maximum(affine(state, f"{name}.linear1", cell), 0) for cell in x]) * next(masks)
    return np.stack([affine(state, f"{name}.linear2", cell) for cell in hidden]) * next(masks)


def embed(state, tokens):
    """Computes equation (2), with the released code's 1 added to the role and sinusoids in float32."""
    table = state["embedding.tok_embedding.weight"]
    d = table.shape[1]
    cells = []
    for t, token in enumerate(tokens):
        p = np.array([(np.cos if i % 2 else np.sin)(t / 10000 ** (2 * (i // 2) / d)) for i in range(d)])
        e = table[token] * np.sqrt(d) + p.astype(np.float32)
        cells.append(e * (affine(state, "embedding.linear", e) + 1))
    return np.stack(cells)


def norms(state, name, x):
    """Applies LayerNorm to each cell."""
    return np.stack([layer_norm(state, name, cell) for cell in x])


def logits(state, heads, layers, source, target, masks=ONES, pad=PAD):
    """Returns [T, V] for one question [S] and an answer [T] without padding."""
    masks = iter(masks)
    state = {name: np.asarray(array, np.float64) for name, array in state.items()}
    x, real = embed(state, source) * next(masks), np.asarray(source) != pad
    for i in range(layers):
        name = f"encoder.layers.{i}"
        normed = norms(state, f"{name}.layernorm1", x)
        x = x + sublayer(state, f"{name}.MHA", heads, normed, normed, [real] * len(x), masks)
        x = x + feed_forward(state, f"{name}.densefilter", norms(state, f"{name}.layernorm2", x), masks)
        x = norms(state, f"{name}.layernorm3", x)
    y = embed(state, target) * next(masks)
    past = np.tril(np.ones((len(y), len(y)), bool))
    for i in range(layers):
        name = f"decoder.layers.{i}"
        normed = norms(state, f"{name}.layernorm1", y)
        y = y + sublayer(state, f"{name}.selfAttn", heads, normed, normed, past, masks)
        normed = norms(state, f"{name}.layernorm2", y)
        y = y + sublayer(state, f"{name}.encAttn", heads, normed, x, [real] * len(y), masks)
        y = y + feed_forward(state, f"{name}.densefilter", norms(state, f"{name}.layernorm3", y), masks)
        y = norms(state, f"{name}.layernorm4", y)
    return y @ state["embedding.tok_embedding.weight"].T
