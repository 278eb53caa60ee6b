"""A Python file as the operators see it: the text of each node, and which nodes have a meaning to change."""

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Target = ast.AST | tuple[int, int]
"""What is replaced: a node, or the characters from the first offset up to the second."""
Replacements = Iterator[tuple[Target, str]]
ARRAYS = {"jnp", "jax", "lax", "np", "numpy", "nn", "optax", "pl", "plgpu", "pltpu"}
"""Modules of functions of arrays."""
ATOMS = (
    *(ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict, ast.Set),
    *(ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.JoinedStr),
)
"""Expressions that need no parentheses."""
LOOKS = {
    *("figsize", "dpi", "fontsize", "color", "alpha", "linewidth", "linestyle", "marker", "label", "ncol"),
    *("ha", "va", "xytext", "xlabel", "ylabel", "title", "cmap", "width_ratios", "height_ratios", "indent"),
    *("zorder", "loc", "frameon", "markersize", "rotation", "capsize", "markevery"),
}
SAFEGUARDS = {
    *("strict", "encoding", "flush", "help", "required", "timeout", "stacklevel", "daemon", "exist_ok"),
    *("parents", "missing_ok", "check_vma", "frozen", "eq", "repr", "kw_only", "slots", "name"),
}
SPEED = {"precision", "unroll", "donate_argnums", "maxsize", "compiler_params", "cost_estimate", "optimize"}
UNTESTED = LOOKS | SAFEGUARDS | SPEED
"""Keyword arguments that change looks, messages or speed, or guard against what no valid call does."""
SPOKEN = re.compile(
    r"^(print|warnings\.warn|logging\.\w+|flags\.DEFINE_\w+|.*_bar\.\w+"
    r"|functools\.(lru_)?cache|.*dataclass|TypeVar)$"
)
COSTS = re.compile(r"(Error|Exception|Warning|CostEstimate|CompilerParams)$")
ALIASES = re.compile(r"^(Literal|Callable|Mapping|Sequence|tuple|dict|list|Annotated|Union|Optional)\[")


class Operator(NamedTuple):
    """A kind of mutant: yields replacements for nodes of some types."""

    name: str
    find: Callable[[Any, "Source"], Replacements]
    types: tuple[type[ast.AST], ...]


class Source:
    """A parsed file.

    Attributes:
        path: its path in the repository.
        text: its text.
        tree: its syntax tree.
    """

    def __init__(self, path: str, text: str):
        self.path, self.text, self.tree = path, text, ast.parse(text)
        self._rows = text.split("\n")
        self._starts = [0]
        for row in self._rows:
            self._starts.append(self._starts[-1] + len(row) + 1)
        self._parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def parent(self, node: ast.AST) -> ast.AST | None:
        """Returns the node that holds this one."""
        return self._parents.get(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yields the nodes around this one, from the innermost."""
        found = self.parent(node)
        while found is not None:
            yield found
            found = self.parent(found)

    def span(self, target: Target) -> tuple[int, int]:
        """Returns the offsets of the first character and of the one after the last."""
        if isinstance(target, tuple):
            return target
        node: Any = target
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _offset(self, line: int, column: int) -> int:
        row = self._rows[line - 1]
        if not row.isascii():  # the parser counts bytes
            column = len(row.encode()[:column].decode())
        return self._starts[line - 1] + column

    def of(self, target: Target) -> str:
        """Returns the text of a node."""
        start, end = self.span(target)
        return self.text[start:end]

    def operand(self, node: ast.expr) -> str:
        """Returns the text of an expression, in parentheses where it needs them."""
        text = self.of(node)
        plain = isinstance(node, ATOMS) or (isinstance(node, ast.Tuple) and text[0] == "(")
        return text if plain and "\n" not in text else f"({text})"

    def swapped(self, first: ast.AST, second: ast.AST) -> tuple[Target, str]:
        """Exchanges two nodes of which the first comes first; what is between them stays."""
        (start, stop), (begin, end) = self.span(first), self.span(second)
        return (start, end), self.text[begin:end] + self.text[stop:begin] + self.text[start:stop]

    def without(self, call: ast.Call, part: ast.expr | ast.keyword) -> tuple[Target, str]:
        """Removes an argument of a call, with a comma."""
        parts = sorted((*call.args, *call.keywords), key=self.span)
        place = parts.index(part)
        if place:
            return (self.span(parts[place - 1])[1], self.span(part)[1]), ""
        end = self.span(call)[1] - 1 if len(parts) == 1 else self.span(parts[1])[0]
        return (self.span(part)[0], end), ""

    def renamed(self, func: ast.expr, new: str) -> tuple[Target, str]:
        """Replaces the last name of a function."""
        end = self.span(func)[1]
        return (end - len(last_name(func)), end), new

    def live(self) -> Iterator[ast.AST]:
        """Yields the nodes that operators may look at.

        Left out are imports, annotations and type aliases, docstrings and f-strings, errors that are raised,
        what is printed or logged, and arguments in `UNTESTED`.
        """
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += [child for child in ast.iter_child_nodes(node) if not self.left_out(node, child)]

    def left_out(self, node: ast.AST, child: ast.AST) -> bool:
        """Whether a node's child, with all that is in it, is not looked at."""
        if isinstance(child, ast.Import | ast.ImportFrom | ast.Raise | ast.JoinedStr | ast.expr_context):
            return True
        if child in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            return True
        if isinstance(child, ast.keyword):
            return child.arg in UNTESTED
        if isinstance(child, ast.Call):
            name = dotted(child.func)
            return bool(SPOKEN.search(name) or COSTS.search(name))
        if isinstance(child, ast.Expr):
            return isinstance(child.value, ast.Constant)
        if isinstance(child, ast.Assign) and isinstance(node, ast.Module):
            return self.of(child.targets[0]) == "__all__" or bool(ALIASES.match(self.of(child.value)))
        if isinstance(child, ast.If):
            return self.of(child.test) in ("TYPE_CHECKING", '__name__ == "__main__"')
        return type(child).__name__ in ("TypeAlias", "TypeVar")


def dotted(node: ast.AST) -> str:
    """Returns a name with its dots, for example `jax.random.split`; parts that are no names are empty."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """Returns the last part of `dotted`."""
    return dotted(node).rpartition(".")[2]


def of_arrays(call: ast.Call) -> bool:
    """Whether a function of a library of arrays is called."""
    return dotted(call.func).partition(".")[0] in ARRAYS


def of_keyword(node: ast.AST, source: Source) -> str:
    """Returns the name of the keyword argument that this is the value of, or ""."""
    parent = source.parent(node)
    return parent.arg or "" if isinstance(parent, ast.keyword) else ""
