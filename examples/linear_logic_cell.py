r"""How does a linear logic program of my own become a recurrent cell?

    python examples/linear_logic_cell.py --out=out/linear_logic

The program is a nested loop, which no cell of the package implements:

    nest = \!m. \!n. \!x. \!y. n !(\z. y (m !x z))        n times: m times x, then y;  (y x^m)^n

The example writes it with `llrnn.logic`, checks it, runs it on matrices, and uses it as the cell of Hu &
Murfet's Definition 2.4. The checker rejects a version with m not banged: the body of the loop runs n times,
so m has to be copied.

The task: a ball is under one of five cups. A token (m, n, a, b) means: n times, apply shuffle a m times, then
shuffle b once. The shuffles are unknown; the target after each token is the cup with the ball. Four of the
twelve pairs (m, n) never occur in training. The cell gets m and n as coordinates of programs and learns an
operator for each shuffle; an LSTM reads the same tokens.

Prints the accuracy on trained pairs, on held-out pairs, and on held-out pairs in sequences four times as
long; chance is about one in five. The cell's program fixes the meaning of m and n, which the LSTM has to
learn, so the comparison measures the value of the program. One run is one seed and takes about half a minute
on two cores. To adapt it, change `nest` and `tokens`.
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
from jaxtyping import Array, Float, Int
from matplotlib.figure import Figure

from llrnn import cells, logic
from llrnn.logic import bang, banged, lam

# %% [markdown]
# ## The program
#
# `nest` is written as a Python function of terms; `banged` builds the proof from it. The checker gives its
# type, and rejects the version in which m is used once.

# %%
CUPS, SHUFFLES, LARGEST = 5, 4, 3
HELD_OUT = ((1, 3), (2, 2), (3, 1), (3, 3))
TRAINED = tuple((m, n) for m in range(4) for n in range(1, 4) if (m, n) not in HELD_OUT)
LENGTH = 4
CELLS = ("program", "LSTM")

A = logic.Atom("A", 8)
INT, E = logic.integer(A), logic.endo(A)


def nest(m, n, x, y):
    """Returns the body of the program as a term; Python calls this once, to build the proof."""
    return n(bang(lam(A, lambda z: y(m(bang(x))(z)))))


def check_and_run() -> tuple[logic.Term, str]:
    """Returns the master program, and the checker's message for a version with a linear m."""
    master = banged(INT, INT, E, E, nest)
    print(f"program   {master}\ntype      {logic.check(master)}")
    linear = lam(INT, lambda m: banged(INT, E, E, lambda n, x, y: nest(m, n, x, y)))
    refused = ""
    try:
        logic.check(linear)
    except logic.LinearityError as error:
        refused = str(error)
    print(f"rejected  {refused}")
    x, y = np.random.default_rng(0).normal(size=(2, 8, 8)) / 3
    two, three = (logic.denote(logic.numeral(n, A)) for n in (2, 3))
    operator = logic.denote(master)(two)(three)(x)(y)
    error = np.abs(logic.matrix(operator, 8) - np.linalg.matrix_power(y @ x @ x, 3)).max()
    print(f"run       m = 2, n = 3 on two matrices: (y x^2)^3 up to {error:.0e}\n")
    return master, refused


# %% [markdown]
# ## The task
#
# Tokens select m, n and two shuffles. The cup after each token is computed by the definition, two nested
# loops.


# %%
@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def tokens(key: Array, count: int, length: int, pairs) -> tuple[Float[Array, "B T I"], Int[Array, "B T"]]:
    """Returns concatenated one-hot m, n, a, b, and the ball's cup after each token."""
    shuffles = np.random.default_rng(1).permuted(np.tile(np.arange(CUPS), (2 * SHUFFLES, 1)), axis=1)
    for_a, for_b = jnp.asarray(shuffles[:SHUFFLES]), jnp.asarray(shuffles[SHUFFLES:])
    of_pair, of_a, of_b = jax.random.split(key, 3)
    m, n = jnp.moveaxis(jax.random.choice(of_pair, jnp.asarray(pairs), (count, length)), -1, 0)
    a, b = (jax.random.randint(k, (count, length), 0, SHUFFLES) for k in (of_a, of_b))

    def follow(cup, token):
        m, n, a, b = token

        def round_(cup):
            return for_b[b][jax.lax.fori_loop(0, m, lambda _, cup: for_a[a][cup], cup)]

        cup = jax.lax.fori_loop(0, n, lambda _, cup: round_(cup), cup)
        return cup, cup

    cups = jax.vmap(lambda *token: jax.lax.scan(follow, jnp.asarray(0), token)[1])(m, n, a, b)
    sizes = (LARGEST + 1, LARGEST + 1, SHUFFLES, SHUFFLES)
    hot = [jax.nn.one_hot(part, size) for part, size in zip((m, n, a, b), sizes, strict=True)]
    return jnp.concatenate(hot, axis=-1), cups


