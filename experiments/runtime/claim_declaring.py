"""The rule that a declaration is fixed, and committed, before its first reported seed."""

import inspect
import subprocess
from pathlib import Path

from experiments.runtime import claims
from experiments.runtime.claim_records import DECLARATION, EXTENSION, REPORTED, Record, today
from experiments.runtime.claims import Comparison
from experiments.runtime.workdir import commit_of


def check(comparison: Comparison, record: Record, out: Path) -> None:
    """Checks that a comparison is that of its reported seeds, or has new ones while the old have their lines.

    Raises:
        ValueError: the declaration was edited after its first reported seed.
    """
    if record.declared is None:
        return
    found = comparison.differences(record.declarations[-1]["declaration"])
    again = record.reported_seeds() & set(comparison.seeds)
    if found and again:
        raise ValueError(
            f"{comparison.name}: the declaration was edited after its first reported seed; restore it, or "
            f"declare seeds other than {sorted(again)}: " + "; ".join(found)
        )
    reported = any(line["kind"] == REPORTED for line in record.lines[record.lines.index(record.declared) :])
    commit = record.declared["commit"]
    if found and reported and commit not in {line["fixed_beforehand"] for line in claims.read(out)}:
        raise ValueError(
            f"{comparison.name}: the attempt declared in commit {commit} has reported seeds and no lines; "
            "restore that declaration, and write them with --give_up"
        )


def declare(comparison: Comparison, record: Record) -> None:
    """Records the declaration, unless it is recorded already.

    Raises:
        ValueError: the code that declares it is not committed.
    """
    kind = DECLARATION
    if record.declarations:
        last = record.declarations[-1]["declaration"]
        if not comparison.differences(last):
            if not comparison.grows(last):
                return
            kind = EXTENSION
    folder = Path(inspect.getfile(comparison.measure)).parent
    commit = commit_of(folder)
    if commit is not None and (commit.endswith("-dirty") or untracked(folder)):
        raise ValueError(
            f"{comparison.name}: got uncommitted changes or new Python files in the checkout of {folder}, "
            "expected none before the first reported seed"
        )
    declaration = comparison.declaration()
    record.add({"kind": kind, "commit": commit, "date": today(), "declaration": declaration})


def untracked(folder: Path) -> list[str]:
    """Returns the Python files of a folder's checkout that git neither tracks nor ignores; [] without git."""
    command = ["git", "-C", str(folder), "ls-files", "--others", "--exclude-standard", "--", ":/*.py"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()
