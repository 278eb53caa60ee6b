"""Configs of runs on sequence tasks: any task with any recurrent cell.

    python -m experiments.llrnn --config=PRESET --config.FIELD=VALUE --workdir=DIR

Each preset's docstring says what it should reach, on which hardware, in how long. `quick`, `copy` and
`word_problem` then train a baseline on the same batches for as many seconds as the cell took.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import jax
import optax
from absl import logging
from flax import linen as nn

from experiments import runtime
from llrnn import model as models
from llrnn import tasks

ACTIVATIONS = {"relu": nn.relu, "tanh": nn.tanh}
OPTIMIZERS = ("adam", "rmsprop", "sgd")
NO_CELL = "none"


def set_fields(config: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not None."""
    return {name: value for name, value in dataclasses.asdict(config).items() if value is not None}


@functools.cache
def _warn_once(text: str) -> None:
    logging.warning("%s", text)


@dataclasses.dataclass
class CellConfig:
    """A recurrent cell: its name and its fields; None keeps the cell's own default.

    `llrnn.cells` and `llrnn.memory` document each field. A field that the cell does not have is refused,
    unless the cell replaces the preset's (`--config.cell.name=lstm`): then such fields of the preset are left
    out with a warning.
    """

    name: str = "ntm"
    features: int = 64
    activation: str | None = None
    # recurrent cells
    update: str | None = None
    normalize: bool | None = None
    factors: int | None = None
    coupling: str | None = None
    max_power: int | None = None
    # memories
    memory_size: int | None = None
    memory_width: int | None = None
    program_size: int | None = None
    powers: tuple[int, ...] | None = None
    program_powers: tuple[int, ...] | None = None
    words: tuple[str, ...] | None = None
    erase: bool | None = None
    sharpen: bool | None = None
    read: str | None = None
    direct: bool | None = None

    def __post_init__(self):
        self._preset_name = self.name  # flags set attributes afterwards

    def make(self) -> nn.RNNCellBase:
        """The cell; ValueError for an unknown name, activation or field."""
        options = set_fields(self)
        del options["name"]
        if self.activation is not None:
            runtime.one_of("activation", self.activation, ACTIVATIONS)
            options["activation"] = ACTIVATIONS[self.activation]
        if self.name != self._preset_name:
            known = models.cell_fields(self.name)
            if left_out := sorted(set(options) - set(known)):
                _warn_once(
                    f"{self.name} has no {', '.join(left_out)}, which the preset sets for "
                    f"{self._preset_name}: left out"
                )
            options = {name: value for name, value in options.items() if name in known}
        return models.make_cell(self.name, **options)


