"""Run configs: typed dataclasses with presets, checked before anything is computed or written."""

import dataclasses
import importlib.util
import time
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import jax

from experiments.runtime import processes
from experiments.runtime.mesh import Layout
from experiments.runtime.training import check_parts

SESSION_OVER: Final = 1e-3
"""The `session_seconds` of a config when nothing is left of the session."""
TENSORBOARD: Final = "tensorboard"
WANDB: Final = "wandb"
MLFLOW: Final = "mlflow"
LOGS = {TENSORBOARD: "tensorboardX", WANDB: "wandb", MLFLOW: "mlflow"}
"""The modules with which logs are written; see `runtime.logs`."""


def resumable(default: Any, *, added: bool = False) -> Any:
    """Declares a config field, with an immutable default, that may change when a run is continued.

    Use it only for fields that do not affect the parameters at a given step. `steps` itself may only
    increase. An experiment whose learning-rate schedule depends on `steps` redeclares that field without
    this marker. `added` is as the function of this name.
    """
    return dataclasses.field(default=default, metadata={"resumable": True, "added": added})


def added(default: Any) -> Any:
    """Declares a config field, with an immutable default, that older runs lack.

    Use it only if runs without the field did what its default means.
    """
    return dataclasses.field(default=default, metadata={"added": True})


@dataclasses.dataclass
class Variant:
    """A part of a config that is one of several dataclasses, each with fields of its own, by its `name`.

    A direct subclass is the type of the config's field, and itself the variant "none". Its subclasses with a
    default of `name` are the others; their fields are plain values. `--config.FIELD.name=NAME` replaces the
    variant of a preset, see `as_variant`. `from_dict` leaves out fields of other variants, and None where it
    stands for a default: both are in the records of runs from before each variant had its class.
    """

    variants: ClassVar[dict[str, type[Any]]]

    name: str = added("none")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Variant in cls.__bases__:
            cls.variants = {"none": cls}
        elif "name" in vars(cls):
            cls.variants[cls.name] = cls

    @classmethod
    def of(cls, name: str, *values: Any, **fields: Any) -> Any:
        """Returns the variant `name` with these values of its fields.

        Raises:
            ValueError: if no variant has that name; the message lists those that exist.
        """
        one_of("name", name, cls.variants)
        return cls.variants[name](name, *values, **fields)

    def as_variant(self, name: str) -> Any:
        """Returns the variant `name` with the values of the fields that both have; raises as `of` does."""
        other = self.of(name)
        for field in _names(other) & _names(self) - {"name"}:
            setattr(other, field, getattr(self, field))
        return other


