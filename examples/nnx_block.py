"""Does a module of this library help in my NNX model? Attention with roles looks up and adds.

    python examples/nnx_block.py --out=out/nnx_block

Each of eight cells has a name, a number modulo 13, the name of a cell that it asks, and a shift. Its answer
is the asked cell's number plus the shift, modulo 13. Attention looks the number up. The sum then needs
products of features of number and shift, since cos(a + b) = cos(a) cos(b) - sin(a) sin(b). Of the 169 pairs
(number, shift), 34 never occur in the training loss. The example trains the same `nnx.Module` with three
kinds of attention, for the same number of steps:

    attention            `nnx.MultiHeadAttention`
    attention and MLP    the same, followed by an MLP that brings it to as many parameters as the next one
    TP attention         `tp_transformer.TPMultiHeadAttention`, a linen module, in `nnx.bridge.ToNNX`;
                         multiplies what each head finds by a role, computed from the asking cell

It shows how to put a linen module into an NNX model and train it there. Prints the accuracy on new cells, for
trained and for held-out pairs. One run is one seed and takes less than a minute on two cores. To adapt it,
change `draw` for your task, `Model` for your model.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Bool, Float, Int
from matplotlib.figure import Figure

from tp_transformer import TPMultiHeadAttention

# %% [markdown]
# ## The task
#
# The pairs that are held out are counted in the test but not in the loss.

# %%
MODULUS, CELLS, WIDTH, HEADS = 13, 8, 64, 4
FIELDS = (CELLS, MODULUS, CELLS, MODULUS)  # values of name, number, asked name, shift
KINDS = ("attention", "attention and MLP", "TP attention")

HELD_OUT = np.random.default_rng(0).permutation(MODULUS**2).reshape(MODULUS, MODULUS) % 5 == 0
"""True for the pairs (number, shift) that are left out of training."""


def draw(key: Array, count: int) -> tuple[Int[Array, "B N 4"], Int[Array, "B N"], Bool[Array, "B N"]]:
    """Draws cells; returns their fields, their answers, and whether the answer's pair is held out."""
    keys = jax.random.split(key, 4)
    shape = (count, CELLS)
    names = jax.random.permutation(keys[0], jnp.tile(jnp.arange(CELLS), (count, 1)), axis=1, independent=True)
    numbers, shifts = (jax.random.randint(each, shape, 0, MODULUS) for each in keys[1:3])
    asked = jax.random.randint(keys[3], shape, 0, CELLS)
    found = jnp.take_along_axis(numbers, jnp.argsort(names, axis=1), axis=1)  # the number of each name
    found = jnp.take_along_axis(found, asked, axis=1)
    fields = jnp.stack([names, numbers, asked, shifts], axis=-1)
    return fields, (found + shifts) % MODULUS, jnp.asarray(HELD_OUT)[found, shifts]


# %% [markdown]
# ## A linen module in an NNX model
#
# `nnx.bridge.ToNNX` wraps the module of this library; the rest of the model is ordinary NNX.


# %%
class Model(nnx.Module):
    """Embeddings of the fields, one attention of the given kind, and a classifier of each cell."""

    def __init__(self, kind: str, rngs: nnx.Rngs):
        self.embeddings = nnx.List([nnx.Embed(size, WIDTH, rngs=rngs) for size in FIELDS])
        if kind == "TP attention":
            # The sample input gives the wrapped module the shapes of its parameters.
            wrapped = nnx.bridge.ToNNX(TPMultiHeadAttention(num_heads=HEADS), rngs=rngs)
            self.attention = wrapped.lazy_init(jnp.zeros((1, CELLS, WIDTH)))
        else:
            self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        layers = []
        if kind == "attention and MLP":
            hidden = WIDTH // 2  # as many parameters as the map to the roles
            layers = [nnx.Linear(WIDTH, hidden, rngs=rngs), nnx.gelu, nnx.Linear(hidden, WIDTH, rngs=rngs)]
        self.mlp = nnx.Sequential(*layers)
        self.norms = nnx.List([nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(3)])
        self.classifier = nnx.Linear(WIDTH, MODULUS, rngs=rngs)

    def __call__(self, fields: Int[Array, "B N 4"]) -> Float[Array, "B N C"]:
        """Returns logits of each cell's answer."""
        x = sum(embed(fields[..., i]) for i, embed in enumerate(self.embeddings))
        x = x + self.attention(self.norms[0](x))
        if self.mlp.layers:
            x = x + self.mlp(self.norms[1](x))
        return self.classifier(self.norms[2](x))


