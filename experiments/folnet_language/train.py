"""Trains FOLNets that write text: a language model, or an encoder-decoder for inputs and targets.

    python -m experiments.folnet_language --data=books --workdir=runs/books
    python -m experiments.folnet_language --config=pairs --data=train.jsonl --workdir=runs/pairs

The loss is the mean cross-entropy of a word given those before it (and the input); Appendix A.5 of Chen 2023
has the models. Perplexity on held-out text is measured during training. At the end the model continues some
held-out texts, or answers some inputs; results and pictures are in the workdir. `write` uses a trained model,
and `load` writes it as a folder for `from_pretrained`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from experiments import runtime
from experiments.folnet_language import figures, measures
from experiments.folnet_language.config import Config
from experiments.folnet_language.data import Batches, Data
from experiments.folnet_pretrain import vocabularies
from experiments.runtime.training import Program, Task
from folnet import FOLNetForCausalLM
from folnet.objective import Loss, cross_entropy, is_real


def main(
    config: Config, *, workdir: Path | None, parallel: str | runtime.Layout = "jit"
) -> runtime.FitResult:
    """Trains the model and draws the figures.

    Args:
        config: see `experiments.folnet_language.config`.
        workdir: directory of the run; None saves and draws nothing.
        parallel: see `runtime.fit`.

    Raises:
        runtime.WorkdirError: the data are missing or do not match (see `open_data`), or the workdir belongs
            to another run.
    """
    data = open_data(config, workdir)
    model = config.make_model()
    batches = batches_of(config, data, jax.process_index(), jax.process_count())
    losses = make_losses(model)
    result = runtime.fit(
        config,
        init=make_init(model),
        loss=make_loss(config, model),
        batches=batches,
        optimizer=config.make_optimizer(),
        evaluate=measures.make_evaluate(config, losses, data, parallel),
        conclude=lambda params: measures.conclude(config, model, params, data),
        workdir=workdir,
        parallel=parallel,
        name="FOLNet",
    )
    if workdir is not None and runtime.is_first() and config.is_over(result.step, result.train_seconds):
        figures.draw(Path(workdir), config, result)
    return result


def open_data(config: Config, workdir: Path | None = None) -> Data:
    """Returns the rows, after checking that they match the config and the workdir's vocabulary.

    Raises:
        runtime.WorkdirError: they are missing, damaged or do not match; this is raised before anything is
            compiled.
    """
    try:
        data = config.data.open_rows()
        batches_of(config, data)
        vocabularies.settle(data.tokenizer, config.model.vocab_size, workdir)
    except (ValueError, RuntimeError) as error:
        raise runtime.WorkdirError(f"data: {error}") from error
    return data


def batches_of(config: Config, data: Data, process: int = 0, processes: int = 1) -> Batches:
    """Returns a run's batches as a function of the step, restricted to the rows of one process."""
    return Batches(data.train, config.batch_size, seed=config.seed, process=process, processes=processes)


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """Returns `init(key)` for `runtime.fit`, which draws the model's initial parameters."""
    tokens = jnp.zeros((1, 4), jnp.int32)
    texts = (tokens,) if isinstance(model, FOLNetForCausalLM) else (tokens, tokens)
    return lambda key: model.init(key, *texts)["params"]


def make_losses(model: nn.Module) -> Callable[..., tuple[Loss, Loss]]:
    """Returns `losses(params, batch, dropout=None)`: the loss of words, and which texts are right as a whole.

    The second has no sum: a text is right if each of its words is the most probable one after those before
    it, so that greedy generation would write it. Dropout is applied only if the key `dropout` is given.
    """
    continues = isinstance(model, FOLNetForCausalLM)
    names = ("input_ids",) if continues else ("input_ids", "decoder_input_ids", "attention_mask")

    def losses(params, batch, dropout=None):
        out: Any = model.apply(
            {"params": params},
            **{name: batch[name] for name in names},
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        logits, labels = out.logits, batch["labels"]
        if continues:
            logits, labels = logits[:, :-1], labels[:, 1:]
        each = jax.vmap(cross_entropy)(logits, labels)
        words = jax.tree.map(jnp.sum, each)
        real = is_real(labels).any(axis=1)
        whole = (each.correct == each.count) & real
        return words, Loss(jnp.zeros_like(words.sum), real.sum(), whole.sum())

    return losses


def make_loss(config: Config, model: nn.Module) -> Callable[..., runtime.Sums]:
    """Returns `loss(params, batch, key)` for `runtime.fit`, the mean over the words of the whole batch."""
    drops = config.model.hidden_dropout_prob > 0 or config.model.attention_probs_dropout_prob > 0
    losses = make_losses(model)

    def loss(params, batch, key):
        words, _ = losses(params, batch, key if drops else None)
        return runtime.Sums(words.sum, words.count, {"accuracy": (words.correct, words.count)})

    return loss


def abstract_state(config: Config) -> runtime.TrainState:
    """Returns the shapes, dtypes and shardings of the run's state, for reading its checkpoints."""
    model = config.make_model()
    task = Task(
        config.seed, config.batch_size, make_init(model), make_loss(config, model), config.make_optimizer()
    )
    return Program(task, "jit").abstract_state()
