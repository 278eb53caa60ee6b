r"""The master programs of recurrent networks with a memory: the Neural Turing Machine, a stack and a tape.

The masters of the second-order and the higher-order RNN are `dereliction` and `evaluate`.
"""

from llrnn.logic.term import Term
from llrnn.logic.terms import Fst, LetStar, Snd
from llrnn.logic.tracing import Body, bang, banged, both, lam
from llrnn.logic.types import Lolli, One, Type, With, endo, integer


def dual(a: Type) -> Lolli:
    """Returns A -o 1, the type of linear functionals on A."""
    return Lolli(a, One)


def ntm_state(first: Type, address: Type, content: Type) -> With:
    """Returns the type of states, first & (W & (W' & M)), with W' = W -o 1 and the memory M = W -o V.

    W is the type of read addresses, W' of write addresses, V of the memory's contents.
    """
    return With(first, With(address, With(dual(address), Lolli(address, content))))


def ntm_master(hidden: Type, address: Type, content: Type) -> Term:
    r"""Returns the master of the Neural Turing Machine (Example 2.10), with two corrections.

    It maps ([[m]], [[n]], alpha, beta, u) and the state (h, r, w, M) to

        (M'(r'), r', w', M')   with r' = alpha^m(r), w' = beta^n(w), M' = M + w' (x) u.

    The draft asks for a proof of A -o A with first component M(r) + w'(r') u. No such proof exists: r, w and
    M are used more than once, so the state has to be banged. And by (2.15) the machine reads the updated
    memory at the updated address, M'(r') = M(r') + w'(r') u. The memory's update is a sum of two proofs,
    which needs differential linear logic (`is_plain` returns False for this term).

    Its type is !int_W -o !int_W' -o !(W -o W) -o !(W' -o W') -o !V -o !S -o S', with S = H0 & (W & (W' & M))
    and S' = V & (W & (W' & M)).

    Args:
      hidden: H0, the type of h.
      address: W, the type of read addresses.
      content: V, the type of the memory's contents.
    """
    w_dual = dual(address)

    def step(m: Term, n: Term, alpha: Term, beta: Term, u: Term, s: Term) -> Term:
        r = m(bang(alpha))(Fst(Snd(s)))
        w = n(bang(beta))(Fst(Snd(Snd(s))))
        memory = lam(address, lambda a: Snd(Snd(Snd(s)))(a) + LetStar(w(a), u))
        return both(memory(r), r, w, memory)

    return banged(
        integer(address),
        integer(w_dual),
        endo(address),
        endo(w_dual),
        content,
        ntm_state(hidden, address, content),
        step,
    )


def stack_actions(address: Type, content: Type) -> tuple[Term, Term, Term]:
    r"""Returns push, pop and keep : !E -o !E -o !W' -o !V -o !M -o M, with E = W -o W and M = W -o V.

    At (down, up, top, u, M) they are a -> M(down(a)) + top(a) u, a -> M(up(a)) and M. `down` maps the address
    of a place to that of the place before it, and the top's to 0; `up` to that of the place after it, and the
    last one's to 0.
    """
    e, memory = endo(address), Lolli(address, content)

    def action(body: Body) -> Term:
        return banged(e, e, dual(address), content, memory, lambda down, up, top, u, m: lam(
            address, lambda a: body(down, up, top, u, m, a)
        ))  # fmt: skip

    return (
        action(lambda down, up, top, u, m, a: m(down(a)) + LetStar(top(a), u)),
        action(lambda down, up, top, u, m, a: m(up(a))),
        action(lambda down, up, top, u, m, a: m(a)),
    )


def stack_master(hidden: Type, address: Type, content: Type) -> Term:
    r"""Returns the master of the Stack-RNN (Joulin & Mikolov 2015).

    It maps an action, down, up, top (see `stack_actions`), the address t of the top, u, C : V -o H0 and the
    state (h, M) to (C M'(t), M') with M' = action(down, up, top, u, M).

    Args:
      hidden: H0, the type of h.
      address: W, the type of places.
      content: V, the type of the content of a place.
    """
    memory = Lolli(address, content)

    def step(action: Term, down: Term, up: Term, top: Term, t: Term, u: Term, c: Term, s: Term) -> Term:
        new = action(bang(down), bang(up), bang(top), bang(u), bang(Snd(s)))
        return both(c(new(t)), new)

    return banged(
        stack_actions(address, content)[0].type,
        endo(address),
        endo(address),
        dual(address),
        address,
        content,
        Lolli(content, hidden),
        With(hidden, memory),
        step,
    )


def tape_moves(address: Type) -> tuple[Term, ...]:
    r"""Returns the five programs stay, left, right, jump left and jump right : !E -o !E -o !E -o !E -o E.

    At (R, R', J, J') they are the identity, R, R', J and J'.
    """
    e = endo(address)

    def move(chosen: Body) -> Term:
        return banged(e, e, e, e, chosen)

    return (
        move(lambda left, right, jump, back: lam(address, lambda a: a)),
        move(lambda left, right, jump, back: left),
        move(lambda left, right, jump, back: right),
        move(lambda left, right, jump, back: jump),
        move(lambda left, right, jump, back: back),
    )


def tape_master(hidden: Type, address: Type, content: Type) -> Term:
    r"""Returns the master of the Tape-RNN (Deletang et al. 2022).

    It maps a move (see `tape_moves`), the numeral c that the input adds to the length, the rotation R and its
    inverse R', the functional first : W -o 1 of the head's place, the map others : W -o W that is 0 there and
    the identity elsewhere, the head's place t, the map numeral : W -o int, u, C : V -o H0, and the state
    (h, d, M) to

        (C M'(t), d', M')   with d' = c(R)(d), n = numeral(d'), and
                            M' = (M others + first (x) u) move(R, R', n(R), n(R')).

    d is the length of the input as a place: a jump is a power of the rotation, and its exponent is a numeral
    that is read from the state, as in the authors' pattern machines.

    Args:
      hidden: H0, the type of h.
      address: W, the type of places.
      content: V, the type of the content of a place.
    """
    e, memory = endo(address), Lolli(address, content)

    def step(
        move: Term, c: Term, r: Term, back: Term, first: Term, others: Term, t: Term, numeral: Term, u: Term,
        out: Term, s: Term,
    ) -> Term:  # fmt: skip
        length = c(bang(r))(Fst(Snd(s)))
        moved = move(bang(r), bang(back), bang(numeral(length)(bang(r))), bang(numeral(length)(bang(back))))

        def content_at(a: Term) -> Term:
            written = lam(address, lambda b: Snd(Snd(s))(others(b)) + LetStar(first(b), u))
            return written(moved(a))

        new = lam(address, content_at)
        return both(out(new(t)), length, new)

    return banged(
        tape_moves(address)[0].type,
        integer(address),
        e,
        e,
        dual(address),
        e,
        address,
        Lolli(address, integer(address)),
        content,
        Lolli(content, hidden),
        With(hidden, With(address, memory)),
        step,
    )
