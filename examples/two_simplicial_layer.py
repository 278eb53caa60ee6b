"""Does attention to pairs help my transformer? One layer of it, on a task about triples.

    python examples/two_simplicial_layer.py --out=out/two_simplicial

Match3 (Sanford, Hsu & Telgarsky 2023): given six numbers modulo 13, decide for each x_i whether two others
satisfy x_i + x_j + x_k = 0. A logit of ordinary attention depends on only two of the three numbers, and the
rest of the network has to compensate. The example trains the same small transformer with three kinds of
attention, for the same number of steps and with about the same number of parameters:

    ordinary     flax's dot-product attention
    unsigned     `simplicial.TwoSimplicialAttention`, whose logit is a volume, as in Clift et al. (2020)
    trilinear    a layer written here around `kernels.two_simplicial_attention`; Roy et al.'s logit (2025)

It shows how to insert either layer, with a mask, and that the logit matters: cos(a + b + c) is a sum of four
products of three factors, so trilinear logits can add angles, whereas a volume loses the sign. Prints the
accuracy on new draws, and the accuracy of the majority class. One run is one seed and takes less than a
minute on two cores. To adapt it, change `draw` for your task, `Transformer` for your model.
"""

import argparse
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

from kernels import two_simplicial_attention
from simplicial import TwoSimplicialAttention

# %% [markdown]
# ## The task
#
# Six numbers modulo 13. A pair (j, k) counts for i only if the three indices differ, which the mask says to
# every kind of attention.

# %%
MODULUS, NUMBERS = 13, 6
KINDS = ("ordinary", "unsigned", "trilinear")

_same = np.eye(NUMBERS, dtype=bool)
DISTINCT = ~(
    _same[:, :, None] | _same[:, None, :] | _same[None, :, :]
)  # [N, N, N], True where i, j, k differ


def draw(key: Array, count: int) -> tuple[Int[Array, "B N"], Bool[Array, "B N"]]:
    """Draws numbers; returns them and, for each, whether two others complete the sum to 0."""
    x = jax.random.randint(key, (count, NUMBERS), 0, MODULUS)
    sums = x[:, :, None, None] + x[:, None, :, None] + x[:, None, None, :]
    return x, ((sums % MODULUS == 0) & DISTINCT[None]).any(axis=(2, 3))


# %% [markdown]
# ## A layer around a kernel
#
# The function takes query, two keys, a value and the tensor `bilinear`, which makes one vector of a pair's
# two. A layer adds the projections.


# %%
class TrilinearAttention(nn.Module):
    """Attention to pairs with logits sum_d q k1 k2, a layer around the function of `kernels`."""

    num_heads: int
    features: int

    @nn.compact
    def __call__(self, x: Float[Array, "B N V"], mask: Bool[Array, "N N N"]) -> Float[Array, "B N F"]:
        """Attends from each entity to the pairs that the mask allows."""
        batch, n, _ = x.shape
        d = self.features // self.num_heads
        projected = nn.Dense(4 * self.features, use_bias=False)(x).reshape(batch, n, self.num_heads, 4 * d)
        query, key1, key2, value = jnp.split(projected, 4, axis=-1)
        glorot = nn.initializers.glorot_uniform(batch_axis=(0,))
        bilinear = self.param("bilinear", glorot, (self.num_heads, d, d, d))
        attended = two_simplicial_attention(
            query, key1, key2, value, bilinear, logit="trilinear", mask=mask[None]
        )
        return attended.reshape(batch, n, self.features)


# %% [markdown]
# ## The model
#
# One block. Only the line that attends differs between the three kinds; `TwoSimplicialAttention` is the
# ready-made layer.


