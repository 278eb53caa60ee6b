"""The command line of experiments: flags, errors reported in one line, and the run's directory."""

import ast
import contextlib
import dataclasses
import difflib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import jax
from absl import app, flags, logging

import logic_zoo
from experiments.runtime import chunks, memory, mesh, processes
from experiments.runtime.checkpoints import CheckpointError
from experiments.runtime.config import LOGS, RunConfig, Variant
from experiments.runtime.experiment import Experiment
from experiments.runtime.looping import NonFiniteLoss, Preempted
from experiments.runtime.workdir import WorkdirError, config_lines

with logic_zoo.extra("experiments"):
    from ml_collections import config_flags
    from ml_collections.config_flags import config_flags as config_file_parser
    from ml_collections.config_flags import tuple_parser

flags.disclaim_key_flags()  # --help lists the flags under the experiment, not under this module
# ml_collections knows no Literal; `RunConfig.validate` checks the value.
config_flags.register_flag_parser_for_type(Literal, flags.ArgumentParser())


class _SeveralParser(tuple_parser.TupleParser):
    """Reads several values: a,b without quotes, too, where ml_collections would take one value "a,b"."""

    def parse(self, argument: Any) -> tuple[Any, ...]:
        if isinstance(argument, str) and not re.search(r"[\[({'\"]", argument):
            with contextlib.suppress(ValueError, SyntaxError):
                return super().parse(ast.literal_eval(argument))
            return tuple(part.strip() for part in argument.split(",") if part.strip())
        return super().parse(argument)


config_flags.register_flag_parser_for_type(tuple, _SeveralParser())


class _ConfigParser(config_file_parser.ConfigFileFlagParser):
    """Reads a config and replaces the variants of its parts by those that a command line names."""

    def __init__(self, argv: Sequence[str]):
        super().__init__("config")
        self._argv = argv

    def parse(self, path: str) -> Any:
        config, named = super().parse(path), {}
        for argument, following in zip(self._argv, [*self._argv[1:], ""], strict=True):
            if match := re.fullmatch(r"--?config\.(\w+)\.name(?:=(.*))?", argument):
                named[match[1]] = following if match[2] is None else match[2]
        for field, name in named.items():
            if isinstance(part := getattr(config, field, None), Variant):
                try:
                    setattr(config, field, part.as_variant(name))
                except ValueError as error:
                    raise flags.Error(f"{field}.{error}") from error
        return config


