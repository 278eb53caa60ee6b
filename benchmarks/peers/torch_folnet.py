"""FOLNet and its layer in plain PyTorch, with the layout and the contractions of the released code.

Binary atoms have relations last, [B, X, Y, D2], so every projection is an `nn.Linear`.
Axis letters: B batch; X, Y, A tokens; H heads, S features per head; C relations.
"""

from collections.abc import Mapping
from typing import Any

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]
from torch.nn import functional as F  # pyrefly: ignore[missing-import]

from benchmarks.peers.comparing import Layout

LAYOUT = Layout(inputs=(None, (0, 2, 3, 1)), outputs=(None, (0, 2, 3, 1)))
"""Unary atoms have our layout; in our binary atoms, relations come before both tokens."""


class Operator(nn.Module):
    """The projections of an operator as attributes."""

    def __init__(self, **layers: nn.Module):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


class ReasonerLayer(nn.Module):
    """One step of forward chaining with all operators, jmc.atp, without dropout or masks."""

    def __init__(
        self,
        properties: int,
        relations: int,
        heads: int,
        size: int,
        hidden: int,
        pair_hidden: int,
        eps: float,
    ):
        super().__init__()
        self.heads, self.size, self.eps = heads, size, eps
        width, linear = heads * size, nn.Linear
        self.join = Operator(
            kernel=linear(relations, heads, bias=False),
            premise=linear(properties, width),
            writer=linear(width, properties),
        )
        self.mu = Operator(
            reader=linear(relations, heads + size, bias=False), writer=linear(width, properties)
        )
        self.cjoin = Operator(
            kernel=linear(properties, width, bias=False),
            premise=linear(relations, size),
            writer=linear(width, properties),
        )
        self.assoc = Operator(reader=linear(properties, 2 * width), writer=linear(heads, relations))
        self.prod = Operator(
            kernel=linear(properties, width), premise=linear(relations, size), writer=linear(heads, relations)
        )
        self.trans = Operator(
            reader=linear(relations, 2 * relations, bias=False), writer=linear(relations, relations)
        )
        self.bool_unary = Operator(
            clause_in=linear(properties, hidden), clause_out=linear(hidden, properties)
        )
        self.bool_binary = Operator(
            clause_in=linear(2 * relations, pair_hidden),
            clause_out=linear(pair_hidden, relations),
            clause_skip=linear(relations, relations),
        )

    def normalized(self, u, r):
        """Applies LayerNorm without scale and bias to both."""
        return tuple(F.layer_norm(x, x.shape[-1:], eps=self.eps) for x in (u, r))

    def unary(self, u, r):
        """Returns the sum of the conclusions of join, mu and cjoin."""
        heads, size = self.heads, self.size
        kernel = self.join.kernel(r).softmax(dim=2)
        joined = torch.einsum("bxah,bahs->bxhs", kernel, self.join.premise(u).unflatten(-1, (heads, size)))
        kernel, premise = self.mu.reader(r).split((heads, size), dim=-1)
        pooled = torch.einsum("bxah,bxas->bxhs", kernel.softmax(dim=2), premise)
        kernel = self.cjoin.kernel(u).unflatten(-1, (size, heads)).softmax(dim=1)
        other = torch.einsum("bxsh,bxys->bysh", kernel, self.cjoin.premise(r))
        return (
            self.join.writer(joined.flatten(-2))
            + self.mu.writer(pooled.flatten(-2))
            + self.cjoin.writer(other.flatten(-2))
        )

    def binary(self, u, r):
        """Returns the sum of the conclusions of assoc, trans and prod."""
        heads, scale = (self.heads, self.size), self.size**-0.25
        kernel, premise = self.assoc.reader(u).chunk(2, dim=-1)
        kernel, premise = (scale * x.unflatten(-1, heads) for x in (kernel, premise))
        assoc = torch.einsum("bxhs,byhs->bxyh", kernel, premise)
        kernel, premise = self.trans.reader(r).chunk(2, dim=-1)
        trans = torch.einsum("bxac,bayc->bxyc", kernel.softmax(dim=2), premise)
        kernel = scale * self.prod.kernel(u).unflatten(-1, heads)
        prod = torch.einsum("bxhs,bxys->bxyh", kernel, scale * self.prod.premise(r))
        return self.assoc.writer(assoc) + self.trans.writer(trans) + self.prod.writer(prod)

    def forward(self, unary, relation):
        u, r = self.normalized(unary, relation)
        unary, relation = unary + self.unary(u, r), relation + self.binary(u, r)
        u, r = self.normalized(unary, relation)
        converse = r.transpose(1, 2)
        hidden = F.gelu(self.bool_binary.clause_in(torch.cat((r, converse), dim=-1)))
        relation = relation + self.bool_binary.clause_out(hidden) + self.bool_binary.clause_skip(converse)
        unary = unary + self.bool_unary.clause_out(F.gelu(self.bool_unary.clause_in(u)))
        return unary, relation


