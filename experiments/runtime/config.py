"""What a run is: a typed dataclass with presets, checked before anything is computed or written."""

import dataclasses
import types
import typing
from collections.abc import Callable
from typing import Any, ClassVar

import jax

from experiments.runtime.mesh import Layout


def resumable(default: Any) -> Any:
    """Declares a config field, with an immutable default, that may change when a run is continued.

    Only for fields that do not alter the parameters reached at a given step. `steps` itself may only be
    raised. An experiment whose learning-rate schedule depends on `steps` declares the field again without
    this mark.
    """
    return dataclasses.field(default=default, metadata={"resumable": True})


@dataclasses.dataclass
class RunConfig:
    """The fields every experiment has; an experiment's own config inherits from it and adds its fields.

    A field is an int, float, bool, str, a tuple of those, an optional one of those, or a nested dataclass;
    each is set on the command line by its dotted name (`--config.model.width=128`).

    Attributes:
        experiment: the experiment's name, the same for all configs of a class; a run's `config.json` records
            it.
        seed: everything random in a run is derived from it and the step, so a continued run repeats itself.
        steps: number of updates.
        batch_size: examples in an update over all devices together, a multiple of their number.
        log_every: a line of metrics every so many steps. With batches drawn on the device these steps are one
            compiled call, so it is also the time a SIGTERM may have to wait.
        checkpoint_every: steps between checkpoints, a multiple of `log_every`.
        keep_checkpoints: how many of the last ones are kept; at least 2, so that a damaged one has a
            predecessor.
        eval_every: steps between evaluations, a multiple of `log_every`; 0 evaluates at the end only.
        max_seconds: stop after so many seconds of training (compilation, evaluation and saving do not count,
            earlier sessions of the same run do), at the end of a log interval; 0 is no limit. A run that
            stops this way depends on the machine's speed.
        session_seconds: stop, with everything saved, so many seconds after this process took up the run (all
            of it counts), at the end of a log interval; 0 is no limit. For time-limited machines: the same
            command goes on from there.
        tensorboard: also write TensorBoard events (needs the `tensorboard` extra).
    """

    experiment: ClassVar[str] = ""

    seed: int = 0
    steps: int = resumable(1000)
    batch_size: int = 64
    log_every: int = 100
    checkpoint_every: int = resumable(1000)
    keep_checkpoints: int = resumable(2)
    eval_every: int = 0
    max_seconds: float = resumable(0.0)
    session_seconds: float = resumable(0.0)
    tensorboard: bool = resumable(False)

    def validate(self) -> None:
        """Checks types and ranges; an experiment extends it with `super().validate()` first.

        Raises:
            ValueError: naming the field, its value and what it may be.
        """
        check_types(self)
        at_least("seed", self.seed, 0)
        for name in ("steps", "batch_size", "log_every"):
            at_least(name, getattr(self, name), 1)
        at_least("keep_checkpoints", self.keep_checkpoints, 2)
        at_least("max_seconds", self.max_seconds, 0)
        at_least("session_seconds", self.session_seconds, 0)
        at_least("eval_every", self.eval_every, 0)
        at_least("checkpoint_every", self.checkpoint_every, 1)
        for name in ("checkpoint_every", "eval_every"):
            if getattr(self, name) % self.log_every:
                raise ValueError(
                    f"{name}={getattr(self, name)} must be a multiple of log_every={self.log_every}: "
                    "the state is at hand between log intervals only"
                )

    def is_over(self, step: int, train_seconds: float) -> bool:
        """Whether a run has come to its end, of steps or of seconds; not whether a session has."""
        return step >= self.steps or 0 < self.max_seconds <= train_seconds

    def check_layout(self, layout: Layout) -> None:
        """Checks that a run of this config can lie on the devices so.

        Raises:
            ValueError: naming what does not fit and what was expected.
        """
        layout.check(self.batch_size, jax.device_count())


def at_least(name: str, value: float, least: float) -> None:
    """Raises a `ValueError` naming the field if `value` is below `least` or not a number."""
    if not value >= least:
        raise ValueError(f"{name}={value} must be at least {least}")


def one_of(name: str, value: Any, choices: typing.Iterable[Any]) -> None:
    """Raises a `ValueError` naming the field and all choices if `value` is not one of them."""
    choices = list(choices)
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, choices))}")


def check_types(config: Any, prefix: str = "") -> None:
    """Checks every field of a (nested) dataclass against its annotation; an int is taken where a float is.

    The command-line parser checks plain fields but not what is inside a tuple, and Python code is not checked
    at all. `prefix` goes before a field's name in a message.

    Raises:
        ValueError: naming the field, what it is declared as and what was found.
    """
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), hints[field.name]
        if choices := _choices(hint):
            one_of(f"{prefix}{field.name}", value, choices)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            check_types(value, f"{prefix}{field.name}.")
        elif not _fits(value, hint):
            declared = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else hint
            raise ValueError(f"{prefix}{field.name}={value!r} must be of type {declared}")


def from_dict[Config](cls: type[Config], values: typing.Mapping[str, Any], prefix: str = "") -> Config:
    """Returns a (nested) config dataclass of what JSON holds; fields that are absent get their defaults.

    Raises:
        ValueError: naming a field that does not exist, after `prefix`.
    """
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, cls))}
    if unknown := sorted(set(values) - set(fields)):
        raise ValueError(f"{cls.__name__} has no field {prefix}{unknown[0]}")
    hints = typing.get_type_hints(cls)
    found = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, dict):
            value = from_dict(typing.cast(type, hints[name]), value, f"{prefix}{name}.")
        found[name] = _tuples(value)
    return cls(**found)


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
    """The presets of an experiment, its config file's `get_config`: `get_config("quick")` is a new config.

    Attributes:
        names: of the presets.
    """

    def __init__(self, **builders: Callable[[], Config]):
        """Takes for each preset's name a function without arguments that builds the config."""
        self._builders = builders
        self.names = tuple(builders)

    def __call__(self, name: str | None = None) -> Config:
        """The config of a preset.

        Raises:
            ValueError: there is no preset of that name; it names those that exist.
        """
        if name not in self._builders:
            found = "no preset" if name is None else repr(name)
            raise ValueError(f"config: got {found}, expected one of {', '.join(self.names)}")
        return self._builders[name]()
