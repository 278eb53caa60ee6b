"""Makes a set of questions of the Mathematics Dataset, in the layout of the published one.

    python -m experiments.mathematics.data --out=data/mathematics --train=1999998 --test=10000
    python -m experiments.mathematics.data --out=data/small --modules=numbers__gcd,numbers__lcm --train=30000
    python -m experiments.mathematics.data --out=data/mathematics --copy=tensorflow_datasets

The first is a set of the published size, drawn by all cores in parallel; that takes long, and continues where
it was interrupted. The last copies a prepared `math_dataset` of TensorFlow Datasets to text files, which are
faster to read. Train on a set with `--config.data.directory=DIR`.
"""

from collections.abc import Sequence

from absl import flags

from experiments import runtime
from tp_transformer import mathematics


def main() -> None:
    """Makes the set that the flags describe, and prints its size."""
    values = flags.FLAGS
    if values.copy:
        made = mathematics.copy_to_text(mathematics.open_source(values.copy), values.out)
    else:
        drawn = chosen(values.modules, train=values.train, test=values.test, seed=values.seed)
        made = mathematics.generate(values.out, drawn, processes=values.processes, show=not values.quiet)
    print(summary(made))


def chosen(names: Sequence[str], *, train: int, test: int, seed: int) -> mathematics.Generator:
    """What to draw: the modules of both kinds that are named, else all; ValueError for what does not fit."""
    counts = {"train": train, "test": test, "seed": seed}
    if not names:
        return mathematics.Generator(**counts)
    extrapolation = [name for name in names if name in mathematics.EXTRAPOLATION_MODULES]
    # An unknown name is left for the generator to report.
    training = [name for name in names if name in mathematics.MODULES or name not in extrapolation]
    return mathematics.Generator(**counts, names=training, extrapolation=extrapolation)


def summary(made: mathematics.TextDirectory) -> str:
    """The directory, then for each split how many modules and questions it has."""
    lines = [f"{made.directory}:"]
    for split in (mathematics.TRAIN, mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
        if modules := made.modules(split):
            questions = sum(len(made.questions(split, module)) for module in modules)
            lines.append(f"  {split}: {questions:,} questions of {len(modules)} modules")
    return "\n".join(lines)


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "directory of the set", required=True)
    flags.DEFINE_list("modules", [], "which modules, with commas between; all by default")
    flags.DEFINE_integer("train", 30_000, "questions of a module in the three training splits together")
    flags.DEFINE_integer("test", 1000, "questions of a module in each test split")
    flags.DEFINE_integer("seed", 0, "of the drawing")
    flags.DEFINE_integer("processes", None, "how many draw; all cores by default")
    flags.DEFINE_string("copy", None, "draw none: copy the questions of this directory")
    flags.DEFINE_bool("quiet", False, "show no progress")
    runtime.run_program(main, reports=(ValueError, RuntimeError, OSError))
