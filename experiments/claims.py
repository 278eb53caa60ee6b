"""Runs what the claims in `results/` rest on, and writes the tables of the pages from their lines.

    python -m experiments.claims                                 # all comparisons, and their progress
    python -m experiments.claims --only=llrnn.copy               # search, reported seeds, lines of the claims
    python -m experiments.claims --only=llrnn.copy --seeds=0,1 --seconds=600
    python -m experiments.claims --only=llrnn.copy --step_times=500     # before declaring equal time
    python -m experiments.claims --only=llrnn.copy --give_up            # before another design is declared
    python -m experiments.claims --only=llrnn --again=10             # ten of the reported runs, at random
    python -m experiments.claims --tables                        # README, docs and results from claims.jsonl

Comparisons are declared in `experiments/NAME/claims.py`. Interrupted at any moment, the same command
continues: finished runs are recorded in `claims/NAME.jsonl` in the folder of results, unfinished ones
continue from their checkpoints in `--workdir`. Compiled programs are kept there, too, unless
JAX_COMPILATION_CACHE_DIR names another folder: runs that differ in their seed alone share them. When all
reported seeds are done, the lines of the claims are written to `claims.jsonl`.
"""

import random
import time
from collections.abc import Mapping
from pathlib import Path

import jax
from absl import flags

from experiments import registry, runtime
from experiments.runtime import claim_publishing, claim_records, claim_tables, claiming, claims


def comparisons() -> dict[str, tuple[claims.Comparison, runtime.Experiment]]:
    """Returns all declared comparisons by name, each with the experiment whose room declares it."""
    return {
        comparison.name: (comparison, experiment)
        for experiment in registry.EXPERIMENTS.values()
        for comparison in experiment.claims
    }


def chosen[T](only: list[str], declared: Mapping[str, tuple[claims.Comparison, T]]) -> list[str]:
    """Returns the comparisons that have a name, a claim of that id, or names that begin with it and a dot.

    Raises:
        ValueError: something else is named.
    """
    found = []
    for name in only:
        exact = [
            key
            for key, (comparison, _) in declared.items()
            if name == key or name in {claim.id for claim in comparison.claims}
        ]
        matches = exact or [key for key in declared if key.startswith(f"{name}.")]
        if not matches:
            raise ValueError(
                f"--only: got {name!r}, expected some of {', '.join(declared)} or ids of their claims"
            )
        found += [key for key in matches if key not in found]
    return found


def write_tables(root: Path, out: Path) -> list[Path]:
    """Writes the tables of the pages under a folder anew; returns the pages that changed.

    Raises:
        ValueError: no page under the folder has a table, or a table is invalid.
    """
    pages = claim_tables.pages(root)
    if not pages:
        raise ValueError(f"--pages: got {str(root)!r}, expected a checkout, whose pages have tables")
    lines, changed = claims.read(out), []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        try:
            new = claim_tables.filled(text, lines)
        except ValueError as error:
            raise ValueError(f"{page}: {error}") from error
        if new != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed


def repeat(
    names: list[str],
    declared: Mapping[str, tuple[claims.Comparison, runtime.Experiment]],
    count: int,
    *,
    out: Path,
    workdir: Path,
    data: Path | None,
) -> None:
    """Trains some reported runs again, drawn at random from all that were made on a machine like this one.

    Shows what came out.

    Raises:
        ValueError: fewer runs are done than asked for.
    """
    done = [(name, piece) for name in names for piece in claiming.finished(declared[name][0], out)]
    if count > len(done):
        raise ValueError(
            f"--again: got {count}, expected at most {len(done)}, the reported runs so far that were made "
            "with these devices, cores and versions"
        )
    for name, piece in random.SystemRandom().sample(done, count):
        same = claiming.again(*declared[name], piece, out=out, workdir=workdir, data=data)
        print(f"{name}, {piece.model.name}, seed {piece.seed}: {'the same' if same else 'OTHER'} bits")


