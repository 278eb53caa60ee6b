"""Measures how time and memory grow with the sizes of operations and models: ours, plain JAX and PyTorch.

    python -m benchmarks.peers.growth                    # results/peers/growth.json, with a page and a figure
    python -m benchmarks.peers.growth --only="trans, T" --out=

A curve is a subject of `benchmarks.peers` whose sizes are fixed but one. Each program of a curve runs,
forward and backward, in a process of its own, at ascending sizes, until a call takes longer than `--longest`
seconds or the process needs more than `--memory` GiB, which the record says. The time is the median of
several calls after the first. The memory is the greatest that the process held during its first call, less
what it held before, plus parameters, inputs and cotangents; it is read from Linux and missing elsewhere.
"""

import ctypes
import dataclasses
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # as in `benchmarks.peers`

import jax

from benchmarks import machine, timing
from benchmarks.peers import libraries, subjects
from benchmarks.peers.comparing import JaxProgram, Program, Subject
from experiments.runtime import memory, plots
from kernels.trans import reference as trans_reference
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import reference as trilinear_reference
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import reference as two_simplicial_reference
from kernels.two_simplicial import shapes as two_simplicial_shapes
from logic_zoo.writing import write_whole

OURS, PLAIN, PYTORCH = "ours", "plain JAX", "PyTorch, eager"
STATUS = Path("/proc/self/status")


@dataclasses.dataclass(frozen=True)
class Curve:
    """A subject with one size that grows."""

    sizes: tuple[int, ...]
    make: Callable[[int], Subject]
    plain: Callable[..., jax.Array] | None = None  # what a JAX user would write; None for models
    small: tuple[int, ...] = (2, 3)  # sizes that take no time
    torch: bool = True  # whether `benchmarks.peers` has PyTorch's program for it

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the programs that are measured."""
        return (OURS, *[PLAIN] * (self.plain is not None), *[PYTORCH] * self.torch)


def full(size: int) -> Subject:
    """All triples of a set."""
    shape = two_simplicial_shapes.Shape("full", 1, 4, size, size, 32)
    return subjects.two_simplicial(shape)


def virtual(size: int) -> Subject:
    """Queries that attend to pairs of 32 virtual entities."""
    return subjects.two_simplicial(two_simplicial_shapes.Shape("virtual", 1, 4, size, 32, 48))


def agents(size: int) -> Subject:
    """The attention of the agents, for a batch of pictures."""
    return subjects.two_simplicial(dataclasses.replace(two_simplicial_shapes.AGENT, batch=size))


def trans(size: int) -> Subject:
    """FOLNet's trans for one text."""
    return subjects.trans(trans_shapes.square("trans", 1, 64, size))


def trilinear(size: int) -> Subject:
    """Trilinear attention to all the past."""
    return subjects.trilinear(trilinear_shapes.Shape("trilinear", 1, size, 4, 2, 32))


def pictures(size: int) -> Subject:
    """The simplicial agent on a batch."""
    return subjects.agent(dataclasses.replace(subjects.PAPERS, pictures=(size, 7, 10)), 2)


def blocks(size: int) -> Subject:
    """The simplicial agent with more blocks, on 128 pictures."""
    return subjects.agent(subjects.PAPERS, 2, blocks=size)


def steps(make: Callable[[subjects.Sizes], Subject]) -> Callable[[int], Subject]:
    """Returns a function from a number of steps to a cell on sequences of that many."""
    batch, _, features = subjects.PAPERS.sequence
    return lambda size: make(dataclasses.replace(subjects.PAPERS, sequence=(batch, size, features)))


def plain_two_simplicial(*arrays: jax.Array) -> jax.Array:
    """Equation (10) as einsums."""
    return two_simplicial_reference.plain(two_simplicial_reference.Config(), *arrays)


def plain_trilinear(*arrays: jax.Array) -> jax.Array:
    """The definition of trilinear attention."""
    config = trilinear_reference.Config(None, None, True, arrays[0].shape[-1] ** -0.5)
    return trilinear_reference.trilinear_attention(config, *arrays)[0]


