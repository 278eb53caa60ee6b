"""Operators for statements: checks, updates and early ends that are dropped."""

import ast
import re

from benchmarks.mutants.source import Operator, Replacements, Source, dotted

CHECKS = re.compile(r"(^|[._])(check|assert|validate|require|refuse)")


def checks(node: ast.If | ast.Expr, source: Source) -> Replacements:
    """`if ...: raise` and calls of checks dropped."""
    if isinstance(node, ast.If):
        if all(isinstance(line, ast.Raise) for line in node.body) and not node.orelse:
            yield node, "pass"
    elif isinstance(node.value, ast.Call) and CHECKS.search(dotted(node.value.func)):
        yield node, "pass"


def dropped(node: ast.AugAssign | ast.Assign | ast.Expr, source: Source) -> Replacements:
    """X += y, x = f(x) and calls for their effect dropped."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        if not isinstance(target, ast.Name) or target.id not in names:
            return
    elif isinstance(node, ast.Expr) and (
        not isinstance(node.value, ast.Call)
        or source.left_out(node, node.value)
        or CHECKS.search(dotted(node.value.func))
    ):
        return
    yield node, "pass"


def loops(node: ast.Break | ast.Continue | ast.If, source: Source) -> Replacements:
    """`break` and `continue` exchanged; an early end of a turn, a loop or a function dropped."""
    if isinstance(node, ast.If):
        ends = isinstance(node.body[0], ast.Break | ast.Continue | ast.Return)
        missing = isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Is)
        if ends and len(node.body) == 1 and not node.orelse and not missing:  # None would fail at once
            yield node, "pass"
    else:
        yield node, "continue" if isinstance(node, ast.Break) else "break"


OPERATORS = (
    Operator("check dropped", checks, (ast.If, ast.Expr)),
    Operator("statement dropped", dropped, (ast.AugAssign, ast.Assign, ast.Expr)),
    Operator("loop", loops, (ast.Break, ast.Continue, ast.If)),
)