def relative_ids(types, distance: int):
    """Returns the number of the relation of relative position of each pair, [B, X, Y], for segments [B, X].

    Apart from the first token, [CLS], tokens of different segments are at the number `distance`; the others
    at their offset up to `distance` - 1 in either direction.
    """
    place = torch.arange(types.shape[1], device=types.device)
    offset = place[None, :] - place[:, None]
    near = offset.clamp(1 - distance, distance - 1)
    near = torch.where(offset >= 0, near, 2 * distance + near)
    ids = torch.where(types[:, :, None] == types[:, None, :], near, distance)
    ids[:, 0, 1:], ids[:, 1:, 0], ids[:, 0, 0] = 2 * distance, 2 * distance + 1, 0
    return ids


class FOLNet(nn.Module):
    """Unary atoms [B, T, D1] of a text after all layers, and its pooled first token, without dropout."""

    def __init__(self, *, words: int, segments: int, distance: int, layers: int, **layer: Any):
        super().__init__()
        properties, relations = layer["properties"], layer["relations"]
        self.distance = distance
        self.embeddings = Operator()
        for name, shape in (
            ("word", (words, properties)),
            ("segment", (segments, properties)),
            ("relative", (2 * distance + 2, relations)),
        ):
            setattr(self.embeddings, name, nn.Parameter(torch.zeros(shape)))
        self.reasoner = Operator(**{f"layers_{i}": ReasonerLayer(**layer) for i in range(layers)})
        self.pooler = nn.Linear(properties, properties)

    def forward(self, tokens, types):
        tables, steps = self.embeddings, list(self.reasoner.children())
        unary = F.embedding(tokens, tables.word) + F.embedding(types, tables.segment)
        relation = F.embedding(relative_ids(types, self.distance), tables.relative)
        unary, relation = steps[0].normalized(unary, relation)
        for step in steps:
            unary, relation = step(unary, relation)
        unary, _ = steps[-1].normalized(unary, relation)
        return unary, torch.tanh(self.pooler(unary[:, 0]))


class PreTraining(nn.Module):
    """FOLNet with its heads: logits of the words at some positions, and of the sentence task."""

    def __init__(self, **settings: Any):
        super().__init__()
        width, self.eps = settings["properties"], settings["eps"]
        self.folnet = FOLNet(**settings)
        self.predictions = Operator(transform=nn.Linear(width, width))
        self.predictions.bias = nn.Parameter(torch.zeros(settings["words"]))
        self.seq_relationship = nn.Linear(width, 2)

    def forward(self, tokens, types, positions):
        unary, pooled = self.folnet(tokens, types)
        unary = unary.gather(1, positions[..., None].expand(-1, -1, unary.shape[-1]))
        hidden = F.gelu(self.predictions.transform(unary))
        hidden = F.layer_norm(hidden, hidden.shape[-1:], eps=self.eps)
        words = F.linear(hidden, self.folnet.embeddings.word, self.predictions.bias)
        return words, self.seq_relationship(pooled)


def loss(model: PreTraining, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Returns the mean loss of masked words plus the mean loss of the sentence task."""
    names = "input_ids", "token_type_ids", "mlm_positions", "mlm_labels", "next_sentence_label"
    tokens, types, positions, labels, sentence = (batch[name].long() for name in names)
    words, relationship = model(tokens, types, positions)
    return F.cross_entropy(words.flatten(0, 1), labels.flatten()) + F.cross_entropy(relationship, sentence)
