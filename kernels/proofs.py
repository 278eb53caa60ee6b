"""What was proven on this machine: which hand-written kernels are right and fast here, for which calls.

`kernels.prove` writes it and the choice of an implementation reads it. It is a file in the user's cache, one
for each kind of chip, version of jaxlib and version of this package's source:
`$XDG_CACHE_HOME/logic_zoo/kernels-*.jsonl`. A line is appended when a proof begins and when it ends, in one
write each, so that several processes can share the file. A proof that began and never ended belongs to a
kernel that took its process down, or is still running: either way the kernel is not used.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from kernels import tables

State = Literal["began", "passed", "failed", "interrupted"]


@dataclasses.dataclass(frozen=True)
class Proof:
    """The outcome for one call and one kernel.

    Attributes:
        operation: the operation's name.
        kind: dtype, masks and settings, as `Operation.describe` gives them.
        sizes: the sizes of the call; a proof holds for these only.
        backend: the kernel, "gpu" or "tpu".
        state: "began", "passed" (values and gradients are right) or "failed"; "interrupted" takes back that
            it began.
        speedup: times as fast as `xla`, forward and with gradients: the least ratio of neighbouring blocks.
        errors: relative errors of output and gradients, each next to the one of `xla`.
        reason: of a failure.
    """

    operation: str
    kind: Mapping[str, Any]
    sizes: Mapping[str, int]
    backend: str
    state: State
    speedup: Mapping[str, float] = dataclasses.field(default_factory=dict)
    errors: tuple[tuple[float, float], ...] = ()
    reason: str = ""

    @property
    def use(self) -> bool:
        """Whether the kernel is to be used: it is right, and faster forward and with gradients."""
        return self.state == "passed" and min(self.speedup.values(), default=0) > 1


@functools.cache
def source() -> str:
    """Returns a hash of this package's files: a proof holds for the code that was proven."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def path(chip: str) -> Path:
    """Returns the file for a kind of chip, this jaxlib and this source."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    key = "\n".join((chip, importlib.metadata.version("jaxlib"), source()))
    return Path(cache) / "logic_zoo" / f"kernels-{hashlib.sha256(key.encode()).hexdigest()[:16]}.jsonl"


def append(chip: str, proof: Proof) -> None:
    """Adds a line to the file of a chip, in a single write."""
    file = path(chip)
    file.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"chip": chip, **dataclasses.asdict(proof)}) + "\n"
    with file.open("ab+", buffering=0) as handle:
        if handle.tell():
            handle.seek(-1, os.SEEK_END)
            if handle.read(1) != b"\n":  # half a line, of a disk that was full
                line = "\n" + line
        handle.write(line.encode())


def find(
    chip: str, operation: str, kind: Mapping[str, Any], sizes: tables.Sizes, backend: str
) -> Proof | None:
    """Returns what is known about a kernel for a call on a chip, None if nothing is."""
    return _read(chip).get(_key(operation, kind, sizes, backend))


def any_for(operation: str, chip: str) -> bool:
    """Returns whether a kernel of an operation is to be used for some call on a chip."""
    return any(proof.use for proof in _read(chip).values() if proof.operation == operation)


def _key(operation: str, kind: Mapping[str, Any], sizes: tables.Sizes, backend: str) -> str:
    return json.dumps([operation, dict(kind), dict(sizes), backend], sort_keys=True, default=str)


def _read(chip: str) -> dict[str, Proof]:
    file = path(chip)
    try:
        stamp = file.stat()
    except OSError:  # there is none, or it cannot be read: nothing is proven
        return {}
    return _lines(file, (stamp.st_mtime_ns, stamp.st_size))


@functools.lru_cache(maxsize=8)
def _lines(file: Path, stamp: tuple[int, int]) -> dict[str, Proof]:
    del stamp  # the file's version, for the cache
    found: dict[str, Proof] = {}
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    names = {field.name for field in dataclasses.fields(Proof)}
    for line in lines:
        try:
            entry = json.loads(line)
            entry["errors"] = tuple(map(tuple, entry["errors"]))
            proof = Proof(**{name: value for name, value in entry.items() if name in names})
            key = _key(proof.operation, proof.kind, proof.sizes, proof.backend)
            if proof.state == "interrupted":
                found.pop(key, None)
            else:
                found[key] = proof
        except (ValueError, TypeError, KeyError):  # half a line, of a disk that was full
            continue
    return found