# %% [markdown]
# ## The network
#
# A cell, run by flax's `nn.RNN`, and a classifier.


# %%
class Network(nn.Module):
    """A cell over the sequence, and a classifier of the cup for each token."""

    cell: nn.RNNCellBase

    @nn.compact
    def __call__(self, x: Float[Array, "B T I"]) -> Float[Array, "B T C"]:
        """Returns logits of the cups; LayerNorm scales the cell's state, of length 1, to unit variance."""
        return nn.Dense(CUPS)(nn.LayerNorm()(nn.RNN(self.cell)(x)))


# %% [markdown]
# ## Training


# %%
def train(cell: nn.RNNCellBase, steps: int, seed: int, points: int = 10) -> dict:
    """Trains one cell; returns its parameter count, time, last loss, and accuracies during training."""
    model = Network(cell)
    x, _ = tokens(jax.random.key(seed), 128, LENGTH, TRAINED)
    params = jax.jit(model.init)(jax.random.key(seed), x)["params"]
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, steps))

    def predict(params, x) -> Array:
        return cast(Array, model.apply({"params": params}, x))

    def loss(params, x, cups):
        logits = predict(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, cups).mean()

    def step(carry, number):
        params, state = carry
        x, cups = tokens(jax.random.fold_in(jax.random.key(seed + 1), number), 128, LENGTH, TRAINED)
        value, grads = jax.value_and_grad(loss)(params, x, cups)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def accuracy(params, x, cups):
        return (predict(params, x).argmax(-1) == cups).mean()

    asked = ((TRAINED, LENGTH), (HELD_OUT, LENGTH), (HELD_OUT, 4 * LENGTH))
    tests = [tokens(jax.random.key(999), 1000, length, pairs) for pairs, length in asked]

    advance = jax.jit(lambda carry, numbers: jax.lax.scan(step, carry, numbers))
    carry, curve, seconds = (params, optimizer.init(params)), [], 0.0
    for part in np.array_split(np.arange(steps), min(points, steps)):
        start = time.perf_counter()
        carry, losses = jax.block_until_ready(advance(carry, jnp.asarray(part)))
        seconds += time.perf_counter() - start
        curve.append((int(part[-1]) + 1, *(float(accuracy(carry[0], *test)) for test in tests)))
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    return {"parameters": count, "seconds": seconds, "loss": float(losses[-1]), "curve": curve}


# %% [markdown]
# ## The comparison
#
# The cell is `LLRNNCell` with the program as its master; the tokens give the programs m and n, and the
# network learns the operators x and y.


# %%
def main(argv: list[str] | None = None) -> dict:
    """Builds the program, trains both cells, prints one line per cell, and saves the curves."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, default=Path("out/linear_logic"))
    flags.add_argument("--steps", type=int, default=3000)
    flags.add_argument("--seed", type=int, default=0)
    args = flags.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    master, refused = check_and_run()
    numerals = logic.numeral_span(LARGEST, A)  # x^0 .. x^3; the one-hot m picks one
    given = (cells.Command("m", numerals, "given"), cells.Command("n", numerals, "given"))
    program = cells.LLRNNCell(
        master,
        inputs=(*given, cells.Input("x"), cells.Input("y")),
        inside=(),  # h' = Z h, without H h + U x + B: the cell consists of the program
        normalize=True,
        initial=np.eye(8)[0],
    )
    numbers: dict = {"steps": args.steps, "seed": args.seed, "refused": refused}
    print(f"{'cell':10} {'parameters':>10} {'trained':>8} {'held out':>9} {'longer':>7} {'seconds':>8}")
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.add_subplot(xlabel="steps", ylabel="accuracy", title="Held-out pairs (m, n)")
    made = {"program": program, "LSTM": nn.OptimizedLSTMCell(64)}
    for name, line in zip(CELLS, ("-", "--"), strict=False):
        result = numbers[name] = train(made[name], args.steps, args.seed)
        trained, held_out, longer = result["curve"][-1][1:]
        shown = f"{trained:8.3f} {held_out:9.3f} {longer:7.3f} {result['seconds']:8.1f}"
        print(f"{name:10} {result['parameters']:10,} {shown}", flush=True)
        steps, _, accuracy, _ = np.transpose(result["curve"])
        axes.plot(steps, accuracy, line, label=name)
    axes.axhline(1 / CUPS, color="grey", linestyle=":", label="chance")
    axes.legend()
    figure.savefig(args.out / "held_out.png", dpi=150)
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Saved curves and numbers to {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
