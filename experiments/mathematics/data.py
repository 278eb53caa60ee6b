"""Makes a set of questions of the Mathematics Dataset, in the layout of the published one.

    python -m experiments.mathematics.data --out=data/mathematics --train=1999998 --test=10000
    python -m experiments.mathematics.data --out=data/small --modules=numbers__gcd,numbers__lcm --train=30000
    python -m experiments.mathematics.data --out=data/mathematics --copy=tensorflow_datasets

The first is a set of the published size, drawn by all cores in parallel; it takes long, can be interrupted
and goes on where it was. The last copies a prepared `math_dataset` of TensorFlow Datasets to text files,
which are faster to read. Train on it with `--config.data.directory=DIR`.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from tp_transformer import mathematics


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    try:
        if values.copy:
            made = mathematics.copy_to_text(mathematics.open_source(values.copy), values.out)
        else:
            made = mathematics.generate(
                values.out,
                chosen(values.modules, train=values.train, test=values.test, seed=values.seed),
                processes=values.processes,
                show=not values.quiet,
            )
    except (ValueError, RuntimeError, OSError) as error:
        raise app.UsageError(str(error)) from error
    print(summary(made))


def chosen(names: Sequence[str], *, train: int, test: int, seed: int) -> mathematics.Generator:
    """What to draw.

    Args:
        names: modules of training or of extrapolation, in any order; none: all of both.
        train: questions of a module in the three training splits together.
        test: questions of a module in each test split.
        seed: of the drawing.

    Raises:
        ValueError: a name that does not exist (with the nearest), or a number that does not fit.
    """
    if not names:
        return mathematics.Generator(train=train, test=test, seed=seed)
    known = {*mathematics.MODULES, *mathematics.EXTRAPOLATION_MODULES}
    for name in names:
        if name not in known:
            mathematics.check_modules(mathematics.INTERPOLATE, [name])  # says which are near
    return mathematics.Generator(
        train=train,
        test=test,
        names=[name for name in names if name in mathematics.MODULES],
        extrapolation=[name for name in names if name in mathematics.EXTRAPOLATION_MODULES],
        seed=seed,
    )


def summary(made: mathematics.TextDirectory) -> str:
    """A line a split: how many modules and questions."""
    lines = [f"{Path(made.directory)}:"]
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
    app.run(main)
