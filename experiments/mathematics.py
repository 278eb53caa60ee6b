"""The TP-Transformer and the Transformer on the Mathematics Dataset (Schlag et al. 2019).

    python -m experiments.mathematics --config=experiments/configs/mathematics.py:quick --workdir=runs/quick

Trains the model, then the baseline if the config has one (in `baseline/` below the workdir) on the same batches
for as many steps, measures exact match by module on the test splits, and draws: a bar for every module (figure
3 of the paper), exact match during training, and questions coloured by the clusters of their role vectors
(figure 2). `experiments.solve` asks the trained model.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from experiments import mathematics_figures, runtime
from experiments import mathematics_measures as measures
from experiments.configs.mathematics import Config
from experiments.runtime.training import Program, Task
from tp_transformer import mathematics, objective
from tp_transformer.model import EncoderDecoder

BASELINE = "baseline"
QUESTIONS = ".questions"
"""In a workdir, where drawn questions are kept: hidden, so that a workdir that has nothing else is still
free."""


def main(config: Config, *, workdir: Path | None, parallel: str = "jit") -> dict[str, runtime.FitResult]:
    """Trains the model and the baseline and draws the figures.

    Args:
        config: see `experiments.configs.mathematics`.
        workdir: where the run is kept; None keeps and draws nothing.
        parallel: `jit`, `shard_map` or `pmap`.

    Returns:
        The result of the model, under its name, and of the baseline, under "baseline".
    """
    source = open_questions(config, workdir)
    configs = {config.model.name: config}
    if config.has_baseline:
        configs[BASELINE] = config.for_baseline()
    results = {}
    for name, of_model in configs.items():
        below = workdir if workdir is None or name != BASELINE else Path(workdir) / BASELINE
        results[name] = train(of_model, source, below, parallel)
    if workdir is not None:
        mathematics_figures.draw(Path(workdir), configs, results, source)
    return results


def open_questions(config: Config, workdir: Path | None) -> mathematics.Source:
    """The questions; those to be drawn are drawn once and kept in the workdir, if there is one."""
    source = config.data.open()
    if workdir is None or not isinstance(source, mathematics.Generator):
        return source
    # Workers take a second or two to start, which a small set is not worth.
    small = len(source.names) * source.train <= 3000
    return mathematics.generate(
        Path(workdir) / QUESTIONS, source, processes=1 if small else None, show=not small
    )


def train(
    config: Config, source: mathematics.Source, workdir: Path | None, parallel: str = "jit"
) -> runtime.FitResult:
    """Trains one model."""
    model = config.model.make()
    data = config.data
    batches = mathematics.Batches(
        source,
        data.split,
        data.modules or None,
        batch_size=config.batch_size,
        buckets=data.shapes(),
        seed=config.seed,
    )
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
        logits = model.apply(
            {"params": params},
            batch["source"],
            given,
            deterministic=model.dropout_rate == 0,
            rngs={"dropout": key},
        )
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


if __name__ == "__main__":
    runtime.launch(main, config="experiments/configs/mathematics.py:quick")
