"""Trains the TP-Transformer or the Transformer on the Mathematics Dataset (Schlag et al. 2019).

    python -m experiments.mathematics --config=quick --workdir=runs/quick

Trains the model, then the baseline, if any (in `baseline/` below the workdir), on the same batches for the
same number of steps. Measures exact match by module on the test splits, and draws exact match by module
(figure 3 of the paper), exact match during training, and questions coloured by the clusters of their role
vectors (figure 2). `experiments.mathematics.solve` answers questions with the trained model.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import runtime
from experiments.mathematics import figures, measures
from experiments.mathematics.config import Config
from experiments.runtime import processes
from experiments.runtime.training import Program, Task
from tp_transformer import mathematics, objective
from tp_transformer.model import EncoderDecoder

BASELINE = "baseline"
QUESTIONS = ".questions"
"""Folder of generated questions in a workdir; hidden, so that a workdir without a run counts as empty."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline and draws the figures.

    Args:
        config: see `experiments.mathematics.config`.
        workdir: the run's directory; None saves and draws nothing.
        parallel: see `runtime.fit`.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".

    Raises:
        runtime.WorkdirError: there are no questions to train or to test with, they do not fit the buckets, or
            the workdir has those of another config.
    """
    began = time.monotonic()
    try:
        source = processes.first_before_others(lambda: open_questions(config, workdir), ValueError)
        training_batches(config, source)  # raises early if questions do not fit the buckets
        if mathematics.INTERPOLATE not in config.data.test_modules(source):
            raise ValueError(
                f"directory: got {config.data.directory!r} without test questions, expected questions in its "
                f"folder {mathematics.INTERPOLATE}/, too"
            )
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"config.data: {error}") from error
    configs: dict[str, Config] = {config.model.name: config}
    if config.has_baseline:
        configs[BASELINE] = config.for_baseline()
    results: dict[str, runtime.FitResult] = {}
    for name, of_model in configs.items():
        below = Path(workdir) / BASELINE if workdir is not None and name == BASELINE else workdir
        results[name] = result = train(of_model.in_session(began), source, below, parallel)
        if not of_model.is_over(result.step, result.train_seconds):
            break  # the session has ended; the same command resumes the run
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        figures.draw(Path(workdir), {name: configs[name] for name in results}, results, source)
    return results


def open_questions(config: Config, workdir: Path | None) -> mathematics.Source:
    """Opens the questions; generated ones are stored in the workdir.

    Raises:
        ValueError: there are no questions, or the workdir has those of another config.
    """
    source = config.data.open()
    if workdir is None or not isinstance(source, mathematics.Generator):
        return source
    # Starting workers takes a second or two, longer than generating a small set.
    small = len(source.names) * source.train <= 3000
    directory = Path(workdir) / QUESTIONS
    return mathematics.generate(directory, source, processes=1 if small else None, show=not small)


def train(
    config: Config, source: mathematics.Source, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains one model without drawing figures."""
    model, batches = config.model.make(), training_batches(config, source)
    forced, decoded = measures.by_forcing(model), measures.by_decoding(model)
    some = measures.test_batches(config, source, config.eval_questions)

    def evaluate(params):
        found = {}
        for split, scores in measures.measure(forced, params, some).items():
            found[split] = scores.average
            found |= {f"{split}/{module}": accuracy for module, accuracy in scores.accuracies.items()}
        return found

    def conclude(params):
        final = measures.test_batches(config, source, config.final_questions)
        answers = measures.commonest_answers(config, source)
        always = {split: measures.always(answers, questions) for split, questions in final.items()}
        scores = measures.summarize(measures.measure(decoded, params, final))
        for split, of_modules in measures.bits(model, params, final).items():
            for name, value in of_modules.items():
                scores[split]["modules"][name]["bits"] = value
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **scores,
            "commonest_answer": measures.summarize(always),
        }

    return runtime.fit(
        config,
        **problem(config, model),
        batches=lambda step: dict(zip(("source", "target"), batches[step], strict=False)),
        evaluate=evaluate,
        conclude=conclude,
        workdir=workdir,
        parallel=parallel,
        name=figures.shown(config.model.name),
    )


def training_batches(config: Config, source: mathematics.Source) -> mathematics.Batches:
    """Returns this process's rows of the training batches.

    Raises:
        ValueError: there are no questions, or one does not fit any bucket.
    """
    source = measures.held_back(config, source)
    data, process = config.data, {"process_index": jax.process_index(), "process_count": jax.process_count()}
    sizes = {"batch_size": config.batch_size, "buckets": data.shapes()}
    return mathematics.Batches(source, data.split, data.modules or None, seed=config.seed, **sizes, **process)


def make_init(model: EncoderDecoder) -> Callable[[jax.Array], Any]:
    """Returns the `init(key)` function for `runtime.fit`."""
    tokens = np.zeros((1, 2), np.int32)
    return lambda key: model.init(key, tokens, tokens)["params"]


def make_loss(model: EncoderDecoder) -> Callable[..., runtime.Sums]:
    """Returns `loss(params, batch, key)` for `runtime.fit`: cross-entropy over the answers' symbols."""

    def loss(params, batch, key):
        given, labels = objective.shifted(batch["target"])
        dropout = key if model.dropout_rate else None
        logits = measures.logits(model, params, batch["source"], given, dropout=dropout)
        sums = objective.next_symbol_sums(logits, labels, pad=model.pad)
        right, exact = (sums.correct_symbols, sums.symbols), (sums.correct_answers, sums.answers)
        return runtime.Sums(sums.loss, sums.symbols, {"symbols_right": right, "exact_match": exact})

    return loss


def problem(config: Config, model: EncoderDecoder) -> dict[str, Any]:
    """Returns the `init`, `loss` and `optimizer` arguments of `runtime.fit` and `Task`."""
    return {"init": make_init(model), "loss": make_loss(model), "optimizer": config.make_optimizer()}


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    task = Task(seed=config.seed, batch_size=config.batch_size, **problem(config, config.model.make()))
    return Program(task, "jit").abstract_state()