CURVES: Mapping[str, Curve] = {
    "2-simplicial attention, N = M": Curve((32, 64, 128, 256, 512), full, plain_two_simplicial),
    "2-simplicial attention, N": Curve((256, 1024, 4096, 16384, 65536), virtual, plain_two_simplicial),
    "2-simplicial attention, B": Curve((160, 640, 2560, 10240, 40960), agents, plain_two_simplicial),
    "trilinear attention, N": Curve((64, 128, 256, 512, 1024), trilinear, plain_trilinear, torch=False),
    "trans, T": Curve((64, 128, 256, 512, 1024), trans, trans_reference.plain_head_major),
    "FOLNet layer, T": Curve(
        (32, 64, 128, 256, 512), lambda size: subjects.folnet_layer(subjects.BASE, 1, size)
    ),
    "TP-Transformer layer, T": Curve(
        (64, 256, 1024, 4096), lambda size: subjects.tp_encoder_layer(1, size, 512, 8, 2048), small=(4, 8)
    ),
    "simplicial agent, B": Curve((32, 128, 512, 2048), pictures),
    "simplicial agent, blocks": Curve((1, 2, 4, 8), blocks, small=(1,)),
    "Neural Turing Machine, steps": Curve((16, 64, 256, 1024), steps(subjects.ntm)),
    "higher-order cell, steps": Curve((16, 32, 64, 128, 256), steps(subjects.higher_order)),
}


def program_of(name: str, curve: Curve, subject: Subject) -> Program:
    """Makes one of a curve's programs.

    Raises:
        ValueError: PyTorch is not installed.
    """
    if name == OURS:
        return JaxProgram(subject)
    if name == PLAIN:
        assert curve.plain is not None
        plain = curve.plain
        return JaxProgram(subject, lambda *arrays: (plain(*arrays),))
    found = libraries.find("torch")
    if "absent" in found.about:
        raise ValueError(found.about["absent"])
    return found.programs(subject)[PYTORCH]()


def points(
    curve: Curve, name: str, sizes: tuple[int, ...], longest: float, block_seconds: float
) -> Iterator[dict[str, Any]]:
    """Yields a point for each size: its time and memory, or why there is none, which ends the curve."""
    for size in sizes:
        try:
            subject = curve.make(size)
            point = {"size": size, **measured(program_of(name, curve, subject), subject, block_seconds)}
        except Exception as error:  # out of memory, not installed: recorded
            yield {"size": size, "failed": timing.one_line(error)}
            return
        yield point
        del subject
        if point["seconds"] > longest:
            return


def measured(program: Program, subject: Subject, block_seconds: float) -> dict[str, Any]:
    """Measures a program, forward and backward: median seconds of a call, and bytes."""
    call = program.call("gradient")
    given = sum(x.nbytes for x in (*subject.params.values(), *subject.inputs, *subject.cotangents()))
    before = forgotten()
    jax.block_until_ready(call())
    after = resident("VmHWM")
    times = []
    while len(times) < 3 or sum(times) < block_seconds:
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
        if sum(times) > 10 * block_seconds:
            break
    held = None if before is None or after is None else after - before + given
    return {"seconds": statistics.median(times), "bytes": held}


def forgotten() -> int | None:
    """Returns freed memory to the system and counts the greatest use anew; returns the bytes in use."""
    gc.collect()
    if resident("VmRSS") is None:
        return None
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def resident(field: str) -> int | None:
    """Returns a field of Linux' status of this process in bytes, None on other systems."""
    if not STATUS.exists():
        return None
    lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
    return 1024 * int(lines[field].split()[0])


