"""What the compiler made of a Mosaic GPU kernel: registers, spills, and the loop where its time goes."""

import dataclasses
import re
from pathlib import Path

LABEL = re.compile(r"^\s*\.?(?:L_x_\d+|\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)([^;]*)")
TARGET = re.compile(r"\(?(\.?L_x_\d+)\)?")


@dataclasses.dataclass(frozen=True)
class Loop:
    """A loop of the machine code."""

    instructions: int  # how many it has, nested loops not counted twice
    exponentials: int  # MUFU.EX2 among them; a kernel of ours has one a logit, and a few for rescaling
    square_roots: int  # MUFU.RSQ and MUFU.SQRT
    matrix: int  # HGMMA, products of the matrix units

    @property
    def per_exponential(self) -> float:
        """Instructions for each exponential, which is a little less than those for each logit."""
        return self.instructions / self.exponentials


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One compiled kernel. `loop` is the innermost loop with the most exponentials; None without any."""

    name: str
    registers: int
    spilled_bytes: int
    instructions: int
    loop: Loop | None


def loops(text: str) -> tuple[int, list[Loop]]:
    """The number of instructions of a disassembly, and its innermost loops that have exponentials."""
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
    """The kernels that were dumped into a folder (MOSAIC_GPU_DUMP_TO).

    Raises:
        ValueError: a kernel without its resource report or its disassembly.
    """
    kernels = []
    for report in sorted(folder.glob("*.ptxas")):
        text = report.read_text(encoding="utf-8")
        used = re.search(r"Used (\d+) registers", text)
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        code = report.with_suffix(".sass_ctrl")
        if not used or not spills or not code.exists():
            raise ValueError(f"{report}: no registers, no spills or no disassembly (nvdisasm missing?)")
        count, found = loops(code.read_text(encoding="utf-8"))
        busiest = max(found, key=lambda loop: loop.exponentials, default=None)
        spilled = int(spills.group(1)) + int(spills.group(2))
        kernels.append(Kernel(report.stem, int(used.group(1)), spilled, count, busiest))
    return kernels
