"""The released FOLNet at work on families that are drawn now, for `experiments.showcase`."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.kinship import measures, parts, train
from experiments.kinship.config import Config
from experiments.runtime import releasing
from folnet import kinship

PROBLEMS = 60
"""Problems per length."""
SHOWN = (2, 4, 6, 8, 10)
"""Lengths of which the table has a problem."""


def showcase(directory: Path, seed: int) -> runtime.Stop:
    """Answers new problems, draws the accuracy by length, and returns the section of the page."""
    folder = releasing.find("kinship/jmc.atp")
    config = releasing.read_run_config(Config, folder)
    params = releasing.restore(folder, train.abstract_state(config)).state.params
    model = config.make(config.model)
    # Test seeds, so that no problem is from the training's sequence.
    sources = {
        k: kinship.Kinship(parts.TEST_SEED + 1000 * (1 + seed % 10**6) + k, (k,))
        for k in config.data.test_lengths
    }
    read = config.reader(config.model, sources[max(sources)])
    batch = [read(source, range(PROBLEMS)) for source in sources.values()]
    arrays = {name: np.concatenate([part[name] for part in batch]) for name in batch[0]}
    labels = arrays.pop("labels").reshape(len(sources), PROBLEMS)
    answers = jax.jit(lambda arrays: jnp.argmax(measures.logits(model, params, arrays), axis=-1))(arrays)
    answers = np.asarray(answers).reshape(labels.shape)
    right = dict(zip(sources, (answers == labels).sum(axis=1).tolist(), strict=True))
    rows = [
        {
            "facts": str(k),
            "story": (story := sources[k].story(0)).text,
            "question": story.question,
            "answer": kinship.TARGET_NAMES[labels[number, 0]],
            "FOLNet's answer": kinship.TARGET_NAMES[answers[number, 0]],
        }
        for number, k in enumerate(sources)
        if k in SHOWN
    ]
    ends = [runtime.intervals.wilson_interval(hits, PROBLEMS) for hits in right.values()]
    lengths, chance = list(right), 1 / len(kinship.TARGETS)
    figure = runtime.plots.curve_figure(
        {
            "FOLNet": (lengths, [hits / PROBLEMS for hits in right.values()], *np.transpose(ends)),
            "guessing": (lengths, [chance] * len(lengths)),
        },
        title=f"{PROBLEMS} new problems per length, 95 % intervals",
        xlabel="facts in the chain, k",
        ylabel="accuracy",
        ylim=(-0.03, 1.03),
        marks={"longest trained": max(config.data.train_lengths)},
        size=(5.4, 3.2),
    )
    trained = " and ".join(map(str, config.data.train_lengths))
    return runtime.Stop(
        title="FOLNet: who is Kim to Lee?",
        meaning=(
            "Facts about a family are relations between people, from which neural logic operators infer "
            f"others. The model was trained on chains of {trained} facts; the problems here have up to "
            f"{lengths[-1]}. It reads the facts as a graph; the table has them as text."
        ),
        rows=rows,
        figures={runtime.plots.save(figure, directory / "by_length.png"): "Accuracy by length of the chain."},
        caveat="Synthetic families; the intervals are over problems of one trained model.",
        commands={
            "Train a model and compare it with Transformers": (
                "python -m experiments.kinship --config=quick --workdir=runs/kinship "
                "--config.baselines=\"('relation_aware',)\""
            ),
            "Prepare text of your own for pretraining": (
                "python -m experiments.folnet_pretrain.data --source=FOLDER --new_vocabulary=500 "
                "--out=data/text"
            ),
        },
    )
