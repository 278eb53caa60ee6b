"""What do a TP-Transformer's role vectors encode in my own data? Do they encode who does what to whom?

    python examples/role_vectors.py --out=out/roles
    python examples/role_vectors.py --data=mine.tsv --out=out/roles

A data file has one pair per line: words separated by spaces, a tab, and the words of the answer. Without a
file, the program generates sentences such as "today bob is helped by ann" with the answer "help ann bob", and
saves them in this format to the output folder. Twelve names are agents and patients in four kinds of sentence
with four beginnings, so that neither a word nor its position in the sentence determines its role.

A TP-Transformer (Schlag et al. 2019) learns to answer. The role vectors r of its encoder's last layer, on
held-out sentences, are then clustered by k-means for each head. Prints

  - the fraction of held-out answers that are correct, word for word;
  - how well the position of a word in the answer (here: agent or patient) is predicted by its cluster, where
    a cluster predicts its most common position, and by a linear read-out fitted on other sentences. Only
    words that the answer copies from the sentence count. For comparison the same is printed before training,
    and with the word or its position in the sentence in place of the cluster;
  - the most common words in each cluster of the most predictive head.

The picture shows some sentences, with words in the colour of their cluster. One run is one seed and takes
about a minute on two cores. To adapt it, change the file, or the model in `main`. To work on characters,
separate them by spaces.
"""

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib import colormaps
from matplotlib.figure import Figure

from tp_transformer import TPTransformer, greedy_decode, roles
from tp_transformer.objective import next_symbol_sums, shifted

# %% [markdown]
# ## The data
#
# Lines of words and answers, from a file or generated.

# %%
PAD, START, END = 0, 1, 2
NAMES = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lea")
VERBS = (("help", "helps", "helped"), ("call", "calls", "called"))
BEGINNINGS = ("", "today ", "as we know ", "in the old garden ")
MEASURED = 500  # maximum number of held-out lines
LAYERS = 2


def sentences() -> list[str]:
    """Generates the sentences that are used without a data file, one per line."""
    lines = []
    for (a, b), (verb, does, done) in itertools.product(itertools.permutations(NAMES, 2), VERBS):
        plain, turned = f"{a} {does} {b}", f"{b} is {done} by {a}"
        stressed = f"it is {a} who {does} {b}", f"it is {b} who {a} {does}"
        for beginning, form in itertools.product(BEGINNINGS, (plain, turned, *stressed)):
            lines.append(f"{beginning}{form}\t{verb} {a} {b}")
    return lines


@dataclasses.dataclass(frozen=True)
class Data:
    """The symbols of all lines: rows padded at the end, answers with start and end symbols."""

    words: tuple[str, ...]
    source: np.ndarray
    answer: np.ndarray


def read(lines: list[str]) -> Data:
    """Converts lines to symbols; the vocabulary consists of the words in the lines."""
    pairs = [line.split("\t") for line in lines if line.strip()]
    wrong = [pair for pair in pairs if len(pair) != 2]
    if not pairs or wrong:
        got = repr("\t".join(wrong[0])) if wrong else "no lines"
        raise ValueError(f"data: got {got}, expected lines of words, one tab, and the answer's words")
    found = {word for pair in pairs for text in pair for word in text.split()}
    words = ("<pad>", "<start>", "<end>", *sorted(found))
    number = {word: i for i, word in enumerate(words)}

    def rows(texts: list[list[int]]) -> np.ndarray:
        width = max(map(len, texts))
        return np.array([text + [PAD] * (width - len(text)) for text in texts])

    source = rows([[number[word] for word in text.split()] for text, _ in pairs])
    answer = rows([[START, *(number[word] for word in text.split()), END] for _, text in pairs])
    return Data(words, source, answer)


# %% [markdown]
# ## Training


