"""Operators for arrays, random keys and layers."""

import ast
import itertools
import re

from benchmarks.mutants.source import Operator, Replacements, Source, dotted, last_name, of_arrays

MASK = re.compile(r"mask|valid|\bwhere$|bias$")
REDUCED = {
    **{"sum": ("mean", "max"), "mean": ("sum",), "max": ("min", "sum"), "min": ("max",), "prod": ("sum",)},
    **{"argmax": ("argmin",), "argmin": ("argmax",), "any": ("all",), "all": ("any",)},
    **{"maximum": ("minimum",), "minimum": ("maximum",), "cumsum": ("cumprod",), "logsumexp": ("max",)},
    **{"tile": ("repeat",), "repeat": ("tile",), "pmean": ("psum",), "psum": ("pmean",)},
}
INITIAL = {
    **{"zeros": "ones", "ones": "zeros", "zeros_like": "ones_like", "ones_like": "zeros_like"},
    **{"zeros_init": "ones_init", "ones_init": "zeros_init", "orthogonal": "lecun_normal"},
    **{"lecun_normal": "he_normal", "he_normal": "lecun_normal", "xavier_uniform": "xavier_normal"},
    **{"glorot_uniform": "glorot_normal", "glorot_normal": "glorot_uniform", "lecun_uniform": "he_uniform"},
}
UPDATES = {"set": "add", "add": "set", "max": "min", "min": "max", "multiply": "add"}
PASSED = {
    "function dropped": re.compile(
        r"^(exp2?|log2?|log1p|expm1|r?sqrt|tanh|sigmoid|relu|gelu|silu|elu|softplus|softmax|log_softmax|abs|square"
        r"|sign|sin|cos|cumsum|cumprod|tril|triu|diag)$"
    ),
    "gradient not stopped": re.compile(r"^stop_gradient$"),
    "devices not summed": re.compile(r"^(psum|pmean|pmax|pmin|ppermute|psum_scatter)$"),
    "order": re.compile(r"^(flip|flipud|fliplr|roll|reversed|sort)$"),
}
"""Functions that are dropped by name: f(x) becomes x."""
KEYS = re.compile(r"random\.(split|fold_in|key)\)?$|\.make_rng$")
EINSUM = re.compile(r"^[a-zA-Z. ]+(,[a-zA-Z. ]+)*->[a-zA-Z. ]*$")


def axes(node: ast.keyword | ast.Call | ast.Attribute, source: Source) -> Replacements:
    """Another axis, another order of axes, axes that are not moved."""
    if isinstance(node, ast.keyword):
        if (node.arg or "").endswith("axis") and (value := _integer(node.value)) is not None:
            yield node.value, repr({0: 1, -1: -2, -2: -1}.get(value, value - 1))
    elif isinstance(node, ast.Attribute):
        if node.attr in ("T", "mT"):
            yield node, source.operand(node.value)
    else:
        name, args = last_name(node.func), node.args
        if name not in ("transpose", "permute_dims", "moveaxis", "swapaxes") or not args:
            return
        yield node, source.operand(args[0] if of_arrays(node) else node.func.value)  # pyrefly: ignore
        order = args[1:] if of_arrays(node) else args
        if order and isinstance(order[0], ast.Tuple):
            order = order[0].elts
        if name in ("transpose", "permute_dims"):
            yield from (source.swapped(*pair) for pair in itertools.pairwise(order))
        elif name == "moveaxis" and len(order) == 2:
            places = [_integer(place) for place in order]
            if None in places or abs(places[0] - places[1]) != 1:  # pyrefly: ignore[unsupported-operation]
                yield source.swapped(*order)


