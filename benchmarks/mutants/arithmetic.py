"""Operators for numbers, comparisons, logic, and the order of arguments."""

import ast
import itertools
import re

from benchmarks.mutants.source import Operator, Replacements, Source, dotted, last_name, of_arrays, of_keyword

SIGNED = {
    *("einsum", "dot_general", "dot", "matmul", "tensordot", "vdot", "log", "log2", "log1p", "logsumexp"),
    *("tanh", "sin", "cos", "log_softmax", "sum", "mean"),
}
SEQUENCES = (ast.List, ast.Tuple, ast.ListComp, ast.JoinedStr, ast.Dict, ast.Set, ast.DictComp, ast.SetComp)
COMPARED: dict[type, str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.In: "not in", ast.NotIn: "in"},
}
SIGNS: dict[type, str] = {
    **{ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="},
    **{ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"},
}
ARITHMETIC: dict[type, str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.Pow: "*",
    ast.Mod: "//",
}
SYMMETRIC = re.compile(
    r"(^|\.)(minimum|maximum|min|max|add|multiply|isclose|allclose|array_equal|logaddexp|gcd|isinstance|issubclass"
    r"|getattr|hasattr|setattr|map|filter|partial|reduce|scan|cast|where|logical_(and|or)|zip|promote_types"
    r"|result_type|fori_loop|while_loop|cond|tree\.map|vmap|jit|remat|replace|broadcast_shapes)$"
)
"""Calls in which exchanged arguments mean the same or fail at once."""
SUMS = re.compile(r"sha\d|hash|digest|checksum|(?<![a-z])crc", re.IGNORECASE)
PATHS = re.compile(r"path|folder|direct|file|root|workdir", re.IGNORECASE)


def numeric(*nodes: ast.expr) -> bool:
    """Whether none of the operands is a sequence, a set or text."""
    for node in nodes:
        if isinstance(node, SEQUENCES) or (isinstance(node, ast.Constant) and not _number(node)):
            return False
        if isinstance(node, ast.Call) and dotted(node.func) in (
            "list",
            "tuple",
            "sorted",
            "set",
            "dict",
            "str",
        ):
            return False
        if isinstance(node, ast.BinOp) and not numeric(node.left, node.right):
            return False
    return True


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def sign(node: ast.UnaryOp | ast.Call, source: Source) -> Replacements:
    """-x to x; a product, sum or logarithm to its negative."""
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub) and not _number(node.operand):
            yield node, source.operand(node.operand)
    elif (
        of_arrays(node)
        and last_name(node.func) in SIGNED
        and not isinstance(source.parent(node), ast.UnaryOp)
    ):
        yield node, f"(-{source.of(node)})"


def arithmetic(node: ast.BinOp | ast.AugAssign, source: Source) -> Replacements:
    """+ and -, * and /, ** to *, % to //."""
    if (new := ARITHMETIC.get(type(node.op))) is None:
        return
    if isinstance(node, ast.AugAssign):
        if numeric(node.value):
            yield node, f"{source.of(node.target)} {new}= {source.of(node.value)}"
    elif numeric(node.left, node.right) and not _joins_paths(node, source):
        yield node, f"{source.operand(node.left)} {new} {source.operand(node.right)}"


def terms(node: ast.BinOp, source: Source) -> Replacements:
    """A + b to a or b, a - b to a."""
    if isinstance(node.op, ast.Add | ast.Sub) and numeric(node.left, node.right):
        yield node, source.operand(node.left)
        if isinstance(node.op, ast.Add):
            yield node, source.operand(node.right)


def factors(node: ast.BinOp, source: Source) -> Replacements:
    """A * b to a or b, a / b to a."""
    divides = isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv)
    if divides and numeric(node.left, node.right) and not _joins_paths(node, source):
        yield node, source.operand(node.left)
        if isinstance(node.op, ast.Mult):
            yield node, source.operand(node.right)


def _joins_paths(node: ast.BinOp, source: Source) -> bool:
    return isinstance(node.op, ast.Div) and bool(PATHS.search(source.of(node)))


def changed(value: float) -> list[str]:
    """Returns other numbers: one more and one less, half as much; 0 for epsilons and infinities."""
    if isinstance(value, int):
        return [repr(value + 1), repr(value - 1)] if value else ["1"]
    return ["1.0"] if value == 0 else [repr(value / 2 if 1e-4 < abs(value) < 1e6 else 0.0)]


def constants(node: ast.Constant | ast.UnaryOp, source: Source) -> Replacements:
    """Numbers in expressions; defaults and axes have operators of their own."""
    parent = source.parent(node)
    if _is_default(node, source) or of_keyword(node, source).endswith("axis"):
        return
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub) and _number(node.operand):
            yield from ((node, text) for text in changed(ast.literal_eval(node)))
    elif _number(node) and not isinstance(parent, ast.UnaryOp):
        yield from ((node, text) for text in changed(ast.literal_eval(node)))


def _is_default(node: ast.AST, source: Source) -> bool:
    parent = source.parent(node)
    if isinstance(parent, ast.UnaryOp):
        return _is_default(parent, source)
    in_class = isinstance(source.parent(parent), ast.ClassDef) if parent else False
    return isinstance(parent, ast.arguments) or (isinstance(parent, ast.AnnAssign | ast.Assign) and in_class)


