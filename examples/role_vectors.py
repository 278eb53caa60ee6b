"""What do a TP-Transformer's role vectors stand for in my own data? Is it told there who does what to whom?

    python examples/role_vectors.py --out=out/roles
    python examples/role_vectors.py --data=mine.tsv --out=out/roles

A file has a line a pair: words with spaces between, a tab, and the answer's words. Without one, sentences
are made, and left in the output folder as such a file: "today bob is helped by ann", "help ann bob". Twelve
names do and are done to, in four kinds of sentence with four beginnings: neither a word nor its place in the
sentence says who does it.

A TP-Transformer (Schlag et al. 2019) learns to answer. Then the role vectors r of its encoder's last layer,
on sentences kept out of training, are clustered by k-means, head by head. Prints

  - the fraction of held-out answers that are right, word for word;
  - of words that an answer takes over from its sentence, the fraction whose place in the answer (here: who
    does, or to whom) is told by their cluster, when a cluster votes for its commonest place; and by a linear
    read-out, fitted on other sentences. Both before training too, and with the word or its place as the vote;
  - the words of each cluster of the head whose clusters tell most.

The picture has some sentences, words in the colour of their cluster. One run is one seed. About a minute on
two cores. To change: the file, or the model in `main`. Characters are words if there are spaces between.
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

PAD, START, END = 0, 1, 2
NAMES = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "lea")
VERBS = (("help", "helps", "helped"), ("call", "calls", "called"))
BEGINNINGS = ("", "today ", "as we know ", "in the old garden ")
MEASURED = 500  # held-out lines at most
LAYERS = 2


def sentences() -> list[str]:
    """The sentences used where no file is given, a line each."""
    lines = []
    for (a, b), (verb, does, done) in itertools.product(itertools.permutations(NAMES, 2), VERBS):
        plain, turned = f"{a} {does} {b}", f"{b} is {done} by {a}"
        stressed = f"it is {a} who {does} {b}", f"it is {b} who {a} {does}"
        for beginning, form in itertools.product(BEGINNINGS, (plain, turned, *stressed)):
            lines.append(f"{beginning}{form}\t{verb} {a} {b}")
    return lines


@dataclasses.dataclass(frozen=True)
class Data:
    """Symbols of all lines: rows padded at the end, answers with their start and end."""

    words: tuple[str, ...]
    source: np.ndarray
    answer: np.ndarray


def read(lines: list[str]) -> Data:
    """The lines as symbols; the vocabulary is what there is in them."""
    pairs = [line.split("\t") for line in lines if line.strip()]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise ValueError("data: expected lines of words, one tab, and the answer's words")
    found = {word for pair in pairs for text in pair for word in text.split()}
    words = ("<pad>", "<start>", "<end>", *sorted(found))
    number = {word: i for i, word in enumerate(words)}

    def rows(texts: list[list[int]]) -> np.ndarray:
        width = max(map(len, texts))
        return np.array([text + [PAD] * (width - len(text)) for text in texts])

    source = rows([[number[word] for word in text.split()] for text, _ in pairs])
    answer = rows([[START, *(number[word] for word in text.split()), END] for _, text in pairs])
    return Data(words, source, answer)


def train(model: TPTransformer, params, source: np.ndarray, answer: np.ndarray, steps: int, seed: int):
    """Parameters after so many steps of 64 pairs each, and the last loss."""
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


def places_in_answer(data: Data, rows: np.ndarray) -> np.ndarray:
    """Of each word its place in the answer, from 0; -1 where it is not there, or not exactly once in both."""
    source, answer = data.source[rows], data.answer[rows][:, 1:]
    same = (source[:, :, None] == answer[:, None, :]) & (source != PAD)[:, :, None]
    twice = (source[:, :, None] == source[:, None, :]).sum(-1) > 1
    return np.where((same.sum(-1) == 1) & ~twice, same.argmax(-1), -1)


def told_by(votes: np.ndarray, places: np.ndarray) -> float:
    """The fraction of words whose place is the commonest among words of the same vote."""
    votes, places = votes[places >= 0], places[places >= 0]
    if not len(places):
        return float("nan")
    counts = np.zeros((votes.max() + 1, places.max() + 1))
    np.add.at(counts, (votes, places), 1)
    return float(counts.max(axis=1).sum() / counts.sum())


def read_out(vectors: np.ndarray, places: np.ndarray) -> float:
    """The fraction of words whose place a linear map tells: least squares on the first half of sentences."""
    if places.max() < 0:
        return float("nan")
    ones = np.ones((*places.shape, 1))
    vectors, there = np.concatenate([vectors, ones], axis=-1), places >= 0
    first = there & (np.arange(len(places)) < len(places) // 2)[:, None]
    other = there & ~first
    weight = np.linalg.lstsq(vectors[first], np.eye(places.max() + 1)[places[first]])[0]
    return float(((vectors[other] @ weight).argmax(-1) == places[other]).mean())


def draw_sentences(data: Data, rows: np.ndarray, labels: np.ndarray, path: Path) -> None:
    """Sentences with each word on the colour of its cluster."""
    figure = Figure(figsize=(7, 0.3 * len(rows) + 0.2))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, data.source.shape[1]), ylim=(len(rows), 0))
    axes.axis("off")
    for y, row in enumerate(rows):
        for x in np.flatnonzero(data.source[row] != PAD):
            box = {"color": colormaps["tab20"](labels[y, x] % 20), "alpha": 0.6, "pad": 2}
            axes.text(x + 0.1, y + 0.5, data.words[data.source[row, x]], va="center", bbox=box)
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> dict:
    """Trains, clusters, prints, draws."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--data", type=Path, help="lines of words, a tab, the answer's words")
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
    print(f"held-out answers right: {right:.3f} of {len(held_out)}, after {seconds:.1f} s of training")

    places = places_in_answer(data, held_out)
    by_place = told_by(np.broadcast_to(np.arange(source.shape[1]), source.shape), places)
    by_word = told_by(data.source[held_out], places)
    numbers: dict = {"steps": args.steps, "seed": args.seed, "loss": loss, "right": right}
    numbers |= {"seconds": seconds, "told_by_place": by_place, "told_by_word": by_word}
    print("place in the answer, fraction told by")
    print(f"  the word                  {by_word:.3f}\n  its place in the sentence {by_place:.3f}")
    clusters: list[roles.RoleClusters] = []
    for name, weights in (("untrained", untrained), ("trained", params)):
        heads = range(model.num_heads)
        clusters = [
            roles.cluster_roles(model, weights, source, head=head, k=args.clusters, seed=args.seed)
            for head in heads
        ]
        vectors = np.asarray(roles.role_vectors(model, weights, source))
        told = [told_by(each.labels, places) for each in clusters]
        linear = [read_out(vectors[:, :, head], places) for head in heads]
        numbers[name] = {"clusters": told, "read_out": linear}
        print(f"  {name + ', clusters':25}", *(f"{value:.3f}" for value in told), " a number a head")
        print(f"  {name + ', read out':25}", *(f"{value:.3f}" for value in linear))
    most = int(np.argmax(numbers["trained"]["clusters"]))
    print(f"clusters of head {most}, their commonest words:")
    for number, counts in enumerate(roles.symbol_counts(clusters[most], source, len(data.words))):
        common = np.argsort(-counts, kind="stable")[:8]
        print(f"  {number:2}", *(data.words[symbol] for symbol in common if counts[symbol]))
    draw_sentences(data, held_out[:16], clusters[most].labels[:16], args.out / "roles.png")
    (args.out / "numbers.json").write_text(json.dumps(numbers, indent=1), encoding="utf-8")
    print(f"Sentences in the colours of head {most}, and the numbers, are in {args.out}.")
    return numbers


if __name__ == "__main__":
    main()