def followed(name: str, program: str, arguments: Any) -> list[dict[str, Any]]:
    """Measures a program of a curve in a process of its own; returns its points."""
    command = [sys.executable, "-m", "benchmarks.peers.growth", f"--curve={name}", f"--program={program}"]
    command += [f"--longest={arguments.longest}", f"--memory={arguments.memory}"]
    command += [f"--block-seconds={arguments.block_seconds}", *(["--small"] if arguments.small else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = [json.loads(line) for line in process.stdout if line.startswith("{")]
    if process.returncode:  # killed where memory cannot be had in a way that raises
        sizes = chosen_sizes(CURVES[name], arguments.small)
        found.append({"size": sizes[len(found)], "failed": f"exit status {process.returncode}"})
    return found


def chosen_sizes(curve: Curve, small: bool) -> tuple[int, ...]:
    """Returns the sizes of a curve."""
    return curve.small if small else curve.sizes


def limited(gib: float) -> None:
    """Lets requests for more memory fail in this process, instead of those of the whole machine."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30),) * 2)


def main() -> None:
    """Measures the curves, or, in a process of its own, one program of one curve."""
    parser = machine.parser(
        __doc__,
        only=("", "a part of curves' names"),
        curve=("", "a curve, of which only --program is measured and printed"),
        program=("", "a program of --curve"),
        out=("results/peers/growth.json", "file of the record; page and figure go next to it; '': none"),
        longest=(4.0, "seconds of a call after which a curve ends"),
        memory=(22.0, "GiB that a process may hold"),
    )
    parser.add_argument("--block-seconds", type=float, default=0.3, help="approximate seconds per point")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    names = [name for name in CURVES if arguments.only in name]
    if not names:
        parser.error(f"--only: got {arguments.only!r}, expected a part of {'; '.join(CURVES)}")
    for field in ("longest", "memory", "block_seconds"):
        if getattr(arguments, field) <= 0:
            flag = f"--{field.replace('_', '-')}"
            parser.error(f"{flag}: got {getattr(arguments, field)}, expected a positive number")
    if arguments.curve:
        curve = CURVES.get(arguments.curve)
        if curve is None or arguments.program not in curve.programs:
            parser.error(f"--curve, --program: got {arguments.curve!r}, {arguments.program!r}")
        limited(arguments.memory)
        memory.keep_large_blocks()
        sizes = chosen_sizes(curve, arguments.small)
        options = arguments.longest, arguments.block_seconds
        for point in points(curve, arguments.program, sizes, *options):
            print(json.dumps(point), flush=True)
        return
    record: dict[str, Any] = {
        **timing.where_and_when(),
        "command": " ".join(["python -m benchmarks.peers.growth", *sys.argv[1:]]),
        "load": round(os.getloadavg()[0], 2),
        "curves": {},
    }
    for name in names:
        record["curves"][name] = {
            program: followed(name, program, arguments) for program in CURVES[name].programs
        }
        print("\n".join(lines(name, record["curves"][name])), flush=True)
        if arguments.out:
            written(Path(arguments.out), record)


def lines(name: str, found: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Returns the lines of a table, one per point."""
    return [f"| {name} | {program} | {shown(point)} |" for program in found for point in found[program]]


def shown(point: Mapping[str, Any]) -> str:
    """Returns the cells of a point."""
    if "failed" in point:
        return f"{point['size']:,} | {point['failed'].replace('|', '/')} |"
    held = "" if point["bytes"] is None else f"{point['bytes'] / 2**20:,.1f}"
    time = 1e3 * point["seconds"]
    return f"{point['size']:,} | {f'{time:,.0f}' if time >= 100 else f'{time:.3g}'} | {held}"


def written(out: Path, record: Mapping[str, Any]) -> None:
    """Writes the record, its page and its figure."""
    machine.write(out, record)
    devices, versions = record["devices"], record["versions"]
    text = [
        "# Time and memory against sizes",
        "",
        f"Measured on {record['date']} on {devices['kind']} ({devices['cpus']} cores, load average "
        f"{record['load']} before) with JAX {versions['jax']}, by `{record['command']}`: forward and "
        "backward, float32, each program in a process of its own. A curve ends where a call takes too long "
        "or memory is exhausted.",
        "",
        f"![Time and memory of all curves.]({out.with_suffix('.png').name})",
        "",
        "| curve | program | size | ms | MiB |",
        "|---|---|--:|--:|--:|",
    ]
    for name, found in record["curves"].items():
        text += lines(name, found)
    write_whole(out.with_suffix(".md"), "\n".join(text) + "\n")
    figure(record["curves"]).savefig(out.with_suffix(".png"))


def figure(curves: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Any:
    """Draws time above memory for each curve, six curves in a row."""
    from matplotlib.figure import Figure

    across = min(6, len(curves))
    down = -(-len(curves) // across)
    with plots.style():
        drawn = Figure(figsize=(2.6 * across, 4.4 * down))
        panels = drawn.subplots(2 * down, across, squeeze=False)
        for panel in panels.flat[len(curves) :]:
            panel.set_visible(False)
        for number, (name, found) in enumerate(curves.items()):
            row, column = divmod(number, across)
            for panel, field, scale, label in (
                (panels[2 * row, column], "seconds", 1e3, "ms"),
                (panels[2 * row + 1, column], "bytes", 2**-20, "MiB"),
            ):
                panel.set_visible(True)
                panel.set_xscale("log", base=2)
                panel.set_yscale("log")
                panel.set_ylabel(label if column == 0 else "")
                for program, colour in zip((OURS, PLAIN, PYTORCH), plots.COLOURS, strict=False):
                    known = [p for p in found.get(program, []) if p.get(field)]
                    sizes, values = [p["size"] for p in known], [scale * p[field] for p in known]
                    panel.plot(sizes, values, "o-", color=colour, label=program)
            subject, _, axis = name.rpartition(", ")
            panels[2 * row, column].set_title(subject)
            panels[2 * row + 1, column].set_xlabel(axis)
        panels[0, 0].legend()
    return drawn


if __name__ == "__main__":
    main()