def _integer(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if type(value) is int else None


def subscripts(node: ast.Constant, source: Source) -> Replacements:
    """Two neighbouring letters of an einsum exchanged, unless both are summed over in one place."""
    handed = isinstance(source.parent(node), ast.Call)
    if not handed or not isinstance(node.value, str) or not EINSUM.match(node.value):
        return
    text = source.of(node)
    for place, pair in enumerate(itertools.pairwise(text)):
        seen = [text.count(letter) for letter in pair]
        if all(letter.isalpha() for letter in pair) and pair[0] != pair[1] and max(seen) > 1:
            yield node, text[:place] + pair[1] + pair[0] + text[place + 2 :]


def masks(node: ast.Call, source: Source) -> Replacements:
    """where(mask, x, y) to x; a mask that is not passed on."""
    if last_name(node.func) in ("where", "select") and len(node.args) == 3:
        yield node, source.operand(node.args[1])
        return
    handed = [] if of_arrays(node) else [arg for arg in node.args if MASK.search(source.of(arg))]
    for value in (*handed, *(part.value for part in node.keywords if MASK.search(part.arg or ""))):
        if isinstance(value, ast.Name | ast.Attribute):
            yield value, "None"


def keywords(node: ast.Call, source: Source) -> Replacements:
    """A keyword argument dropped, so that its default holds."""
    for part in node.keywords:
        if (
            part.arg
            and not source.left_out(node, part)
            and not MASK.search(part.arg)
            and not _is_type(part.arg)
        ):
            yield source.without(node, part)


def _is_type(name: str) -> bool:
    return name == "preferred_element_type" or name.endswith("dtype")


def casts(node: ast.Call, source: Source) -> Replacements:
    """A conversion dropped, or the type of a sum or a new array."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
        yield node, source.operand(node.func.value)
    elif dotted(node.func) in ("jnp.asarray", "np.asarray", "jnp.array", "np.array") and len(node.args) == 2:
        yield source.without(node, node.args[1])
    elif re.match(r"(jnp|np)\.(float|bfloat|u?int)\d+$", dotted(node.func)) and len(node.args) == 1:
        yield node, source.operand(node.args[0])
    yield from (source.without(node, part) for part in node.keywords if _is_type(part.arg or ""))


def reductions(node: ast.Call, source: Source) -> Replacements:
    """Another reduction: sum and mean, max and min, argmax and argmin, any and all; tile and repeat."""
    name = last_name(node.func)
    if isinstance(node.func, ast.Name) and name in ("sum", "max", "min"):
        yield source.renamed(node.func, {"sum": "max", "max": "min", "min": "max"}[name])
    elif isinstance(node.func, ast.Attribute | ast.Name) and (of_arrays(node) or len(node.args) <= 1):
        yield from (source.renamed(node.func, new) for new in REDUCED.get(name, ()))


def updates(node: ast.Call, source: Source) -> Replacements:
    """x.at[...].set and .add, .max and .min."""
    func = node.func
    place = func.value if isinstance(func, ast.Attribute) and func.attr in UPDATES else None
    if isinstance(place, ast.Subscript) and getattr(place.value, "attr", "") == "at":
        yield source.renamed(func, UPDATES[last_name(func)])


def initializers(node: ast.Attribute, source: Source) -> Replacements:
    """Zeros and ones, and initialisers of other scales."""
    root = dotted(node).partition(".")[0]
    if node.attr in INITIAL and root in ("jnp", "np", "nn", "jax", "initializers"):
        yield source.renamed(node, INITIAL[node.attr])


def dropped(node: ast.Call, source: Source, name: str) -> Replacements:
    """f(x) to x."""
    fitting = of_arrays(node) or name != "function dropped"
    if fitting and node.args and PASSED[name].match(last_name(node.func)):
        yield node, source.operand(node.args[0])


def layers(node: ast.Call, source: Source, word: str) -> Replacements:
    """A layer of a kind, found by its name, dropped; making one is left alone."""
    func = source.of(node.func)
    made = isinstance(node.func, ast.Call) or re.search(rf"(^|\.)[a-z_]*{word}$", func)
    if node.args and made and re.search(word, func, re.IGNORECASE) and not of_arrays(node):
        yield node, source.operand(node.args[0])


def limits(node: ast.Call, source: Source) -> Replacements:
    """maximum(x, low), minimum(x, high) and clip(x, low, high) to x."""
    name, count = last_name(node.func), len(node.args)
    if (name in ("maximum", "minimum", "clip") and of_arrays(node)) or (
        isinstance(node.func, ast.Name) and name in ("max", "min") and count == 2 and not node.keywords
    ):
        yield node, source.operand(node.args[0])
        if name != "clip":
            yield node, source.operand(node.args[1])


def orders(node: ast.Call | ast.Subscript, source: Source) -> Replacements:
    """Parts joined in another order; what is sorted or reversed left as it was."""
    if isinstance(node, ast.Subscript):
        if re.search(r"\[(\.\.\., ?)?::-1\]$", source.of(node)):
            yield node, source.operand(node.value)
        return
    name = last_name(node.func)
    if name in ("concatenate", "stack", "hstack", "vstack", "concat", "append_axes") and node.args:
        parts = node.args[0].elts if isinstance(node.args[0], ast.List | ast.Tuple) else []
        yield from (source.swapped(*pair) for pair in itertools.pairwise(parts))
    elif dotted(node.func) == "sorted":
        yield node, f"list({source.of(node.args[0])})"
    elif not of_arrays(node) and name == "sort":
        return
    yield from dropped(node, source, "order")


def deterministic(node: ast.keyword, source: Source) -> Replacements:
    """`deterministic=x` to its opposite."""
    if node.arg in ("deterministic", "train", "training") and not isinstance(node.value, ast.Constant):
        yield node.value, f"not {source.operand(node.value)}"


def keys(node: ast.Name | ast.Call | ast.Subscript, source: Source) -> Replacements:
    """Another random key of the function; `fold_in` of 0 or not at all; always the first of several keys."""
    if isinstance(node, ast.Name):
        if isinstance(source.parent(node), ast.Call | ast.keyword | ast.Tuple) and isinstance(
            node.ctx, ast.Load
        ):
            names = _keys_before(node, source)
            yield from ((node, other) for other in names if node.id in names and other != node.id)
    elif isinstance(node, ast.Subscript):
        varies = not isinstance(node.slice, ast.Constant | ast.Slice)
        if varies and source.of(node.value) in _keys_before(node, source):
            yield node.slice, "0"
    elif last_name(node.func) == "fold_in" and len(node.args) == 2:
        yield node, source.operand(node.args[0])
        yield node.args[1], "0"
    elif dotted(node.func) in ("jax.random.key", "jax.random.PRNGKey") and not isinstance(
        node.args[0], ast.Constant
    ):
        yield node.args[0], "0"


def _keys_before(node: ast.expr, source: Source) -> dict[str, None]:
    """Returns the names of random keys that the functions around a node have before it, in their order."""
    found: dict[str, None] = {}
    if "jax.random." not in source.text:
        return found
    for function in source.above(node):
        if not isinstance(function, ast.FunctionDef):
            continue
        for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs):
            kind = source.of(argument.annotation) if argument.annotation else ""
            if "Key" in kind or (not kind and re.search(r"(^|_)(key|rng)$", argument.arg)):
                found[argument.arg] = None
        for line in ast.walk(function):
            if not isinstance(line, ast.Assign) or (line.end_lineno or 0) >= node.lineno:
                continue
            if (made := _maker_of_keys(line.value, source)) is not None:
                target = line.targets[0]
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                found |= {part.id: None for part in parts if isinstance(part, ast.Name) and part.id != "_"}
                if made.args and isinstance(made.args[0], ast.Attribute):
                    found[source.of(made.args[0])] = None
    return found


def _maker_of_keys(value: ast.expr, source: Source) -> ast.Call | None:
    """Returns the call that makes an assignment's keys, for example `jax.vmap(jax.random.split)(keys)`."""
    while isinstance(value, ast.Subscript):
        value = value.value
    if isinstance(value, ast.Call) and last_name(value.func) == "moveaxis":
        value = value.args[0]
    if isinstance(value, ast.Call) and KEYS.search(source.of(value.func)):
        return value
    return None


OPERATORS = (
    Operator("axis", axes, (ast.keyword, ast.Call, ast.Attribute)),
    Operator("einsum", subscripts, (ast.Constant,)),
    Operator("mask dropped", masks, (ast.Call,)),
    Operator("keyword dropped", keywords, (ast.Call,)),
    Operator("cast dropped", casts, (ast.Call,)),
    Operator("reduction", reductions, (ast.Call,)),
    Operator("update", updates, (ast.Call,)),
    Operator("initializer", initializers, (ast.Attribute,)),
    Operator("limit dropped", limits, (ast.Call,)),
    Operator("order", orders, (ast.Call, ast.Subscript)),
    Operator("deterministic", deterministic, (ast.keyword,)),
    Operator("random key", keys, (ast.Name, ast.Call, ast.Subscript)),
    Operator("dropout dropped", lambda node, source: layers(node, source, "dropout"), (ast.Call,)),
    Operator("norm dropped", lambda node, source: layers(node, source, "norm"), (ast.Call,)),
    *(
        Operator(name, lambda node, source, name=name: dropped(node, source, name), (ast.Call,))
        for name in PASSED
        if name != "order"
    ),
)
