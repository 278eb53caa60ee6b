r"""Differential linear logic: the derivative of a program, and which terms do without it."""

from llrnn.logic.normalize import normalize
from llrnn.logic.term import IllTyped, Sum, Term, excerpt, need_terms
from llrnn.logic.terms import Ket, Zero
from llrnn.logic.tracing import banged, lam
from llrnn.logic.types import Bang, Lolli


def derivative(term: Term) -> Term:
    r"""Returns the derivative of term : !A -o B, the term \!x. \v. term |v>_x : !A -o A -o B without cuts.

    [[derivative(term)]](|>_P, v) is the directional derivative of [[term]]_nl at P along v, which `jax.jvp`
    computes from the denotation. This function differentiates the program instead (Clift & Murfet; Remark
    2.13 of Hu & Murfet 2017). B may contain further banged arguments. The derivative can be differentiated
    again: the second one has type !A -o A -o A -o B.

    Raises:
      IllTyped: the type is not of the form !A -o B.
      LinearityError: the term is closed and not a proof.
    """
    need_terms(term=term)
    of = term.type
    if not isinstance(of, Lolli) or not isinstance(of.domain, Bang):
        raise IllTyped(f"term: got `{excerpt(term)}` : {of}, expected a type !A -o B")
    point = of.domain.body
    return normalize(banged(point, lambda x: lam(point, lambda v: term(Ket(x, (v,))))))


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