def launch(experiment: Experiment, *, argv: Sequence[str] | None = None) -> NoReturn:
    """Runs an experiment from the command line, then exits.

    Defines `--config` (with `--config.field=value` for each of its fields), `--workdir`, `--parallel`,
    `--mesh`, `--fsdp` and `--keep_blocks`, and for several processes `--distributed`,
    `--coordinator_address`, `--num_processes` and `--process_id` (see `processes.connect`). `--config` is a
    preset's name, `quick` or `NAME:quick`, or a user's own `FILE.py:PRESET`, whose `get_config(PRESET)`
    returns a config. The experiment's shorthands stand for fields, and --log=NAME,NAME for `log`. Invalid
    flags and a workdir that belongs to another run are reported in one line, with exit status 2, before
    anything is computed or written. A run that stops because its loss is not finite exits with status 1; one
    stopped by SIGTERM exits with 143. Both print the checkpoint from which the run can continue.

    Args:
        experiment: the experiment to run.
        argv: the command line; `sys.argv` by default.
    """
    config, values = config_file(experiment, experiment.default), flags.FLAGS
    argv = list(sys.argv if argv is None else argv)
    with _reported_in_one_line(argv, config):  # this reads the default config already
        argv = values.read_flags_from_files(argv, force_gnu=False)  # of --flagfile
        argv = _with_files(experiment, _without_shorthands(experiment, argv))
        config_flags.DEFINE_config_file(
            "config",
            config,
            "a preset, or FILE.py:PRESET; set fields with --config.field=value",
            sys_argv=argv,
        )
        values["config"].parser = _ConfigParser(argv)  # nothing is parsed yet, since argv has a --config
    flags.DEFINE_string("workdir", None, "directory of the run (default: runs/NAME-PRESET)")
    flags.DEFINE_enum(
        "parallel",
        mesh.AUTO,
        (mesh.AUTO, *mesh.PARALLEL),
        "how a step runs on several devices; auto: jit, but shard_map over a device per core for experiments "
        "that are faster so on CPUs",
    )
    flags.DEFINE_string(
        "mesh", "", "devices along each axis, such as data:4,model:2 (default: all along data)"
    )
    flags.DEFINE_bool("fsdp", False, "split parameters and moments along data instead of replicating them")
    flags.DEFINE_integer(
        "keep_blocks",
        memory.DEFAULT,
        "on CPUs, keep freed blocks of memory of up to so many MiB between calls; 0: keep none",
        lower_bound=0,
        upper_bound=memory.MOST,
    )
    flags.DEFINE_enum(
        "distributed", "auto", processes.DISTRIBUTED, "whether to connect with other processes of the run"
    )
    flags.DEFINE_string("coordinator_address", None, "HOST:PORT of process 0")
    flags.DEFINE_integer("num_processes", None, "number of processes of the run")
    flags.DEFINE_integer("process_id", None, "index of this process, from 0")

    def parse(argv: list[str]) -> list[str]:
        with _reported_in_one_line(argv, config):
            rest = values(argv)
            if len(rest) > 1:
                raise flags.Error(f"arguments: got {rest[1]!r}, expected flags only")
            processes.connect(
                values.distributed, values.coordinator_address, values.num_processes, values.process_id
            )
            split = _split_cores(values.config, _workdir(experiment))
            memory.keep_large_blocks(values.keep_blocks)
            if values.parallel == mesh.AUTO:
                values.parallel = "shard_map" if split and jax.default_backend() == "cpu" else "jit"
            values.config.validate()
        if values["verbosity"].using_default_value:
            logging.set_verbosity(logging.WARNING)  # JAX and Orbax are verbose at INFO
        return rest

    def run(_: Sequence[str]) -> None:
        chosen = values.config
        try:
            parallel = mesh.Layout.parse(values.parallel, values.mesh, values.fsdp)
            chosen.check_layout(parallel)
        except ValueError as error:
            _fail(str(error))
        workdir = _workdir(experiment)
        try:
            lines = [f"workdir={workdir}", f"parallel={parallel}", *config_lines(chosen)]
            processes.check_alike(lines, WorkdirError)
            experiment.main(chosen, workdir=workdir, parallel=parallel)
        except (WorkdirError, CheckpointError, NonFiniteLoss, Preempted) as error:
            statuses: dict[type, int] = {NonFiniteLoss: 1, Preempted: 143}  # 128 + SIGTERM, as in a shell
            _fail(str(error), statuses.get(type(error), 2))
        except Exception:
            if jax.process_count() == 1:
                raise
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # a normal exit would wait for the other processes, which wait for this one

    app.run(run, argv=argv, flags_parser=parse)


def run_program(
    main: Callable[..., Any], *, takes: tuple[str, ...] = (), reports: tuple[type[Exception], ...] = ()
) -> NoReturn:
    """Runs a program that has flags but no config, then exits; for use under `if __name__ == "__main__"`.

    On CPUs, large blocks of memory are kept between calls, as in `launch` without its flag.

    Args:
        main: the program, which reads `flags.FLAGS`.
        takes: what the arguments are that the command line must have besides flags; `main` is called with
            them.
        reports: exceptions to report in one line, with exit status 2, like `app.UsageError`.
    """

    def run(arguments: Sequence[str]) -> None:
        given = arguments[1:]
        if len(given) != len(takes):
            expected = f"{', '.join(takes)} and flags" if takes else "flags only"
            _fail(f"arguments: got {' '.join(given) or 'none'}, expected {expected}")
        memory.keep_large_blocks()
        try:
            main(*given)
        except (app.UsageError, *reports) as error:
            _fail(str(error))

    logging.set_verbosity(logging.WARNING)  # JAX and Orbax are verbose at INFO
    app.run(run)


def _fail(message: str, status: int = 2) -> NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    sys.exit(status)


@contextlib.contextmanager
def _reported_in_one_line(argv: Sequence[str], config: str) -> Generator[None]:
    """Exits with a one-line message instead of a traceback if the flags are invalid."""
    try:
        yield
    except KeyError as error:  # config_flags raises it for a name that is not a field
        _fail(_unknown_field(argv, config) or str(error))
    except (flags.Error, ValueError, TypeError, OSError) as error:
        _fail(_one_line(str(error)))