# %%
def train(model: TPTransformer, params, source: np.ndarray, answer: np.ndarray, steps: int, seed: int):
    """Trains for `steps` batches of 64 pairs; returns the parameters and the last loss."""
    optimizer = optax.adam(optax.warmup_cosine_decay_schedule(0, 2e-3, max(steps // 20, 1), max(steps, 2)))

    def loss(params, source, answer):
        given, labels = shifted(answer)
        sums = next_symbol_sums(cast(jax.Array, model.apply({"params": params}, source, given)), labels)
        return sums.loss / sums.symbols

    def step(carry, number):
        params, state = carry
        key = jax.random.fold_in(jax.random.key(seed + 1), number)
        rows = jax.random.randint(key, (64,), 0, len(source))
        value, grads = jax.value_and_grad(loss)(params, jnp.asarray(source)[rows], jnp.asarray(answer)[rows])
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    advance = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(steps)))
    (params, _), losses = advance((params, optimizer.init(params)))
    return params, float(losses[-1])


# %% [markdown]
# ## What a role encodes
#
# A word that the answer copies has a position in the answer. A cluster predicts the most common position of
# its words; a linear read-out predicts it from the role vector.


# %%
def places_in_answer(data: Data, rows: np.ndarray) -> np.ndarray:
    """Returns each word's position in the answer, from 0; -1 unless it occurs once in each of the two."""
    source, answer = data.source[rows], data.answer[rows][:, 1:]
    same = (source[:, :, None] == answer[:, None, :]) & (source != PAD)[:, :, None]
    twice = (source[:, :, None] == source[:, None, :]).sum(-1) > 1
    return np.where((same.sum(-1) == 1) & ~twice, same.argmax(-1), -1)


def purity(groups: np.ndarray, places: np.ndarray) -> float:
    """Returns the fraction of words whose position in the answer is the most common one in their group."""
    groups, places = groups[places >= 0], places[places >= 0]
    if not len(places):
        return float("nan")
    counts = np.zeros((groups.max() + 1, places.max() + 1))
    np.add.at(counts, (groups, places), 1)
    return float(counts.max(axis=1).sum() / counts.sum())


def read_out(vectors: np.ndarray, places: np.ndarray) -> float:
    """Returns the accuracy of a linear map to positions, fitted by least squares on half of the sentences."""
    if places.max() < 0:
        return float("nan")
    ones = np.ones((*places.shape, 1))
    vectors, there = np.concatenate([vectors, ones], axis=-1), places >= 0
    first = there & (np.arange(len(places)) < len(places) // 2)[:, None]
    other = there & ~first
    weight = np.linalg.lstsq(vectors[first], np.eye(places.max() + 1)[places[first]])[0]
    return float(((vectors[other] @ weight).argmax(-1) == places[other]).mean())


def draw_sentences(data: Data, rows: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Draws sentences with each word on the colour of its cluster."""
    figure = Figure(figsize=(7, 0.3 * len(rows) + 0.2))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, data.source.shape[1]), ylim=(len(rows), 0))
    axes.axis("off")
    for y, row in enumerate(rows):
        for x in np.flatnonzero(data.source[row] != PAD):
            box = {"color": colormaps["tab20"](labels[y, x] % 20), "alpha": 0.6, "pad": 2}
            axes.text(x + 0.1, y + 0.5, data.words[data.source[row, x]], va="center", bbox=box)
    figure.savefig(path, dpi=150)


# %% [markdown]
# ## The measurement


# %%
def main(argv: list[str] | None = None) -> dict:
    """Trains the model, clusters its role vectors, prints the measures and saves the picture."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", type=Path, help="file with lines of words, a tab, and the answer's words")
    flags.add_argument("--out", type=Path, default=Path("out/roles"))
    flags.add_argument("--steps", type=int, default=800)
    flags.add_argument("--clusters", type=int, default=12)
    flags.add_argument("--seed", type=int, default=0)
    args = flags.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)

    lines = args.data.read_text(encoding="utf-8").splitlines() if args.data else sentences()
    if not args.data:
        (args.out / "sentences.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = read(lines)
    order = np.random.default_rng(args.seed).permutation(len(data.source))
    kept, held_out = np.split(order, [int(0.8 * len(order))])
    held_out = held_out[:MEASURED]
    model = TPTransformer(len(data.words), features=64, filter_features=128, num_heads=4, num_layers=LAYERS)
    untrained = jax.jit(model.init)(jax.random.key(args.seed), data.source[:1], data.answer[:1])["params"]
    start = time.perf_counter()
    params, loss = train(model, untrained, data.source[kept], data.answer[kept], args.steps, args.seed)
    seconds = time.perf_counter() - start

    source, longest = jnp.asarray(data.source[held_out]), data.answer.shape[1] - 1
    answers = greedy_decode(model, params, source, max_length=longest, start=START, end=END)
    right = float((np.asarray(answers) == data.answer[held_out]).all(axis=1).mean())
    print(f"correct held-out answers: {right:.3f} of {len(held_out)}, after {seconds:.1f} s of training")

    places = places_in_answer(data, held_out)
    by_place = purity(np.broadcast_to(np.arange(source.shape[1]), source.shape), places)
    by_word = purity(data.source[held_out], places)
    numbers: dict = {"steps": args.steps, "seed": args.seed, "loss": loss, "right": right}
    numbers |= {"seconds": seconds, "told_by_place": by_place, "told_by_word": by_word}
    print("accuracy of the position in the answer, predicted from")
    print(f"  the word                  {by_word:.3f}\n  position in the sentence  {by_place:.3f}")
    clusters: list[roles.RoleClusters] = []
    for name, weights in (("untrained", untrained), ("trained", params)):
        heads = range(model.num_heads)
        clusters = [
            roles.cluster_roles(model, weights, source, head=head, k=args.clusters, seed=args.seed)
            for head in heads
        ]
        vectors = np.asarray(roles.role_vectors(model, weights, source))
        voted = [purity(each.labels, places) for each in clusters]
        linear = [read_out(vectors[:, :, head], places) for head in heads]
        numbers[name] = {"clusters": voted, "read_out": linear}
        print(f"  {name + ', clusters':25}", *(f"{value:.3f}" for value in voted), " per head")
        print(f"  {name + ', read-out':25}", *(f"{value:.3f}" for value in linear), " per head")
    most = int(np.argmax(numbers["trained"]["clusters"]))
    print(f"clusters of head {most} with their most common words:")
    for number, counts in enumerate(roles.symbol_counts(clusters[most], source, len(data.words))):
        common = np.argsort(-counts, kind="stable")[:8]
        print(f"  {number:2}", *(data.words[symbol] for symbol in common if counts[symbol]))
    draw_sentences(data, held_out[:16], clusters[most].labels[:16], args.out / "roles.png")
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Saved sentences in the colours of head {most}, and the numbers, to {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