def _names(config: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def check_logs(names: tuple[str, ...]) -> None:
    """Checks that logs are known, named once, and that their libraries are installed.

    Raises:
        ValueError: with the way to install what is missing.
    """
    if unknown := [name for name in names if name not in LOGS]:
        raise ValueError(f"log: got {unknown[0]!r}, expected some of {', '.join(map(repr, LOGS))}")
    if len(set(names)) < len(names):
        raise ValueError(f"log: got {names}, expected each once")
    for name in names:
        if importlib.util.find_spec(LOGS[name]) is None:
            raise ValueError(
                f"log: got {name!r}, expected {LOGS[name]} to be installed (pip install 'logic-zoo[{name}]')"
            )


class Reordered(typing.NamedTuple):
    """Arrays to start from whose rows may stand in another order than elsewhere.

    Attributes:
        arrays: by their names in a state.
        kept: by name, a mask of the rows that keep their initial values.
        unmatched: a line for each row that is on one side alone.
        note: what is known about the order, "" if there is no doubt.
    """

    arrays: dict[str, Any]
    kept: typing.Mapping[str, Any] = {}
    unmatched: typing.Sequence[str] = ()
    note: str = ""


@dataclasses.dataclass
class RunConfig:
    """The fields common to all experiments; an experiment's config inherits from it and adds its own.

    A field is an int, float, bool, or str, a tuple or an optional of these, or a nested dataclass. Each is
    set on the command line by its dotted name (`--config.model.width=128`).

    Attributes:
        experiment: the experiment's name, a constant of the class; recorded in a run's `config.json`.
        size_fields: the (dotted) names of the fields on which the work per example depends, a constant of the
            class; a nested dataclass stands for all of its fields.
        seed: all randomness in a run is derived from the seed and the step, so a continued run is
            reproducible.
        steps: number of updates.
        batch_size: examples per update over all devices, a multiple of their number.
        accumulate: number of equal parts of a batch, on each device, whose gradients are computed one after
            another and added up; the update is the same up to rounding. Parts save memory, and on CPUs also
            time if they fit into the cache. 0 chooses by measurements (see `runtime.chunks`).
        log_every: steps between lines of metrics. When batches are drawn on the device, these steps are one
            compiled call, so a SIGTERM may have to wait this long.
        checkpoint_every: steps between checkpoints, a multiple of `log_every`.
        keep_checkpoints: number of most recent checkpoints to keep, at least 2, so that there is a fallback
            if one is damaged.
        eval_every: steps between evaluations, a multiple of `log_every`; 0 evaluates at the end only.
        max_seconds: training time in seconds after which the run ends, at the end of a log interval; 0 means
            no limit. Earlier sessions of the run count; compilation, evaluation and saving do not. A run that
            ends this way depends on the machine's speed.
        session_seconds: time in seconds, from where this process begins to train, and for all of its models
            together, after which it saves its state and stops, at the end of a log interval; 0 means no
            limit. For time-limited machines: the same command continues the run.
        tensorboard: also write TensorBoard events, as "tensorboard" in `log` does.
        log: other logs to write, some of "tensorboard", "wandb" and "mlflow" (--log=NAME,NAME); see
            `runtime.logs`. Each needs the extra of its name.
        init_from: weights to start from: a run's directory, a released folder or its name, or a folder for
            `from_pretrained`; "" starts from random parameters. A path that is there below the workdir is
            that one. What does not fit by name and shape keeps its random values and is reported. Baselines
            start from random parameters.
        init_optimizer: whether to also start from the optimizer's state in `init_from`.
    """

    experiment: ClassVar[str] = ""
    size_fields: ClassVar[tuple[str, ...]] = ()

    seed: int = 0
    steps: int = resumable(1000)
    batch_size: int = 64
    accumulate: int = 0
    log_every: int = 100
    checkpoint_every: int = resumable(1000)
    keep_checkpoints: int = resumable(2)
    eval_every: int = 0
    max_seconds: float = resumable(0.0)
    session_seconds: float = resumable(0.0)
    tensorboard: bool = resumable(False)
    log: tuple[str, ...] = resumable((), added=True)
    init_from: str = added("")
    init_optimizer: bool = added(False)

    def validate(self) -> None:
        """Checks types and ranges; an experiment's override calls `super().validate()` first.

        Raises:
            ValueError: with the field, its value and the expected values.
        """
        check_types(self)
        at_least("seed", self.seed, 0)
        if self.seed >= 2**32:  # JAX's keys would be those of the rest
            raise ValueError(f"seed: got {self.seed}, expected less than 2^32")
        for name in ("steps", "batch_size", "log_every"):
            at_least(name, getattr(self, name), 1)
        at_least("keep_checkpoints", self.keep_checkpoints, 2)
        at_least("max_seconds", self.max_seconds, 0)
        at_least("session_seconds", self.session_seconds, 0)
        at_least("eval_every", self.eval_every, 0)
        at_least("accumulate", self.accumulate, 0)
        if self.accumulate and self.batch_size % self.accumulate:
            raise ValueError(
                f"accumulate: got {self.accumulate}, expected a divisor of batch_size={self.batch_size}, or 0"
            )
        at_least("checkpoint_every", self.checkpoint_every, 1)
        check_logs(self.logs)
        if self.init_optimizer and not self.init_from:
            raise ValueError("init_optimizer: got True, expected False without init_from")
        for name in ("checkpoint_every", "eval_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(
                    f"{name}: got {getattr(self, name)}, expected a multiple of log_every={self.log_every}, "
                    "since the state is available only between log intervals"
                )

    @property
    def logs(self) -> tuple[str, ...]:
        """The logs to write besides `metrics.jsonl`."""
        first = (TENSORBOARD,) if self.tensorboard and TENSORBOARD not in self.log else ()
        return first + self.log

    def is_over(self, step: int, train_seconds: float) -> bool:
        """Returns whether a run has reached `steps` or `max_seconds` (`session_seconds` does not count)."""
        return step >= self.steps or 0 < self.max_seconds <= train_seconds

    @property
    def further_steps(self) -> int:
        """Updates that a run makes at most beside its `steps`; comparisons count them, too."""
        return 0

    def with_steps(self, steps: int) -> Self:
        """Returns a copy with so many updates; an override moves a schedule that ends with the run along."""
        return dataclasses.replace(self, steps=steps)

    def in_session(self, began: float) -> Self:
        """Returns a copy that ends with the session; it makes a log interval even when that is over.

        Collective if `session_seconds` is set: all processes get the time that is left by the first one's
        clock.

        Args:
            began: the value of `time.monotonic()` from which `session_seconds` counts.
        """
        if not self.session_seconds:
            return self
        left = max(SESSION_OVER, self.session_seconds - (time.monotonic() - began))
        return dataclasses.replace(self, session_seconds=processes.gathered(left)[0].item())

    def hardly_evaluated(self) -> Self:
        """Returns a copy for measurements of training: not evaluated on the way, and briefly at the end."""
        return dataclasses.replace(self, eval_every=0)

    def from_scratch(self) -> Self:
        """Returns a copy that starts from random parameters, for a baseline."""
        return dataclasses.replace(self, init_from="", init_optimizer=False)

    def reordered(self, folder: Path, arrays: dict[str, Any]) -> Reordered:
        """Returns the arrays of `init_from` in the order of this config's rows, such as symbols by their ids.

        Args:
            folder: where they are from.
            arrays: by their names in a state.

        Raises:
            ValueError: the folder contradicts itself.
        """
        return Reordered(arrays)

    def cpu_devices(self, cores: int, parts: int) -> int:
        """Returns into how many devices a run splits CPU cores by default; see `mesh.split_cores`.

        An experiment overrides this if it is faster so: each device then gets its own part of a batch.

        Args:
            cores: the number of cores.
            parts: the number of parts into which each device will cut its part of a batch, 1 if that is open.
        """
        return 1

    def check_layout(self, layout: Layout) -> None:
        """Checks that a run of this config fits the layout and the available devices.

        Raises:
            ValueError: with the offending value and what was expected.
        """
        self.check_batch(layout, self.batch_size)

    def check_batch(self, layout: Layout, batch_size: int) -> None:
        """Checks that batches fit the layout, the available devices, and the parts of a device's rows.

        Raises:
            ValueError: with the offending value and what was expected.
        """
        layout.check(batch_size, jax.device_count())
        if self.accumulate:
            data = layout.data or jax.device_count() // layout.model
            check_parts(self.accumulate, batch_size // data)


def at_least(name: str, value: float, least: float) -> None:
    """Raises a `ValueError` that names the field if `value` is below `least` or NaN."""
    if not value >= least:
        raise ValueError(f"{name}: got {value}, expected at least {least}")


def one_of(name: str, value: Any, choices: typing.Iterable[Any]) -> None:
    """Raises a `ValueError` that names the field and all choices if `value` is not one of them."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(map(repr, choices))}")


def check_types(config: Any, prefix: str = "") -> None:
    """Checks every field of a (nested) dataclass against its annotation; ints are accepted as floats.

    The command-line parser checks plain fields but not the items of a tuple, and configs made in Python are
    not checked at all. `prefix` precedes a field's name in messages.

    Raises:
        ValueError: with the field, its value and its declared type.
    """
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if choices := _choices(hint):
            one_of(f"{prefix}{field.name}", value, choices)
        if not _fits(value, hint):
            declared = hint.__name__ if isinstance(hint, type) else hint
            raise ValueError(f"{prefix}{field.name}: got {value!r}, expected type {declared}")
        if isinstance(value, Variant):
            one_of(f"{prefix}{field.name}.name", value.name, [type(value).name])
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_types(value, f"{prefix}{field.name}.")


def from_dict[Config](cls: type[Config], values: typing.Mapping[str, Any], prefix: str = "") -> Config:
    """Builds a (nested) config dataclass from parsed JSON; absent fields keep their defaults.

    Raises:
        ValueError: for a field or a `Variant` that does not exist, with its name after `prefix`.
    """
    kind: Any = cls
    known, is_variant = _names(kind), issubclass(kind, Variant)
    if is_variant:
        one_of(f"{prefix}name", name := values.get("name"), kind.variants)
        known, kind = set[str]().union(*map(_names, kind.variants.values())), kind.variants[name]
    if unknown := sorted(set(values) - known):
        raise ValueError(f"config: got field {prefix + unknown[0]!r}, expected a field of {kind.__name__}")
    hints = typing.get_type_hints(kind)
    if is_variant:
        values = {
            name: value
            for name, value in values.items()
            if name in _names(kind) and (value is not None or _fits(None, hints[name]))
        }
    found = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, dict):
            value = from_dict(typing.cast(type, hints[name]), value, f"{prefix}{name}.")
        found[name] = _tuples(value)
    return kind(**found)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _choices(hint: Any) -> tuple[Any, ...]:
    """Returns the values that a `Literal`, or an optional one, allows; () for other annotations."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = typing.get_args(hint) if is_union else (hint,)
    if not any(typing.get_origin(part) is typing.Literal for part in parts):
        return ()
    return tuple(value for part in parts for value in typing.get_args(part) or (None,))


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(_fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if hint is Any:
        return True
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or hint)


class Presets[Config: RunConfig]:
    """The presets of an experiment, used as its `get_config`: `get_config("quick")` returns a new config.

    Attributes:
        names: names of the presets.
    """

    def __init__(self, **builders: Callable[[], Config]):
        """Maps each preset's name to a function without arguments that builds the config."""
        self._builders = builders
        self.names = tuple(builders)

    def __call__(self, name: str | None = None) -> Config:
        """Returns a new config of the named preset.

        Raises:
            ValueError: if there is no preset of that name; the message lists the available ones.
        """
        if name not in self._builders:
            found = "no preset" if name is None else repr(name)
            raise ValueError(f"config: got {found}, expected one of {', '.join(map(repr, self.names))}")
        return self._builders[name]()