def _one_line(message: str) -> str:
    """Extracts the cause of an error; config_flags includes a traceback in errors of config files."""
    if causes := re.findall(r"^\s*(?:ValueError|TypeError): (.*)$", message, flags=re.MULTILINE):
        return causes[-1]
    missing = re.search(r"Attempted .*:\n\s*(.*)\n", message)
    if missing:
        return f"--config: got {missing.group(1)}, expected an existing file"
    return message


def config_file(experiment: Experiment, value: str) -> str:
    """Returns a value of `--config` in the form FILE.py:PRESET, which config_flags reads.

    Raises:
        ValueError: if the value names another experiment.
    """
    file, _, preset = value.rpartition(":")
    if (file or preset).endswith(".py"):
        return value
    if file not in ("", experiment.name):
        raise ValueError(
            f"--config: got {value!r}, expected a preset, {experiment.name}:PRESET or FILE.py:PRESET"
        )
    return f"{inspect.getfile(experiment.config)}:{preset}"


def _without_shorthands(experiment: Experiment, argv: Sequence[str]) -> list[str]:
    """Replaces the experiment's shorthands and --log by fields.

    The former's preset is named unless another is.
    """
    found, used = [], False
    for argument in argv:
        flag, separator, value = argument.partition("=")
        if flag in ("-log", "--log"):
            if not value.strip(" ,"):
                raise flags.Error(f"{flag}: got no value, expected {flag}=NAME,NAME of {', '.join(LOGS)}")
            found.append(f"--config.log={value}")
            continue
        field = experiment.shorthands.get(flag.lstrip("-")) if flag.startswith("-") else None
        if field is not None and not separator:
            raise flags.Error(f"{flag}: got no value, expected {flag}=VALUE")
        used |= field is not None
        found.append(f"--config.{field}={value}" if field else argument)
    if used and not _names_a_config(argv):
        found.insert(1, f"--config={experiment.shorthands_preset}")
    return found


def _names_a_config(argv: Sequence[str]) -> bool:
    return any(re.match(r"--?config(=|$)", argument) for argument in argv)


def _with_files(experiment: Experiment, argv: Sequence[str]) -> list[str]:
    """Replaces a preset's name in `--config` by FILE.py:PRESET; names the default one if none is."""
    found = list(argv)
    if not _names_a_config(argv):
        found.insert(1, f"--config={config_file(experiment, experiment.default)}")
    for index, argument in enumerate(argv):
        if match := re.fullmatch(r"(--?config=)(.*)", argument):
            found[index] = match.group(1) + config_file(experiment, match.group(2))
        elif argument in ("-config", "--config") and index + 1 < len(argv):
            found[index + 1] = config_file(experiment, argv[index + 1])
    return found


def _unknown_field(argv: Sequence[str], config: str) -> str | None:
    """Returns a message with the misspelt field of `--config.field` and the existing ones, or None."""
    for argument in argv:
        if match := re.match(r"--?config=(.*)", argument):
            config = match.group(1)
    tree = _ConfigParser(argv).parse(config)
    for argument in argv:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        holder, path = tree, match.group(1).split(".") if match else []
        for depth, name in enumerate(path):
            if not hasattr(holder, name):
                field = f"--config.{'.'.join(path[: depth + 1])}: no such field"
                if not dataclasses.is_dataclass(holder):
                    return f"{field}: {'.'.join(path[:depth])} is a plain value"
                names = [field.name for field in dataclasses.fields(holder)]
                near = difflib.get_close_matches(name, names, 1)
                guess = f" (did you mean {near[0]}?)" if near else ""
                return f"{field}{guess}, expected one of {', '.join(names)}"
            holder = getattr(holder, name)
    return None


def _split_cores(config: RunConfig, workdir: Path) -> bool:
    """Makes devices of the cores, as many as the experiment wants, unless flags set how a step runs."""
    values = flags.FLAGS
    if values.parallel != mesh.AUTO or values.mesh or values.fsdp:
        return False
    parts = config.accumulate or chunks.begun(workdir) or 1
    return mesh.split_cores(config.cpu_devices(mesh.usable_cores(), parts))


def _workdir(experiment: Experiment) -> Path:
    values = flags.FLAGS
    if values.workdir:
        return Path(values.workdir)
    file, _, preset = config_flags.get_config_filename(values["config"]).rpartition(":")
    name = experiment.name if file == inspect.getfile(experiment.config) else Path(file or preset).stem
    return Path("runs", f"{name}-{preset}" if file else name)
