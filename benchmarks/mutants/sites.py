"""Finds all mutants of a project, names them, and draws some with a seed."""

import ast
import collections
import difflib
import hashlib
import importlib.util
import math
import random
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import launching
from benchmarks.mutants import arithmetic, arrays, statements
from benchmarks.mutants.source import Operator, Source

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn", "experiments")
OPERATORS = (*arithmetic.OPERATORS, *arrays.OPERATORS, *statements.OPERATORS)


class Mutant(NamedTuple):
    """One change to one file.

    Attributes:
        id: a hash of the path, the operator, the function, the statement before and after, and the number of
            equal ones before it; edits elsewhere in the file do not change it.
        path: the file's path in the repository.
        line: the line of the change, from 1.
        operator: the kind.
        before: the statement, without the body of a compound one.
        after: the statement with the change.
        span: the offsets of what is replaced in the file.
        new: what replaces it.
    """

    id: str
    path: str
    line: int
    operator: str
    before: str
    after: str
    span: tuple[int, int]
    new: str

    def apply(self, text: str) -> str:
        """Returns the file's text with the change."""
        return text[: self.span[0]] + self.new + text[self.span[1] :]

    def valid(self, text: str) -> bool:
        """Whether the changed file compiles and means something else."""
        changed = self.apply(text)
        try:
            compile(changed, self.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))

    def diff(self, text: str) -> str:
        """Returns the change as a unified diff without its head."""
        lines = difflib.unified_diff(text.splitlines(), self.apply(text).splitlines(), n=1, lineterm="")
        return "\n".join(list(lines)[2:])


def of_file(path: str, text: str, operators: Sequence[Operator] = OPERATORS) -> list[Mutant]:
    """Returns the mutants of a file in the order of their places; few of them may not compile."""
    source = Source(path, text)
    by_type = collections.defaultdict(list)
    for operator in operators:
        for kind in operator.types:
            by_type[kind].append(operator)
    found = []
    for node in source.live():
        for operator in by_type.get(type(node), ()):
            for target, new in operator.find(node, source):
                found.append((source.span(target), operator.name, new, node))
    seen: collections.Counter[str] = collections.Counter()
    mutants = []
    for span, name, new, node in sorted(found, key=lambda one: one[:3]):
        start, end, function = _statement(source, node)
        before = text[start:end]
        after = text[start : span[0]] + new + text[span[1] : end]
        what = "\0".join((path, name, function, *(" ".join(part.split()) for part in (before, after))))
        digest = hashlib.sha256(f"{what}\0{seen[what]}".encode()).hexdigest()[:10]
        seen[what] += 1
        line = text.count("\n", 0, span[0]) + 1
        mutants.append(Mutant(digest, path, line, name, before, after, span, new))
    return mutants


def _statement(source: Source, node: ast.AST) -> tuple[int, int, str]:
    """Returns the span of the statement around a node, up to its body if the node is not all of it."""
    around = [node, *source.above(node)]
    place = next(i for i, one in enumerate(around) if isinstance(one, ast.stmt))
    statement = around[place]
    start, end = source.span(statement)
    body = getattr(statement, "body", None)
    if place and body and source.span(node)[0] < source.span(body[0])[0]:
        end = source.span(body[0])[0]
    if place and (decorators := getattr(statement, "decorator_list", None)):
        start = min(start, source.span(decorators[0])[0])
    scopes = [one.name for one in around if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    return start, end, ".".join(reversed(scopes))


class Project:
    """The tracked files of a repository, as they were in its working tree when this was made.

    Attributes:
        root: the folder of the repository.
        contents: the files' contents by path, sorted; outside of a checkout, all files that are not hidden.
    """

    def __init__(self, root: Path):
        self.root = root
        command = ["git", "ls-files", "-z"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found = [name for name in done.stdout.split("\0") if name]
        else:
            every = (path.relative_to(root) for path in root.rglob("*"))
            found = [str(path) for path in every if not any(part[0] in "._" for part in path.parts[:-1])]
        found = [name for name in sorted(found) if (root / name).is_file()]
        self.contents = {name: (root / name).read_bytes() for name in found}

    def text(self, path: str) -> str:
        """Returns the text of a file."""
        return self.contents[path].decode()

    def mutants(self, names: Iterable[str]) -> Iterator[Mutant]:
        """Yields the mutants of packages or files by path and place; `shapes.py` only names sizes to test."""
        chosen = {*names}
        for path in self.contents:
            inside = path in chosen or path.partition("/")[0] in chosen
            if inside and path.endswith(".py") and not path.endswith("/shapes.py") and not skipped(path):
                yield from of_file(path, self.text(path))


def skipped(path: str) -> bool:
    """Whether the tests of a file are skipped here: of `pytorch`, where PyTorch is not installed."""
    return "pytorch" in Path(path).with_suffix("").parts and importlib.util.find_spec("torch") is None


def draw(
    found: Iterable[Mutant], texts: Mapping[str, str], packages: Sequence[str], count: int, seed: int
) -> list[Mutant]:
    """Draws mutants without repetition, in equal shares by package.

    Within a package the weight of an operator is the square root of its number of mutants, so that constants
    do not outnumber everything else and rare operators are not drawn in full each time; likewise the weight
    of a statement, so that long tables do not either. The rank of a mutant depends on the seed, its id and
    these numbers, and on nothing else (weighted sampling of Efraimidis and Spirakis, 2006).
    """
    by_package = collections.defaultdict(list)
    for mutant in found:
        by_package[mutant.path.partition("/")[0]].append(mutant)
    drawn: list[Mutant] = []
    for package, share in launching.share(count, packages).items():
        mutants = by_package[package]
        sizes = collections.Counter(mutant.operator for mutant in mutants)
        alike = collections.Counter((mutant.operator, mutant.path, mutant.before) for mutant in mutants)
        ranks = {}
        for mutant in mutants:
            uniform = random.Random(f"{seed} {mutant.id}").random()
            number = sizes[mutant.operator] * alike[mutant.operator, mutant.path, mutant.before]
            ranks[mutant] = math.log(uniform) * number**0.5, mutant.id
        ranked = iter(sorted(mutants, key=ranks.__getitem__, reverse=True))
        chosen: list[Mutant] = []
        while len(chosen) < share and (mutant := next(ranked, None)) is not None:
            if mutant.valid(texts[mutant.path]):
                chosen.append(mutant)
        drawn += chosen
    return drawn