def defaults(node: ast.Constant, source: Source) -> Replacements:
    """Default values of parameters and fields."""
    if _is_default(node, source):
        if isinstance(node.value, bool):
            yield node, repr(not node.value)
        elif isinstance(node.value, int | float) and not isinstance(source.parent(node), ast.UnaryOp):
            yield node, changed(node.value)[0]


def booleans(node: ast.Constant, source: Source) -> Replacements:
    """True and False, also as results."""
    if isinstance(node.value, bool) and not _is_default(node, source):
        yield node, repr(not node.value)


def bounds(node: ast.Slice | ast.Call | ast.BinOp, source: Source) -> Replacements:
    """The ends of slices and ranges that are not plain numbers, and whole quotients, by one."""
    if isinstance(node, ast.Slice):
        if node.lower is not None and not _plain(node.lower):
            yield node.lower, f"{source.operand(node.lower)} + 1"
        if node.upper is not None and not _plain(node.upper):
            yield node.upper, f"{source.operand(node.upper)} - 1"
    elif isinstance(node, ast.Call):
        if last_name(node.func) in ("range", "arange") and node.args and not _plain(node.args[-1]):
            stop = node.args[min(len(node.args), 2) - 1]
            yield stop, f"{source.operand(stop)} - 1"
    elif isinstance(node.op, ast.FloorDiv):
        yield node, f"({source.of(node)} + 1)"


def _plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and _number(node.operand))


def comparisons(node: ast.Compare, source: Source) -> Replacements:
    """< and <=, == and !=, in and not in."""
    for place, op in enumerate(node.ops):
        if type(op) in COMPARED:
            signs = [SIGNS[type(other)] for other in node.ops]
            signs[place] = COMPARED[type(op)]
            parts = [
                f" {sign} {source.operand(right)}"
                for sign, right in zip(signs, node.comparators, strict=True)
            ]
            yield node, source.operand(node.left) + "".join(parts)


def checksums(node: ast.Compare, source: Source) -> Replacements:
    """A comparison of hashes to what lets everything pass."""
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq) and SUMS.search(source.of(node)):
        yield node, repr(isinstance(node.ops[0], ast.Eq))


def logic(node: ast.BoolOp | ast.UnaryOp | ast.BinOp, source: Source) -> Replacements:
    """And and or, & and |, no negation."""
    if isinstance(node, ast.BoolOp):
        word = " or " if isinstance(node.op, ast.And) else " and "
        yield node, f"({word.join(source.operand(value) for value in node.values)})"
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not | ast.Invert):
            yield node, source.operand(node.operand)
    elif isinstance(node.op, ast.BitAnd | ast.BitOr) and numeric(node.left, node.right):
        sign = "|" if isinstance(node.op, ast.BitAnd) else "&"
        if not re.search(r"\b(None|[A-Z]\w*)$", source.of(node)):  # a union of types
            yield node, f"({source.operand(node.left)} {sign} {source.operand(node.right)})"


def choices(node: ast.IfExp, source: Source) -> Replacements:
    """The two values of a conditional expression exchanged."""
    if not (isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Is | ast.IsNot)):
        yield source.swapped(node.body, node.orelse)


def arguments(node: ast.Call, source: Source) -> Replacements:
    """Two neighbouring positional arguments of one kind exchanged; the values of `where`."""
    args = node.args
    if last_name(node.func) == "where" and len(args) == 3:
        yield source.swapped(args[1], args[2])
    if SYMMETRIC.search(dotted(node.func)) or any(isinstance(arg, ast.Starred) for arg in args):
        return
    for first, second in itertools.pairwise(args):
        kinds = [ast.Attribute if isinstance(arg, ast.Name) else type(arg) for arg in (first, second)]
        if kinds[0] is kinds[1] and kinds[0] in (ast.Attribute, ast.Subscript, ast.Call, ast.BinOp):
            yield source.swapped(first, second)


def tuples(node: ast.Assign | ast.Return, source: Source) -> Replacements:
    """Two neighbours exchanged where several values are unpacked or returned."""
    group = node.targets[0] if isinstance(node, ast.Assign) else node.value
    if isinstance(group, ast.Tuple) and not any(isinstance(part, ast.Starred) for part in group.elts):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            return  # a row of assignments, of which each is a thing of its own
        for first, second in itertools.pairwise(group.elts):
            if "_" not in (source.of(first), source.of(second)):
                yield source.swapped(first, second)


OPERATORS = (
    Operator("sign", sign, (ast.UnaryOp, ast.Call)),
    Operator("arithmetic", arithmetic, (ast.BinOp, ast.AugAssign)),
    Operator("term dropped", terms, (ast.BinOp,)),
    Operator("factor dropped", factors, (ast.BinOp,)),
    Operator("constant", constants, (ast.Constant, ast.UnaryOp)),
    Operator("default", defaults, (ast.Constant,)),
    Operator("boolean", booleans, (ast.Constant,)),
    Operator("bound by one", bounds, (ast.Slice, ast.Call, ast.BinOp)),
    Operator("comparison", comparisons, (ast.Compare,)),
    Operator("checksum", checksums, (ast.Compare,)),
    Operator("logic", logic, (ast.BoolOp, ast.UnaryOp, ast.BinOp)),
    Operator("choice", choices, (ast.IfExp,)),
    Operator("arguments", arguments, (ast.Call,)),
    Operator("tuple", tuples, (ast.Assign, ast.Return)),
)
