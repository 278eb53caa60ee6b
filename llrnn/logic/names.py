"""Fresh names of variables, renaming, and the test for plain linear logic."""

from collections.abc import Set

from llrnn.logic.stackless import Steps, stackless
from llrnn.logic.terms import Ket, Sum, Term, Var, Zero


def fresh(hint: str, avoid: Set[str]) -> str:
    """Returns the first of hint, hint1, hint2, .. that is not in `avoid`."""
    if hint not in avoid:
        return hint
    stem, number = hint.rstrip("0123456789") or "x", 1
    while f"{stem}{number}" in avoid:
        number += 1
    return f"{stem}{number}"


@stackless
def rename(term: Term, names: dict[str, str]) -> "Steps[Term]":
    """Renames free variables of a term; the new names must not occur in it, not even bound."""
    if not any(name in term.free for name in names):
        return term
    if isinstance(term, Var):
        return Var(names[term.name], term.of)
    children = []
    for place, child in enumerate(term.children):
        hidden = term.bound if place == len(term.children) - 1 else ()
        visible = {old: new for old, new in names.items() if old not in hidden}
        children.append((yield rename.steps(child, visible)))
    return term.remake(term.bound, tuple(children))


def is_plain(term: Term) -> bool:
    """Returns whether the term is plain linear logic: no sum, no zero, no ket with tangent vectors."""
    pending, seen = [term], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, (Sum, Zero)) or (isinstance(node, Ket) and node.vectors):
            return False
        pending.extend(node.children)
    return True