@dataclasses.dataclass
class TaskOptions:
    """Attributes of the task, which `llrnn.tasks` documents; None keeps the task's own."""

    train_lengths: tuple[int, ...] | None = None
    test_lengths: tuple[int, ...] | None = None
    group: str | None = None
    powers: int | None = None
    operators: int | None = None
    held_out: int | None = None
    seed: int | None = None


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """A task, a cell, and how the cell is trained on it.

    Attributes:
        task: one of `llrnn.tasks.NAMES`.
        task_options: what to change of the task.
        cell: the recurrent cell.
        baseline: a cell to train afterwards for as many seconds; name "none" trains none.
        baseline_lr: the baseline's learning rate; 0 takes `lr`.
        optimizer: "adam", "rmsprop" (decay .9, momentum .9, as the authors have it) or "sgd".
        lr: learning rate.
        clip: the gradient's norm is clipped to this; 0 leaves it.
        hidden_outputs: dimension of y in (2.2); 0 leaves that equation out.
        unroll: steps of the recurrence laid out in one iteration of the compiled loop.
        eval_examples: sequences in an evaluation, for each length.
        final_examples: sequences in the evaluation at the end.
        score_examples: for the tasks of Deletang et al., sequences at each of the lengths 41 to 500 for their
            score at the end; 0 leaves it out (it takes minutes).
    """

    experiment: ClassVar[str] = "llrnn"

    task: str = "copy"
    task_options: TaskOptions = dataclasses.field(default_factory=TaskOptions)
    cell: CellConfig = dataclasses.field(default_factory=CellConfig)
    baseline: CellConfig = dataclasses.field(default_factory=lambda: CellConfig(name=NO_CELL))
    baseline_lr: float = 0.0
    optimizer: str = "adam"
    lr: float = 1e-3
    clip: float = 1.0
    hidden_outputs: int = 0
    unroll: int = 1
    eval_examples: int = 256
    final_examples: int = 1024
    score_examples: int = 0

    def validate(self) -> None:
        """See `RunConfig.validate`; builds task and cells, so that what they refuse is refused here."""
        super().validate()
        runtime.one_of("task", self.task, tasks.NAMES)
        runtime.one_of("optimizer", self.optimizer, OPTIMIZERS)
        for name in ("lr", "baseline_lr", "clip", "hidden_outputs", "score_examples"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("unroll", "eval_examples", "final_examples"):
            runtime.at_least(name, getattr(self, name), 1)
        self.check_cell()
        if self.has_baseline:
            self.for_baseline(max_seconds=0).check_cell()

    def check_cell(self) -> None:
        """Traces the model on the task's shapes without computing anything; ValueError if they do not fit."""
        task = self.make_task()
        inputs = jax.ShapeDtypeStruct((1, task.steps(task.train_lengths[0]), sum(task.fields)), "float32")
        jax.eval_shape(self.make_model(task).init, jax.random.key(0), inputs)

    def make_task(self) -> tasks.Task:
        """The task."""
        return tasks.make(self.task, **set_fields(self.task_options))

    def make_model(self, task: tasks.Task) -> models.RecurrentModel:
        """The cell with the task's outputs."""
        return models.RecurrentModel(
            self.cell.make(), task.num_outputs, hidden_outputs=self.hidden_outputs or None, unroll=self.unroll
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """The optimizer."""
        update = {
            "adam": optax.adam,
            "rmsprop": lambda lr: optax.rmsprop(lr, decay=0.9, momentum=0.9),
            "sgd": optax.sgd,
        }[self.optimizer](self.lr)
        return optax.chain(optax.clip_by_global_norm(self.clip), update) if self.clip else update

    @property
    def has_baseline(self) -> bool:
        """Whether a baseline is trained."""
        return self.baseline.name != NO_CELL

    def for_baseline(self, max_seconds: float) -> "Config":
        """The config of the baseline's run: the same but for the cell, and stopped by the clock."""
        return dataclasses.replace(
            self,
            cell=self.baseline,
            baseline=CellConfig(name=NO_CELL),
            lr=self.baseline_lr or self.lr,
            steps=1_000_000_000,
            max_seconds=max_seconds,
        )


def _ntm(features: int, memory_size: int, memory_width: int, **fields: Any) -> CellConfig:
    """The authors' Neural Turing Machine."""
    return CellConfig(
        name="ntm",
        features=features,
        activation="tanh",
        memory_size=memory_size,
        memory_width=memory_width,
        powers=(0, -1, 1),
        erase=True,
        sharpen=True,
        **fields,
    )


def quick() -> Config:
    """Apply g^k in S5 to pairs (k, g) that were never trained: a higher-order cell against an LSTM.

    The coupling is given: token k is coupled to the program [[k]], the numeral (its coordinates are the
    one-hot vector of k), while the operators of the four g and the read-out are learned. The LSTM reads the
    same tokens.

    Reaches held-out accuracy 1.00 within 10 s on two CPU cores. It trains for 30 s, so that the LSTM, given
    the same time, learns most of the trained pairs; on held-out pairs it stays under .2.
    """
    return Config(
        task="group_powers",
        cell=CellConfig(
            name="higher_order", features=32, update="linear", normalize=True, coupling="given", max_power=7
        ),
        baseline=CellConfig(name="lstm", features=128),
        baseline_lr=3e-3,
        lr=1e-2,
        batch_size=128,
        steps=4000,
        log_every=50,
        checkpoint_every=1000,
        eval_every=200,
    )


def copy() -> Config:
    """Copy strings of length up to 10, then ones of 20 and 40: the NTM with location addressing.

    Reaches symbol error 0 at 10 and 20 and under .01 at 40 in about 20 s on two CPU cores; an LSTM is the
    baseline.
    """
    return Config(
        task="copy",
        task_options=TaskOptions(train_lengths=(1, 10), test_lengths=(10, 20, 40)),
        cell=_ntm(64, 64, 12),
        baseline=CellConfig(name="lstm", features=64),
        lr=5e-3,
        batch_size=64,
        steps=2500,
        log_every=100,
        checkpoint_every=500,
        eval_every=500,
    )


def word_problem() -> Config:
    """The word problem of S5 (complete for NC1), trained on words of length up to 16: a second-order cell.

    The cell is linear in the state and normalised, h' = Z h / |Z h|; it is trained as `quick` is. Reaches
    accuracy 1.00 at length 256 in about 45 s on two CPU cores; an LSTM is the baseline.
    """
    cell = CellConfig(name="second_order", features=32, update="linear", normalize=True)
    return dataclasses.replace(quick(), task="word_problem", cell=cell, eval_every=400)


def length_generalization() -> Config:
    """The tasks of Deletang et al. (2022): train up to length 40, score at 41 to 500.

    `--config.task=` parity, cycle_navigation, reverse_string, duplicate_string, odds_first or bucket_sort.
    """
    return Config(
        task="reverse_string",
        cell=_ntm(128, 512, 16),
        batch_size=128,
        lr=1e-3,
        steps=100_000,
        log_every=100,
        checkpoint_every=1000,
        eval_every=5000,
        eval_examples=64,
        score_examples=32,
    )


AUTHORS_TASKS = (
    "copy",
    "repeat_copy",
    *(f"pattern_{number}" for number in range(1, 6)),
    *(f"multiple_pattern_{number}" for number in range(1, 5)),
    *(f"variable_pattern_{number}" for number in range(1, 5)),
)


def authors(task: str) -> Config:
    """The preset of one of the authors' tasks at their sizes.

    Controller of 100 (tanh), ring of 128 x 20, RMSProp at 1e-4 with decay and momentum .9, batches of 250,
    200 epochs of 10,000 sequences (their default). `--config.cell.name=pattern_ntm` and
    `multiple_pattern_ntm` are their other models, with rings of 20 for programs. Meant for an accelerator.
    """
    return Config(
        task=task,
        cell=_ntm(100, 128, 20, read="previous"),  # M(r) before the step, as their code has it
        optimizer="rmsprop",
        lr=1e-4,
        clip=10.0,
        batch_size=250,
        steps=8000,
        log_every=40,
        checkpoint_every=400,
        eval_every=400,
        eval_examples=250,
    )


get_config = runtime.Presets(
    quick=quick,
    copy=copy,
    word_problem=word_problem,
    length_generalization=length_generalization,
    **{f"authors_{task}": functools.partial(authors, task) for task in AUTHORS_TASKS},
)
