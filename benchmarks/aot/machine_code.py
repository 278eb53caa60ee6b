"""Analysis of a compiled Mosaic GPU kernel: registers, spills, and its most expensive loop."""

import dataclasses
import re
from pathlib import Path

LABEL = re.compile(r"^\s*\.?(?:L_x_\d+|\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
TARGET = re.compile(r"\(?(\.?L_x_\d+)\)?")


@dataclasses.dataclass(frozen=True)
class Loop:
    """Numbers of instructions in a loop of the machine code."""

    instructions: int  # all instructions; nested loops count once
    exponentials: int  # MUFU.EX2; our kernels have one per logit, and a few for rescaling
    square_roots: int  # MUFU.RSQ and MUFU.SQRT
    matrix: int  # HGMMA, products of the matrix units


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One compiled kernel; `loop` is the innermost loop with the most exponentials, None without any."""

    name: str
    registers: int
    spilled_bytes: int
    instructions: int
    loop: Loop | None


def loops(text: str) -> tuple[int, list[Loop]]:
    """Returns the number of instructions of a disassembly, and its innermost loops with exponentials."""
    names: list[str] = []
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    for line in text.splitlines():
        if label := LABEL.match(line):
            labels[label.group(0).strip().rstrip(":").lstrip(".")] = len(names)
        elif instruction := INSTRUCTION.search(line):
            name, operands = instruction.groups()
            if name.startswith("BRA") and (target := TARGET.search(operands)):
                jumps.append((len(names), target.group(1).lstrip(".")))
            names.append(name)
    spans = {(labels[target], end + 1) for end, target in jumps if labels.get(target, end + 1) <= end}
    counted = []
    for start, end in sorted(spans):
        body = names[start:end]
        inner = any(
            (a, b) != (start, end) and start <= a and b <= end and _exponentials(names[a:b]) for a, b in spans
        )
        if _exponentials(body) and not inner:
            roots = sum(name.startswith(("MUFU.RSQ", "MUFU.SQRT")) for name in body)
            matrix = sum(name.startswith("HGMMA") for name in body)
            counted.append(Loop(len(body), _exponentials(body), roots, matrix))
    return len(names), counted


def _exponentials(names: list[str]) -> int:
    return sum(name.startswith("MUFU.EX2") for name in names)


def read(folder: Path) -> list[Kernel]:
    """Reads the kernels that were dumped into a folder (MOSAIC_GPU_DUMP_TO).

    Raises:
        ValueError: the resource report or the disassembly of a kernel is missing.
    """
    kernels = []
    for report in sorted(folder.glob("*.ptxas")):
        text = report.read_text(encoding="utf-8")
        used = re.search(r"Used (\d+) registers", text)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        code = report.with_suffix(".sass_ctrl")
        if not used or not spills or not code.exists():
            raise ValueError(
                f"{report}: registers, spills or disassembly are missing; is nvdisasm installed?"
            )
        count, found = loops(code.read_text(encoding="utf-8"))
        busiest = max(found, key=lambda loop: loop.exponentials, default=None)
        spilled = int(spills.group(1)) + int(spills.group(2))
        kernels.append(Kernel(report.stem, int(used.group(1)), spilled, count, busiest))
    return kernels
