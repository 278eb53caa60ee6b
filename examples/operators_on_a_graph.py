"""Can FOLNet's operators reason about my graph? Distances learned on 12 nodes, tested on up to 48.

    python examples/operators_on_a_graph.py --out=out/graph

FOLNet (Chen 2023) is a model for text, but its operators are clauses about objects and pairs of objects, so
they apply to graphs. Relations r [B, C, X, Y] are computed from the edges only. A step of forward chaining is

    trans   r(x, y) <- K(x, a), r(a, y)      a path from x to y through a    `operators.trans`
    bool    r(x, y) <- r(x, y), r(y, x)      other relations of the pair     `operators.boolean_pairs`

and the model takes four steps with shared weights. The target is the length of the shortest path from x to y:
1, 2, 3, 4, or more (including no path), in directed graphs where every node has two successors. The baseline
replaces trans by properties of nodes, which is attention with a relational bias:

    join    u(x) <- K(x, a), u(a)            a property from nodes related to x
    assoc   r(x, y) <- u(x), u(y)            a relation from two properties

Nodes have no properties in this task, so the baseline gets random vectors that distinguish them, new ones in
every graph.

Prints, for each size of graph, the accuracy averaged over the five answers (a constant answer has 0.2); then
the weights of trans by distance, which show the clause that it learned. One run is one seed, with one
learning rate for both models, and takes about a minute on two cores. To adapt it, change `draw` for your
graphs and labels, `Step` for other clauses; `folnet.operators` has one function per row of the paper's
Table 2.
"""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int
from matplotlib.figure import Figure

from folnet import operators
from folnet.affine import Affine, over_features, over_predicates

# %% [markdown]
# ## The task
#
# Edges are the input; the distances to be predicted come from repeated products of the adjacency matrix.

# %%
SUCCESSORS, FURTHEST, STEPS = 2, 5, 4
TRAINED, ASKED, SHOWN = 12, (12, 24, 48), 24
MIXERS = ("join, assoc", "trans")
RELATIONS, HEADS, SIZE = 16, 4, 8
WIDTH = HEADS * SIZE  # number of properties per node


@functools.partial(jax.jit, static_argnums=(1, 2))
def draw(key: Array, count: int, nodes: int) -> tuple[Bool[Array, "B X Y"], Int[Array, "B X Y"]]:
    """Draws graphs; returns edges and distances minus 1: 0 to 3, 4 if longer, -1 from a node to itself."""
    scores = jax.random.uniform(key, (count, nodes, nodes)) - 2 * jnp.eye(nodes)[None]
    edges = jax.nn.one_hot(jax.lax.top_k(scores, SUCCESSORS)[1], nodes).sum(axis=2) > 0
    reached = jnp.broadcast_to(jnp.eye(nodes, dtype=bool)[None], edges.shape)
    distance = jnp.zeros(edges.shape, int)
    for _ in range(FURTHEST):
        distance += ~reached  # nodes not reached yet are at least one step further
        reached |= jnp.einsum("bxa,bay->bxy", edges.astype(float), reached.astype(float)) > 0
    return edges, distance - 1


# %% [markdown]
# ## A step of forward chaining
#
# The operators are functions of arrays; a step adds the projections before and after them.


