"""The TP-Transformer and the Transformer on the Mathematics Dataset (Schlag et al. 2019).

    python -m experiments.mathematics --config=quick --workdir=runs/quick

Trains the model, then the baseline if the config has one (in `baseline/` below the workdir) on the same
batches for as many steps, measures exact match by module on the test splits, and draws a bar for every module
(figure 3 of the paper), exact match during training, and questions coloured by the clusters of their role
vectors (figure 2). `experiments.mathematics.solve` asks the trained model.
"""

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
"""Where a workdir keeps drawn questions: hidden, so that a workdir with nothing else counts as free."""


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline in `workdir` and draws figures there; None keeps and draws nothing.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".

    Raises:
        runtime.WorkdirError: there are no questions, or they do not fit or are another set's.
    """
    try:
        source = processes.first_before_others(lambda: open_questions(config, workdir), ValueError)
        training_batches(config, source)  # reports questions that do not fit before anything is done
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"the questions: {error}") from error
    configs = {config.model.name: config}
    if config.has_baseline:
        configs[BASELINE] = config.for_baseline()
    results = {}
    for name, of_model in configs.items():
        below = Path(workdir) / BASELINE if workdir is not None and name == BASELINE else workdir
        results[name] = result = train(of_model, source, below, parallel)
        if config.session_seconds and not of_model.is_over(result.step, result.train_seconds):
            break  # this process's time is up; the same command continues
    if workdir is not None and runtime.is_first() and runtime.can_draw():
        figures.draw(Path(workdir), {name: configs[name] for name in results}, results, source)
    return results


def open_questions(config: Config, workdir: Path | None) -> mathematics.Source:
    """The questions, which a workdir keeps if they are drawn; ValueError if it holds others, or for none."""
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
        return {
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
            **measures.summarize(measures.measure(decoded, params, final)),
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
    """The training batches, this process's rows; ValueError for none, or if a question fits no bucket."""
    data, process = config.data, {"process_index": jax.process_index(), "process_count": jax.process_count()}
    sizes = {"batch_size": config.batch_size, "buckets": data.shapes()}
    return mathematics.Batches(source, data.split, data.modules or None, seed=config.seed, **sizes, **process)


def make_init(model: EncoderDecoder) -> Callable[[jax.Array], Any]:
    """`init(key)` of `runtime.fit`."""
    tokens = np.zeros((1, 2), np.int32)
    return lambda key: model.init(key, tokens, tokens)["params"]


def make_loss(model: EncoderDecoder) -> Callable[..., runtime.Sums]:
    """`loss(params, batch, key)` of `runtime.fit`: cross-entropy over the symbols of the answers."""

    def loss(params, batch, key):
        given, labels = objective.shifted(batch["target"])
        dropout = key if model.dropout_rate else None
        logits = measures.logits(model, params, batch["source"], given, dropout=dropout)
        sums = objective.next_symbol_sums(logits, labels, pad=model.pad)
        right, exact = (sums.correct_symbols, sums.symbols), (sums.correct_answers, sums.answers)
        return runtime.Sums(sums.loss, sums.symbols, {"symbols_right": right, "exact_match": exact})

    return loss


def problem(config: Config, model: EncoderDecoder) -> dict[str, Any]:
    """What is optimised and how, as `runtime.fit` and `Task` take it."""
    return {"init": make_init(model), "loss": make_loss(model), "optimizer": config.make_optimizer()}


def abstract_state(config: Config) -> runtime.TrainState:
    """Shapes, types and shardings of the run's state, for reading its checkpoints."""
    task = Task(config.seed, config.batch_size, **problem(config, config.model.make()))
    return Program(task, "jit").abstract_state()
