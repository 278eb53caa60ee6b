"""Exports a trained model as one file that runs without this code, with JAX, NumPy and flatbuffers.

    python -m experiments.export --run=results/boxworld/quick_simplicial --to=agent.jaxmodel
    python -m experiments.exporting.run_exported agent.jaxmodel --describe

`--run` is a run's directory, a released folder, or a directory for `from_pretrained`. docs/how_to/export.md
describes the file and its use.
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
    """Builds the export options from the flags.

    Raises:
        ValueError: with the flag and what was expected.
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
    """Parses `--length`: empty for the model's default lengths, "any" (returns None), or numbers.

    Raises:
        ValueError: for any other value.
    """
    if given == ANY:
        return None
    parts = list(filter(None, given.split(",")))
    if not all(re.fullmatch(r"[1-9]\d*", part) for part in parts):
        raise ValueError(f"--length: got {given!r}, expected {ANY!r} or numbers such as 34,128")
    return tuple(map(int, parts))


def target_of(run: str, to: str) -> Path:
    """Returns the path of the artifact: `--to`, or a file named after the run in that directory."""
    path = Path(to)
    return path if path.suffix == SUFFIX else path / f"{Path(run).resolve().name}{SUFFIX}"


def main() -> None:
    """Exports the model given by the flags."""
    values = flags.FLAGS
    options = read_options(values)
    model = open_model(values.run, step=values.step, seed=values.seed, new_tokens=values.new_tokens)
    target = target_of(values.run, values.to)
    manifest = export_model(model, target, options)
    size = target.stat().st_size / 1e6
    print(f"{target}: {manifest['kind']}, {size:.2f} MB, for {', '.join(options.platforms)}")


if __name__ == "__main__":
    flags.DEFINE_string(
        "run",
        None,
        "a run's directory, a released folder, the name of a released model, or a directory for "
        "from_pretrained",
        required=True,
    )
    flags.DEFINE_string("to", None, f"the output file, *{SUFFIX}, or a directory for it", required=True)
    flags.DEFINE_integer("step", None, "step of the checkpoint (default: the last)", lower_bound=0)
    flags.DEFINE_integer("seed", 0, "index of the seed, for runs of several agents", lower_bound=0)
    flags.DEFINE_integer("new_tokens", NEW_TOKENS, "maximum number of tokens that a generating FOLNet writes")
    flags.DEFINE_list("platforms", list(PLATFORMS), "platforms that the file runs on")
    flags.DEFINE_list(
        "kernels", [PORTABLE], f"{PORTABLE}, or chips whose hand-written kernels to use: {', '.join(CHIPS)}"
    )
    flags.DEFINE_enum(
        "weights", WHERE[0], WHERE, "inside the file, in a file next to it, or constants of the program"
    )
    flags.DEFINE_bool("derivative", False, "include the derivative with respect to the weights")
    flags.DEFINE_string("sharding", "", "target devices, such as data:64,model:4 (default: one device)")
    flags.DEFINE_string(
        "length", "", f"lengths of texts or sequences: numbers, or {ANY} (default: the model's own)"
    )
    flags.DEFINE_integer("batch", None, "fixed batch size (default: any)", lower_bound=1)
    runtime.run_program(main, reports=(ValueError, OSError, runtime.CheckpointError))
