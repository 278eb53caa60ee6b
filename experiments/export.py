"""A trained model as one file that runs where none of this code is: with JAX, NumPy and flatbuffers.

    python -m experiments.export --run=results/boxworld/quick_simplicial --to=agent.jaxmodel
    python -m experiments.exporting.run_exported agent.jaxmodel --describe

`--run` is a run's directory, a released folder, or a directory for `from_pretrained`. docs/export.md says
what is in the file and how it is used.
"""

import re
from pathlib import Path

from absl import flags

from experiments import runtime
from experiments.exporting import Options, export_model
from experiments.exporting.artifact import SUFFIX
from experiments.exporting.options import CHIPS, PLATFORMS, PORTABLE, WHERE
from experiments.exporting.pretrained import NEW_TOKENS
from experiments.registry import open_model
from experiments.runtime.mesh import Layout

ANY = "any"


def read_options(values) -> Options:
    """The options of the command line.

    Raises:
        ValueError: naming the flag and what was expected.
    """
    kernels, platforms = tuple(values.kernels), tuple(values.platforms)
    if kernels != (PORTABLE,) and not values["platforms"].present:
        chips = [CHIPS[name] for name in kernels if name in CHIPS]
        platforms = tuple(dict.fromkeys(chip.platform for chip in chips)) or platforms
    sharding = {}
    if values.sharding:
        layout = Layout.parse("jit", values.sharding)
        sharding = {"data": layout.data or 1, "model": layout.model}
    return Options(
        platforms=platforms,
        kernels=kernels,
        weights=values.weights,
        derivative=values.derivative,
        sharding=sharding,
        lengths=read_lengths(values.length),
        batch=values.batch,
    )


def read_lengths(given: str) -> tuple[int, ...] | None:
    """`--length`: nothing for the model's own, "any", or numbers.

    Raises:
        ValueError: something else.
    """
    if given == ANY:
        return None
    parts = list(filter(None, given.split(",")))
    if wrong := [part for part in parts if not re.fullmatch(r"[1-9]\d*", part)]:
        raise ValueError(f"length={given} must be {ANY}, or numbers like 34,128; {wrong[0]!r} is not")
    return tuple(map(int, parts))


def target_of(run: str, to: str) -> Path:
    """The file: `--to`, or in that directory one named after the run."""
    path = Path(to)
    return path if path.suffix == SUFFIX else path / f"{Path(run).resolve().name}{SUFFIX}"


def main() -> None:
    """Exports the model that the flags name."""
    values = flags.FLAGS
    options = read_options(values)
    model = open_model(values.run, step=values.step, seed=values.seed, new_tokens=values.new_tokens)
    target = target_of(values.run, values.to)
    manifest = export_model(model, target, options)
    size = target.stat().st_size / 1e6
    print(f"{target}: {manifest['kind']}, {size:.2f} MB, for {', '.join(options.platforms)}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "run", None, "a run's directory, a released folder or one for from_pretrained", required=True
    )
    flags.DEFINE_string("to", None, f"the file, *{SUFFIX}, or a directory for it", required=True)
    flags.DEFINE_integer("step", None, "which checkpoint of a run; the last by default", lower_bound=0)
    flags.DEFINE_integer("seed", 0, "which of a run's seeds, from 0; of agents", lower_bound=0)
    flags.DEFINE_integer("new_tokens", NEW_TOKENS, "that a FOLNet which writes texts writes at most")
    flags.DEFINE_list("platforms", list(PLATFORMS), "what it runs on")
    flags.DEFINE_list(
        "kernels", [PORTABLE], f"{PORTABLE}, or chips whose own kernels are used: {', '.join(CHIPS)}"
    )
    flags.DEFINE_enum("weights", WHERE[0], WHERE, "inside the file, beside it, or constants of the program")
    flags.DEFINE_bool("derivative", False, "whether it can be differentiated")
    flags.DEFINE_string("sharding", "", "devices it is for, as data:64,model:4; one if nothing is said")
    flags.DEFINE_string(
        "length", "", f"of texts and sequences: numbers, or {ANY}; the model's own by default"
    )
    flags.DEFINE_integer("batch", None, "a fixed one; any by default", lower_bound=1)
    runtime.run_program(main, reports=(ValueError, OSError, runtime.CheckpointError))
