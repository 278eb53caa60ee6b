"""The TP-Transformer and the Transformer on the Mathematics Dataset (Schlag et al. 2019).

    python -m experiments.mathematics --config=quick --workdir=runs/quick

Trains the model, then the baseline if the config has one (in `baseline/` below the workdir) on the same
batches for as many steps, measures exact match by module on the test splits, and draws: a bar for every
module (figure 3 of the paper), exact match during training, and questions coloured by the clusters of their
role vectors (figure 2). `experiments.mathematics.solve` asks the trained model.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments import runtime
from experiments.mathematics import figures as mathematics_figures
from experiments.mathematics import measures
from experiments.mathematics.config import Config
from experiments.runtime import processes
from experiments.runtime.training import Program, Task
from tp_transformer import mathematics, objective
from tp_transformer.model import EncoderDecoder

BASELINE = "baseline"
QUESTIONS = ".questions"
"""In a workdir, where drawn questions are kept: hidden, so that a workdir that has nothing else is still
free."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline and draws the figures.

    Args:
        config: see `experiments.mathematics.config`.
        workdir: where the run is kept; None keeps and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".

    Raises:
        runtime.WorkdirError: questions that are not there, do not fit, or are another set's.
    """
    try:
        source = processes.first_before_others(lambda: open_questions(config, workdir), ValueError)
        training_batches(config, source)  # so that questions that do not fit are told before anything is done
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"the questions: {error}") from error
    configs = {config.model.name: config}
    if config.has_baseline:
        configs[BASELINE] = config.for_baseline()
    results = {}
    for name, of_model in configs.items():
        below = workdir if workdir is None or name != BASELINE else Path(workdir) / BASELINE
        results[name] = train(of_model, source, below, parallel)
        if config.session_seconds and results[name].step < config.steps:
            break  # this process's time is up; the same command goes on
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        trained = {name: configs[name] for name in results}
        mathematics_figures.draw(Path(workdir), trained, results, source)
    return results


def open_questions(config: Config, workdir: Path | None) -> mathematics.Source:
    """The questions; those to be drawn are drawn once and kept in the workdir, if there is one.

    Raises:
        ValueError: there are none where the config says, or the folder holds others.
    """
    source = config.data.open()
    if workdir is None or not isinstance(source, mathematics.Generator):
        return source
    # Workers take a second or two to start, which a small set is not worth.
    small = len(source.names) * source.train <= 3000
    directory = Path(workdir) / QUESTIONS
    return mathematics.generate(directory, source, processes=1 if small else None, show=not small)


def train(
    config: Config, source: mathematics.Source, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model."""
    model = config.model.make()
    batches = training_batches(config, source)
    forced = measures.by_forcing(model)
    some = measures.test_batches(config, source, config.eval_questions)

    def feed(step: int) -> dict[str, Any]:
        batch = batches[step]
        return {"source": batch.source, "target": batch.target}

    def evaluate(params):
        found = {}
        for split, scores in measures.measure(forced, params, some).items():
            found[split] = scores.average
            found |= {f"{split}/{module}": accuracy for module, accuracy in scores.accuracies.items()}
        return found

    def conclude(params):
        final = measures.test_batches(config, source, config.final_questions)
        answers = measures.commonest_answers(config, source)
        scores = measures.measure(measures.by_decoding(model), params, final)
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **{split: measures.summarize(found) for split, found in scores.items()},
            "commonest_answer": {
                split: measures.summarize(measures.always(answers, found)) for split, found in final.items()
            },
        }

    return runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(model),
        batches=feed,
        optimizer=config.make_optimizer(),
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
        name=mathematics_figures.shown(config.model.name),
    )


def training_batches(config: Config, source: mathematics.Source) -> mathematics.Batches:
    """The rows of this process of the batches that a run trains on.

    Raises:
        ValueError: there are none, or questions that fit no bucket.
    """
    return mathematics.Batches(
        source,
        config.data.split,
        config.data.modules or None,
        batch_size=config.batch_size,
        buckets=config.data.shapes(),
        seed=config.seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
    )


def make_init(model: EncoderDecoder) -> Callable[[jax.Array], Any]:
    """`init(key)` of `runtime.fit`."""

    def init(key):
        tokens = jnp.zeros((1, 2), jnp.int32)
        return model.init(key, tokens, tokens)["params"]

    return init


def make_loss(model: EncoderDecoder) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: cross-entropy over the symbols of the answers."""

    def loss(params, batch, key):
        given, labels = objective.shifted(batch["target"])
        dropout = key if model.dropout_rate else None
        logits = measures.logits(model, params, batch["source"], given, dropout=dropout)
        sums = objective.next_symbol_sums(logits, labels, pad=model.pad)
        return runtime.Sums(
            sums.loss,
            sums.symbols,
            {
                "symbols_right": (sums.correct_symbols, sums.symbols),
                "exact_match": (sums.correct_answers, sums.answers),
            },
        )

    return loss


def abstract_state(config: Config) -> runtime.TrainState:
    """Shapes, types and shardings of the run's state, for reading its checkpoints."""
    model = config.model.make()
    task = Task(config.seed, config.batch_size, make_init(model), make_loss(model), config.make_optimizer())
    return Program(task, "jit").abstract_state()
