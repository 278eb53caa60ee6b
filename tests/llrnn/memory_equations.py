"""One step of each memory cell as in the papers: float64 NumPy, with rotations and words as matrices."""

import numpy as np
from flax import linen as nn

from llrnn import memory


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotation(n):
    """R as a matrix: column a has its one in row a + 1."""
    return (
        np.eye(n)[:, [(a - 1) % n for a in range(n)]].T @ np.eye(n)
        if n == 1
        else np.roll(np.eye(n), 1, axis=0)
    )


def reflection(n):
    matrix = np.zeros((n, n))
    for a in range(n):
        matrix[(-a) % n, a] = 1
    return matrix


def power(matrix, exponent):
    return np.linalg.matrix_power(matrix, exponent)


def word_matrix(word, zero, one):
    """Digits apply left to right: the last one is the outermost factor."""
    product = np.eye(len(zero))
    for digit in word:
        product = (zero if digit == "0" else one) @ product
    return product


def sharpened(address, logit):
    raised = (address + 1e-6) ** (1 + relu(logit))
    return raised / raised.sum()


class Heads:
    """Splits the controller's projection into heads, in the order of the widths."""

    def __init__(self, params, controller):
        self.values = controller @ params["heads"]["kernel"] + params["heads"]["bias"]
        self.at = 0

    def take(self, width):
        self.at += width
        return self.values[self.at - width : self.at]


def controller_step(cell, params, h, x, seen):
    total = seen + h @ params["hidden"]["kernel"] + x @ params["input"]["kernel"] + params["input"]["bias"]
    return relu(total) if cell.activation is nn.relu else np.tanh(total)


def write(matrix, address, add, erase):
    return matrix * (1 - np.outer(erase, address)) + np.outer(add, address)


def moves(cell, dual):
    """The operators on addresses that the controller superposes, on W or on W*."""
    n = cell.memory_size
    zero, one = rotation(n), reflection(n)
    if dual:
        zero, one = zero.T, one.T
    if isinstance(cell, memory.DihedralNTMCell):
        return [word_matrix(word, zero, one) for word in cell.words]
    return [power(zero, p) for p in (range(n) if cell.powers is None else cell.powers)]


def one_ring_step(cell, params, state, x):
    """An NTM, a dihedral NTM or an NTM of operators."""
    h, r, w, m = state
    heads = Heads(params, h)
    reads, writes = moves(cell, False), moves(cell, True)
    q, s = softmax(heads.take(len(reads))), softmax(heads.take(len(writes)))
    operators = isinstance(cell, memory.OperatorNTMCell)
    if not operators:
        add = relu(heads.take(cell.memory_width))
        erase = sigmoid(heads.take(cell.memory_width)) if cell.erase else np.zeros(cell.memory_width)
    else:
        if cell.source == "controller":
            add = heads.take(cell.features**2)
        else:
            add = np.einsum("k,kij->ij", x, params["operators"]).ravel()
        erase = (
            sigmoid(heads.take(1)) * np.ones(cell.features**2) if cell.erase else np.zeros(cell.features**2)
        )
    new_r = sum(c * move @ r for c, move in zip(q, reads, strict=True))
    new_w = sum(c * move @ w for c, move in zip(s, writes, strict=True))
    if cell.sharpen:
        new_r, new_w = sharpened(new_r, heads.take(1)), sharpened(new_w, heads.take(1))
    new_m = write(m, new_w, add, erase)
    read = new_m @ new_r if cell.read == "updated" else m @ r
    if operators:
        operator = read.reshape(cell.features, cell.features)
        if cell.max_power is None:
            seen = operator @ h
        else:
            p = softmax(heads.take(cell.max_power + 1))
            seen = sum(c * power(operator, i) @ h for i, c in enumerate(p))
    else:
        seen = read @ params["content"]["kernel"]
    assert heads.at == len(heads.values)
    return controller_step(cell, params, h, x, seen), new_r, new_w, new_m


def followed(cell, r, programs):
    """r_1 moved by the programs read, from the formulas of the later draft (as corrected)."""
    rot = rotation(cell.memory_size)
    if isinstance(cell, memory.PolynomialStepNTMCell):
        lam, mu = programs
        p = lambda matrix: sum(c * power(matrix, i) for i, c in enumerate(lam))  # noqa: E731
        total = np.zeros_like(rot)
        for weight, polynomial in zip(mu, cell.polynomials, strict=True):
            product, composed = np.eye(len(rot)), rot
            for coefficient in polynomial:
                product = power(composed, coefficient) @ product
                composed = p(composed)
            total += weight * product
        return total @ r
    steps = cell.program_powers
    x = sum(c * power(rot, s) for c, s in zip(programs[0], steps, strict=True))
    if not isinstance(cell, memory.MultiplePatternNTMCell):
        return x @ r
    y = sum(c * power(rot, s) for c, s in zip(programs[1], steps, strict=True))
    return sum(c * word_matrix(word, x, y) @ r for c, word in zip(programs[2], cell.words, strict=True))


def programmed_step(cell, params, state, x):
    """A pattern NTM, a multiple pattern NTM or a polynomial step NTM."""
    h, *old = state
    heads = Heads(params, h)
    programs = [(softmax(m.T).T if cell.squash else m) @ r for r, _, m in old[1:]]
    new, gate_inputs = [], None
    for number, (r, w, m) in enumerate(old):
        backed = [power(rotation(len(r)).T, p) for p in cell.powers]
        forward = [power(rotation(len(r)), p) for p in cell.powers]
        new_r = 0 * r
        if number or cell.direct:
            q = softmax(heads.take(len(cell.powers)))
            new_r = sum(c * move @ r for c, move in zip(q, forward, strict=True))
        s = softmax(heads.take(len(cell.powers)))
        new_w = sum(c * move @ w for c, move in zip(s, backed, strict=True))
        add = heads.take(m.shape[0])
        add = relu(add) if number == 0 or not cell.squash else add
        erase = sigmoid(heads.take(m.shape[0])) if cell.erase else np.zeros(m.shape[0])
        gammas = (heads.take(1), heads.take(1)) if cell.sharpen else None
        if number == 0:
            gate_inputs = gammas
            new.append((new_r, sharpened(new_w, gammas[1]) if gammas else new_w, add, erase, m))
        else:
            if gammas:
                new_r, new_w = sharpened(new_r, gammas[0]), sharpened(new_w, gammas[1])
            new.append((new_r, new_w, add, erase, m))
    gate = sigmoid(heads.take(1)) if cell.direct else 0.0
    first = gate * new[0][0] + (1 - gate) * followed(cell, old[0][0], programs)
    if gate_inputs:
        first = sharpened(first, gate_inputs[0])
    assert heads.at == len(heads.values)
    after = [
        (first if k == 0 else r, w, write(m, w, add, erase)) for k, (r, w, add, erase, m) in enumerate(new)
    ]
    r, m = (after[0][0], after[0][2]) if cell.read == "updated" else (old[0][0], old[0][2])
    return controller_step(cell, params, h, x, m @ r @ params["content"]["kernel"]), *after