def _refuse(expected: str, *names: str) -> None:
    """Raises ValueError for a flag that would have no effect."""
    for name in names:
        if value := getattr(flags.FLAGS, name):
            raise ValueError(f"--{name}: got {value}, expected {expected} with it")


def main() -> None:
    """Runs the comparisons, writes the tables or shows the progress, as the flags say."""
    values = flags.FLAGS
    out, declared = Path(values.out), comparisons()
    if values.tables:
        for page in write_tables(Path(values.pages), out):
            print(f"wrote {page}")
        return
    if not values.only and not values.all:
        _refuse("--only or --all", "seeds", "data", "seconds", "step_times", "again", "give_up")
        for comparison, _ in declared.values():
            print(claiming.progress_table(comparison, claim_records.Record(out, comparison.name)), end="\n\n")
        return
    names = [name for name, (comparison, _) in declared.items() if comparison.with_data is None]
    if values.only:
        names = chosen(values.only, declared)
    if len(names) > 1 and (values.seeds or values.data or values.give_up):
        raise ValueError(
            f"--only: got {', '.join(names)}, expected one comparison with --seeds, --data or --give_up"
        )
    try:
        seeds = [int(seed) for seed in values.seeds]
    except ValueError:
        raise ValueError(f"--seeds: got {','.join(values.seeds)}, expected whole numbers") from None
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(Path(values.workdir) / "compiled"))
    end = time.monotonic() + values.seconds
    data = Path(values.data) if values.data else None
    if values.again:
        _refuse("no --again", "seeds", "seconds", "step_times", "give_up")
        repeat(names, declared, values.again, out=out, workdir=Path(values.workdir), data=data)
        return
    for name in names:
        comparison, experiment = declared[name]
        if values.step_times:
            comparison.check()
            for model, seconds in claiming.step_times(
                comparison, experiment, steps=values.step_times, data=data
            ).items():
                print(f"{name}, {model}: step_seconds={seconds:.3g}")
            continue
        command = f"python -m experiments.claims --only={name}" + (" --data=DIR" if values.data else "")
        try:
            lines = (
                claim_publishing.give_up(comparison, out=out, command=command)
                if values.give_up
                else claiming.run(
                    comparison,
                    experiment,
                    out=out,
                    workdir=Path(values.workdir),
                    seeds=seeds,
                    data=data,
                    seconds=max(end - time.monotonic(), 1e-3) if values.seconds else 0.0,
                    command=command,
                )
            )
        except claiming.Interrupted as reason:
            print(reason)
            return
        for line in lines:
            print(f"{line['id']}: {claim_tables.COLUMNS['holds'][1](line)}")


if __name__ == "__main__":
    flags.DEFINE_list(
        "only", [], "comparisons, or ids of their claims; a first part such as llrnn means all of those"
    )
    flags.DEFINE_bool("all", False, "all comparisons that need no data from outside")
    flags.DEFINE_list("seeds", [], "reported seeds to run now; all by default")
    flags.DEFINE_string("data", None, "the folder of the comparison's data")
    flags.DEFINE_float("seconds", 0.0, "end this session in time, with everything saved; 0 for no limit", 0.0)
    flags.DEFINE_integer("step_times", 0, "only measure seconds per step, in runs of so many steps", 0)
    flags.DEFINE_integer(
        "again", 0, "only train so many of the reported runs that are done again, and compare their bits", 0
    )
    flags.DEFINE_bool(
        "give_up", False, "end an attempt with the seeds that are done: its claims are written as not holding"
    )
    flags.DEFINE_bool("tables", False, "only write the tables of the pages")
    flags.DEFINE_string("pages", ".", "the folder that holds README.md, docs and results, for --tables")
    flags.DEFINE_string("workdir", "runs/claims", "the directory of the runs")
    flags.DEFINE_string("out", "results", "the folder of claims.jsonl and of the records")
    runtime.run_program(main, reports=(ValueError,))