# %%
class Transformer(nn.Module):
    """One block: attention of the given kind, a feed-forward layer, and a classifier of each token."""

    kind: str
    width: int = 32

    @nn.compact
    def __call__(self, x: Int[Array, "B N"]) -> Float[Array, "B N"]:
        """Returns for each number the logit that two others complete the sum."""
        tokens = nn.Embed(MODULUS, self.width)(x)
        normed, mask = nn.LayerNorm()(tokens), jnp.asarray(DISTINCT)
        if self.kind == "ordinary":
            others = jnp.asarray(~_same)[None, None]  # batch, heads, N, N
            attention = nn.MultiHeadDotProductAttention(num_heads=4, qkv_features=20)
            attended = cast(Array, attention(normed, mask=others))
        else:
            if self.kind == "unsigned":
                pairs = TwoSimplicialAttention(num_heads=4, features=16)(normed, mask=mask[None])
            else:
                pairs = TrilinearAttention(num_heads=4, features=16)(normed, mask)
            attended = nn.Dense(self.width)(nn.LayerNorm()(pairs))  # Remark 2.3 of Clift et al.
        tokens = tokens + attended
        hidden = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(tokens)))
        return nn.Dense(1)(nn.LayerNorm()(tokens + nn.Dense(self.width)(hidden)))[..., 0]


# %% [markdown]
# ## Training
#
# A plain optax loop. Batches are drawn on the device, so a tenth of the run is one compiled call.


# %%
def train(kind: str, steps: int, seed: int, batch: int = 128, points: int = 10) -> dict:
    """Trains one kind of attention; returns its parameter count, time, last loss, and accuracies."""
    model = Transformer(kind)
    x, _ = draw(jax.random.key(seed), batch)
    params = jax.jit(model.init)(jax.random.key(seed), x)["params"]
    optimizer = optax.adamw(optax.cosine_decay_schedule(1e-2, steps))

    def predict(params, x) -> Array:
        return cast(Array, model.apply({"params": params}, x))

    def loss(params, x, y):
        return optax.sigmoid_binary_cross_entropy(predict(params, x), y.astype(float)).mean()

    def step(carry, number):
        params, state = carry
        x, y = draw(jax.random.fold_in(jax.random.key(seed + 1), number), batch)
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def accuracy(params):
        x, y = draw(jax.random.key(999), 4000)  # the same test for every kind and seed
        return ((predict(params, x) > 0) == y).mean()

    advance = jax.jit(lambda carry, numbers: jax.lax.scan(step, carry, numbers))
    carry, curve, seconds = (params, optimizer.init(params)), [], 0.0
    for part in np.array_split(np.arange(steps), min(points, steps)):
        start = time.perf_counter()
        carry, losses = jax.block_until_ready(advance(carry, jnp.asarray(part)))
        seconds += time.perf_counter() - start
        curve.append((int(part[-1]) + 1, float(accuracy(carry[0]))))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    return {"parameters": count, "seconds": seconds, "loss": float(losses[-1]), "curve": curve}


# %% [markdown]
# ## The comparison


# %%
def main(argv: list[str] | None = None) -> dict:
    """Trains all kinds of attention, prints one line per kind, and saves the curves."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("out/two_simplicial"))
    flags.add_argument("--steps", type=int, default=1000)
    flags.add_argument("--seed", type=int, default=0)
    args = flags.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    share = float(draw(jax.random.key(999), 4000)[1].mean())
    numbers: dict = {"steps": args.steps, "seed": args.seed, "always_the_commoner": max(share, 1 - share)}
    print(f"majority class: {numbers['always_the_commoner']:.3f}")
    print(f"{'attention':12} {'parameters':>10} {'accuracy':>9} {'seconds':>8}")
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="steps", ylabel="accuracy on new draws", title="Match3, one layer")
    axes.axhline(numbers["always_the_commoner"], color="grey", linestyle=":", label="majority class")
    for kind, line in zip(KINDS, ("-", "--", "-."), strict=False):
        result = numbers[kind] = train(kind, args.steps, args.seed)
        accuracy = result["curve"][-1][1]
        print(f"{kind:12} {result['parameters']:10,} {accuracy:9.3f} {result['seconds']:8.1f}", flush=True)
        axes.plot(*np.transpose(result["curve"]), line, label=kind)
    axes.legend()
    figure.savefig(args.out / "accuracy.png", dpi=150)
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Saved curves and numbers to {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
