"""Generates questions of the Mathematics Dataset in the layout of the published set.

    python -m experiments.mathematics.data --out=data/mathematics --train=1999998 --test=10000
    python -m experiments.mathematics.data --out=data/small --modules=numbers__gcd,numbers__lcm --train=30000
    python -m experiments.mathematics.data --out=data/mathematics --copy=tensorflow_datasets

The first command generates a set of the published size on all cores; this takes long, and resumes if it was
interrupted. The last command copies a prepared `math_dataset` of TensorFlow Datasets to text files, which are
faster to read. Train on a set with `--config.data.directory=DIR`.
"""

from collections.abc import Sequence

from absl import flags

from experiments import runtime
from tp_transformer import mathematics


def main() -> None:
    """Generates or copies the set given by the flags and prints its size."""
    values = flags.FLAGS
    if values.copy:
        made = mathematics.copy_to_text(mathematics.open_source(values.copy), values.out)
    else:
        drawn = chosen(values.modules, train=values.train, test=values.test, seed=values.seed)
        made = mathematics.generate(values.out, drawn, processes=values.processes, show=not values.quiet)
    print(summary(made))


def chosen(names: Sequence[str], *, train: int, test: int, seed: int) -> mathematics.Generator:
    """Builds a generator for the named modules (default: all); raises ValueError for an invalid argument."""
    counts = {"train": train, "test": test, "seed": seed}
    if not names:
        return mathematics.Generator(**counts)
    extrapolation = [name for name in names if name in mathematics.EXTRAPOLATION_MODULES]
    # Unknown names are kept so that the generator reports them.
    training = [name for name in names if name in mathematics.MODULES or name not in extrapolation]
    return mathematics.Generator(**counts, names=training, extrapolation=extrapolation)


def summary(made: mathematics.TextDirectory) -> str:
    """Formats the directory and, for each split, its numbers of questions and modules."""
    lines = [f"{made.directory}:"]
    for split in (mathematics.TRAIN, mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
        if modules := made.modules(split):
            questions = sum(len(made.questions(split, module)) for module in modules)
            lines.append(f"  {split}: {questions:,} questions from {len(modules)} modules")
    return "\n".join(lines)


if __name__ == "__main__":
    flags.DEFINE_string("out", None, "output directory", required=True)
    flags.DEFINE_list("modules", [], "comma-separated modules (default: all)")
    flags.DEFINE_integer("train", 30_000, "questions per module, over the three training splits")
    flags.DEFINE_integer("test", 1000, "questions per module in each test split")
    flags.DEFINE_integer("seed", 0, "seed for generating questions")
    flags.DEFINE_integer("processes", None, "number of worker processes (default: one per core)")
    flags.DEFINE_string("copy", None, "copy the questions of this directory instead of generating any")
    flags.DEFINE_bool("quiet", False, "hide the progress bar")
    runtime.run_program(main, reports=(ValueError, RuntimeError, OSError))