# %% [markdown]
# ## Training
#
# `nnx.Optimizer` and `nnx.value_and_grad` treat the wrapped parameters as their own.


# %%
def train(kind: str, steps: int, seed: int, batch: int = 64, points: int = 10) -> dict:
    """Trains one kind; returns its parameter count, time, last loss, and accuracies."""
    model = nnx.jit(lambda: Model(kind, nnx.Rngs(seed)))()
    optimizer = nnx.Optimizer(model, optax.adamw(optax.cosine_decay_schedule(3e-3, steps)), wrt=nnx.Param)

    def loss(model, fields, answers, held_out):
        losses = optax.softmax_cross_entropy_with_integer_labels(model(fields), answers)
        return losses.mean(where=~held_out)

    @nnx.jit
    def step(model, optimizer, number):
        key = jax.random.fold_in(jax.random.key(seed + 1), number)
        value, grads = nnx.value_and_grad(loss)(model, *draw(key, batch))
        optimizer.update(model, grads)
        return value

    @nnx.jit
    def accuracies(model):
        fields, answers, held_out = draw(jax.random.key(999), 2000)  # the same test for every kind and seed
        right = model(fields).argmax(-1) == answers
        return right.mean(where=~held_out), right.mean(where=held_out)

    curve, seconds, last = [], 0.0, jnp.inf
    for part in np.array_split(np.arange(steps), min(points, steps)):
        start = time.perf_counter()
        for number in part:
            last = step(model, optimizer, number)
        last = float(last)
        seconds += time.perf_counter() - start
        curve.append((int(part[-1]) + 1, *map(float, accuracies(model))))  # steps, trained and held-out pairs
    count = sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
    return {"parameters": count, "seconds": seconds, "loss": last, "curve": curve}


# %% [markdown]
# ## The comparison
#
# All kinds see the same cells in the same order.


# %%
def main(argv: list[str] | None = None) -> dict:
    """Trains all kinds, prints one line per kind, and saves the curves."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("out/nnx_block"))
    flags.add_argument("--steps", type=int, default=1500)
    flags.add_argument("--seed", type=int, default=0)
    args = flags.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    numbers: dict = {"steps": args.steps, "seed": args.seed, "chance": 1 / MODULUS}
    print(f"a random guess: {numbers['chance']:.3f}")
    print(f"{'':18} {'parameters':>10} {'trained pairs':>14} {'held-out pairs':>14} {'seconds':>8}")
    figure = Figure(figsize=(6.6, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="steps", ylabel="accuracy on new cells", title="Look up and add")
    axes.axhline(numbers["chance"], color="grey", linestyle=":", label="random guess")
    for index, kind in enumerate(KINDS):
        result = numbers[kind] = train(kind, args.steps, args.seed)
        at, trained, held_out = np.transpose(result["curve"])
        print(
            f"{kind:18} {result['parameters']:10,} {trained[-1]:14.3f} {held_out[-1]:14.3f} "
            f"{result['seconds']:8.1f}",
            flush=True,
        )
        axes.plot(at, trained, f"C{index}", label=kind)
        axes.plot(at, held_out, f"C{index}", linestyle="--")
    axes.plot([], [], "k--", label="held-out pairs")
    figure.legend(loc="outside right upper")
    figure.savefig(args.out / "accuracy.png", dpi=150)
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Saved curves and numbers to {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
