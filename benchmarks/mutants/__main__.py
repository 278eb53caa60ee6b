"""Changes one thing at a time in the code and checks that the default tests of its area notice.

    python -m benchmarks.mutants [--seed=1] [--count=150] [--packages=kernels,folnet] [--jobs=2]
    python -m benchmarks.mutants --list                 # the mutants that would be tested, as diffs
    python -m benchmarks.mutants --only=6f413987e1      # one or several again, without a record

Mutants are drawn with a seed, in equal shares by package (`sites.draw`), and applied one at a time in copies
of the tracked files; the working tree is not touched. First the default tests of their areas (`areas`) must
pass as they are. A mutant is killed by the first test that fails, by an error of import or collection, or by
a time limit: a minute and four times the normal seconds of its tests. A finished mutant is a line of
`mutants.jsonl`; started again, the program skips those whose file and tests are unchanged.

`explained.toml` lists mutants that are equivalent, which no test can notice, and explains survivors. The
program refuses an entry without a reason or without a current mutant, and reports entries that tests kill.
"""

import concurrent.futures
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags

from benchmarks import launching, machine
from benchmarks.mutants import records, sites
from benchmarks.mutants.records import Lines
from benchmarks.mutants.session import Session
from benchmarks.mutants.sites import Mutant, Project
from logic_zoo.writing import write_whole

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ROOT / "build" / "mutants"
"""Programs that the tests compile, for the next start; ignored by git."""


def together(session: Session, jobs: int, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Applies a function to items in threads, and returns the results in order; an error ends all."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            session.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def run_all(
    session: Session, drawn: Sequence[Mutant], jobs: int, report: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Tests mutants; returns their lines, and those of the groups of tests without a mutant."""

    def one(mutant: Mutant) -> dict[str, Any]:
        line = session.test(mutant)
        report(line)
        return line

    groups = session.groups(drawn)
    normal = together(session, jobs, lambda group: session.normal(group, groups[group]), list(groups))
    return together(session, jobs, one, drawn), normal


def main() -> None:
    """Runs the program; the exit status is 1 if a survivor has no explanation, or an equivalent is killed."""
    values, project = flags.FLAGS, Project(ROOT)
    if unknown := [name for name in values.packages if name not in sites.PACKAGES]:
        raise app.UsageError(f"--packages: got {unknown[0]!r}, expected some of {', '.join(sites.PACKAGES)}")
    packages = values.packages or sites.PACKAGES
    found = {mutant.id: mutant for mutant in project.mutants(packages)}
    texts = {path: project.text(path) for path in {mutant.path for mutant in found.values()}}
    explained = records.explanations(Path(__file__).with_name("explained.toml"), project)
    if unknown := [name for name in values.only if name not in found]:
        raise app.UsageError(f"--only: got {unknown[0]!r}, expected ids of mutants, as printed by --list")
    drawn = [found[name] for name in values.only] or sites.draw(
        found.values(), texts, packages, values.count, values.seed
    )
    if values.list:
        for mutant in drawn:
            print(f"{mutant.id} {mutant.path}:{mutant.line} [{mutant.operator}]")
            print(f"{mutant.diff(texts[mutant.path])}\n")
        return
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    out = Path(values.out)
    lines = Lines(out / "mutants.jsonl")
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        session = Session(project, lines, Path(folder), COMPILED, jobs=values.jobs, packages=packages)
        done = 0

        def report(line: dict[str, Any]) -> None:
            nonlocal done
            done += 1
            if values.only:
                print(f"{line['diff']}\n{line['output']}")
            print(f"{done}/{len(drawn)} {records.summary(line, explained)}", flush=True)

        try:
            if values.only:
                together(session, values.jobs, lambda one: report(session.test(one, again=True)), drawn)
                return
            tested, normal = run_all(session, drawn, values.jobs, report)
        except KeyboardInterrupt:
            raise SystemExit("interrupted; the same command continues where this one ended") from None
    head = {
        "command": f"python -m benchmarks.mutants --seed={values.seed} --count={values.count}"
        + (f" --packages={','.join(values.packages)}" if values.packages else ""),
        "machine": machine.describe(),
        "commit": " and ".join(sorted({str(line["commit"]) for line in tested})),
        "seconds": sum(line["seconds"] for line in tested),
        "left_out": [
            path for path in project.contents if path.partition("/")[0] in packages and sites.skipped(path)
        ],
    }
    lines.keep([*normal, *tested])
    write_whole(out / "mutants.md", records.page(tested, normal, explained, head))
    print(f"{out / 'mutants.md'}")
    outcomes = [(line["id"], records.outcome(line, explained)) for line in tested]
    unexplained = [name for name, what in outcomes if what == "survived" and name not in explained]
    wrong = [name for name, what in outcomes if what in ("killed", "timeout") and name in explained]
    for name in unexplained:
        print(records.entry("survivor", found[name]))
    if unexplained or wrong:
        raise SystemExit(f"survivors without a reason: {unexplained}; with one, but killed: {wrong}")


if __name__ == "__main__":
    flags.DEFINE_integer("seed", 1, "seed of the draw")
    flags.DEFINE_integer("count", 150, "number of mutants", lower_bound=1)
    flags.DEFINE_list("packages", [], "packages to change; all by default")
    flags.DEFINE_integer("jobs", 2, "number of copies in which tests run at once", lower_bound=1)
    flags.DEFINE_list("only", [], "ids of mutants to test again, without a record")
    flags.DEFINE_boolean("list", False, "print the mutants that would be tested, and test none")
    flags.DEFINE_string("out", "results/reliability", "folder for mutants.jsonl and mutants.md")
    launching.run(main)