# %%
def normalized(atoms: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Normalizes atoms to mean 0 and variance 1 over predicates."""
    return jax.nn.standardize(atoms, axis=axis, epsilon=1e-6)


class Step(nn.Module):
    """One step of forward chaining, with the operators of `mixers` and `boolean_pairs`."""

    mixers: str

    @nn.compact
    def __call__(
        self, u: Float[Array, "B X D"], r: Float[Array, "B C X Y"]
    ) -> tuple[Float[Array, "B X D"], Float[Array, "B C X Y"]]:
        """Returns properties and relations with the conclusions added."""
        c = RELATIONS
        read_u, read_r = normalized(u, -1), normalized(r, 1)
        if self.mixers == "trans":
            kernel = over_predicates(read_r, self.affine("kernel", c, c))
            self.sow("intermediates", "kernel", operators.softmax_kernel(kernel))
            premise = over_predicates(read_r, self.affine("premise", c, c))
            r += over_predicates(operators.trans(kernel, premise), self.affine("trans", c, c))
        else:
            kernel = over_predicates(read_r, self.affine("kernel", c, HEADS))
            premise = self.split(over_features(read_u, self.affine("premise", WIDTH, WIDTH)))
            joined = operators.join(kernel, premise).reshape(u.shape)
            u += over_features(joined, self.affine("join", WIDTH, WIDTH))
            read_u = normalized(u, -1)
            one, other = (self.split(over_features(read_u, self.affine(n, WIDTH, WIDTH))) for n in ("x", "y"))
            r += over_predicates(operators.assoc(one, other), self.affine("assoc", HEADS, c))
        read_r = normalized(r, 1)
        clauses = self.affine("in", 2 * c, 4 * c), self.affine("out", 4 * c, c), self.affine("skip", c, c)
        return u, r + operators.boolean_pairs(read_r, read_r.swapaxes(2, 3), *clauses)

    def affine(self, name: str, inputs: int, outputs: int) -> Affine:
        """Creates the weight and bias of an affine map of predicates."""
        weight = self.param(f"{name}_weight", nn.initializers.lecun_normal(), (inputs, outputs))
        return Affine(weight, self.param(f"{name}_bias", nn.initializers.zeros, (outputs,)))

    def split(self, u: Float[Array, "B X D"]) -> Float[Array, "B X H S"]:
        """Splits properties into heads."""
        return u.reshape(*u.shape[:-1], HEADS, SIZE)


# %% [markdown]
# ## The model
#
# Four steps with the same weights, then a classifier of each pair of nodes.


# %%
class Reasoner(nn.Module):
    """The edges as base atoms, `STEPS` steps with shared weights, and a classifier of each pair."""

    mixers: str

    @nn.compact
    def __call__(self, edges: Bool[Array, "B X Y"], names: Float[Array, "B X D"]) -> Float[Array, "B X Y F"]:
        """Returns logits of the five distances."""
        same = jnp.broadcast_to(jnp.eye(edges.shape[-1])[None], edges.shape)
        r = nn.Dense(RELATIONS)(jnp.stack([edges.astype(float), same], axis=-1)).transpose(0, 3, 1, 2)
        u, step = names, Step(self.mixers)
        for _ in range(STEPS):
            u, r = step(u, r)
        return nn.Dense(FURTHEST)(normalized(r, 1).transpose(0, 2, 3, 1))


# %% [markdown]
# ## Training
#
# On graphs of 12 nodes; tests have up to 48.


# %%
def train(mixers: str, steps: int, seed: int, batch: int = 16) -> tuple[dict, dict]:
    """Trains one reasoner on small graphs; returns its measures on larger ones, and its parameters."""
    model = Reasoner(mixers)

    @jax.jit
    def predict(params, edges, key) -> Array:
        names = jax.random.normal(key, (*edges.shape[:2], WIDTH))
        return cast(Array, model.apply({"params": params}, edges, names))

    def loss(params, key):
        edges, answers = draw(key, batch, TRAINED)
        logits = predict(params, edges, jax.random.fold_in(key, 0))
        each = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(answers, 0))
        return each.mean(where=answers >= 0)

    def step(carry, number):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, jax.random.fold_in(jax.random.key(seed + 1), number))
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    edges, _ = draw(jax.random.key(seed), 1, TRAINED)
    params = jax.jit(model.init)(jax.random.key(seed), edges, jnp.ones((1, TRAINED, WIDTH)))["params"]
    optimizer = optax.adamw(optax.cosine_decay_schedule(5e-3, steps))
    start = time.perf_counter()
    advance = jax.jit(lambda carry, numbers: jax.lax.scan(step, carry, numbers))
    (params, _), losses = jax.block_until_ready(advance((params, optimizer.init(params)), jnp.arange(steps)))
    result: dict = {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "seconds": time.perf_counter() - start,
        "loss": float(losses[-1]),
        "right": {},
    }
    for nodes in ASKED:
        edges, answers = draw(jax.random.key(999), 64, nodes)  # the same test for both models and all seeds
        right = predict(params, edges, jax.random.key(998)).argmax(-1) == answers
        by_answer = [float(right.mean(where=answers == answer)) for answer in range(FURTHEST)]
        result["right"][nodes] = float(np.mean(by_answer))
    return result, params


# %% [markdown]
# ## What trans has learned
#
# The kernel K says for each pair (x, y) which node a it goes through.


# %%
@jax.jit
def with_kernels(params, edges: Bool[Array, "B X Y"]) -> tuple[Array, list[Float[Array, "B C X A"]]]:
    """Returns logits of the reasoner with trans, and the kernels K that `Step` sows, one per step."""
    names = jnp.zeros((*edges.shape[:2], WIDTH))
    logits, sown = Reasoner("trans").apply({"params": params}, edges, names, mutable=["intermediates"])
    return cast(Array, logits), list(cast(dict, sown)["intermediates"]["Step_0"]["kernel"])


def where_it_looks(params) -> dict[str, list[float]]:
    """Returns the mean weight of K by distance, for every step and for uniform weights."""
    edges, answers = draw(jax.random.key(999), 16, SHOWN)
    uniform = jnp.full((1, 1, SHOWN, SHOWN), 1 / SHOWN)
    steps = {f"step {t + 1}": kernel for t, kernel in enumerate(with_kernels(params, edges)[1])}
    return {
        name: [float((kernel * (answers[:, None] == d)).sum(-1).mean()) for d in range(-1, FURTHEST)]
        for name, kernel in {**steps, "uniform": uniform}.items()
    }


def draw_picture(params, path: Path) -> None:
    """Draws a new graph: its edges, the last step's kernel, distances, and predictions."""
    edges, answers = draw(jax.random.key(1000), 16, SHOWN)
    logits, kernels = with_kernels(params, edges)
    predicted = jnp.where(answers < 0, -1, logits.argmax(-1))
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    panels = {
        "edges x -> y": edges[0],
        "K(x, a), mean over predicates": kernels[-1][0].mean(0),
        "distance - 1": answers[0],
        "predicted": predicted[0],
    }
    for axes, (title, values) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        axes.imshow(np.asarray(values, float))
        axes.set(title=title, xticks=[], yticks=[])
    figure.savefig(path, dpi=150)


# %% [markdown]
# ## The comparison


# %%
def main(argv: list[str] | None = None) -> dict:
    """Trains both reasoners, prints one line per reasoner, and saves the picture."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("out/graph"))
    flags.add_argument("--steps", type=int, default=800)
    flags.add_argument("--seed", type=int, default=0)
    args = flags.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    numbers: dict = {"steps": args.steps, "seed": args.seed}
    print(f"{'mixers':12} {'parameters':>10}", *(f"{nodes:2} nodes" for nodes in ASKED), " seconds")
    for mixers in MIXERS:
        numbers[mixers], params = train(mixers, args.steps, args.seed)
        right = " ".join(f"{value:8.3f}" for value in numbers[mixers]["right"].values())
        print(
            f"{mixers:12} {numbers[mixers]['parameters']:10,} {right} {numbers[mixers]['seconds']:8.1f}",
            flush=True,
        )
    print(f"\nmean weight K(x, a) of trans on {SHOWN} nodes, by the distance from x to a")
    print(f"{'':9}     0     1     2     3     4  more")
    numbers["looks"] = where_it_looks(params)
    for name, shares in numbers["looks"].items():
        print(f"{name:9}", *(f"{share:5.2f}" for share in shares))
    draw_picture(params, args.out / "graph.png")
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Saved a picture and the numbers to {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
