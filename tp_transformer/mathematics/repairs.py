"""The question generator of Saxton et al. (2019), patched to run on current Python, NumPy and SymPy.

`mathematics_dataset` 1.0.1 was written for Python 3.5 to 3.7 and is no longer maintained. Its
incompatibilities are fixed in its source text while it is imported, in its own modules only: NumPy, `random`
and SymPy are not patched, so other users are unaffected, and no warning is silenced. Every repair states the
text it expects and its number of occurrences, so another version of the package is rejected instead of being
patched in part.
"""

import collections
import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
import math
import sys
import threading
import types
from typing import Any

import logic_zoo

PACKAGE = "mathematics_dataset"


@dataclasses.dataclass(frozen=True)
class Repair:
    """A piece of the package's source, its replacement, and the reason."""

    module: str
    """Name of the module below the package."""

    old: str
    new: str
    why: str

    count: int = 1
    """Number of occurrences of `old`."""


_REPAIRS = (
    Repair(
        "sample.polynomials",
        "from sympy.solvers.diophantine import base_solution_linear",
        "from sympy.solvers.diophantine.diophantine import base_solution_linear",
        "SymPy 1.6 turned the module into a package",
    ),
    Repair("sample.polynomials", "np.object", "object", "NumPy 1.24 removed the alias", 3),
    Repair(
        "sample.polynomials",
        "coeffs.itemset(index, value)",
        "coeffs[index] = value",
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "sample.polynomials",
        "expanded_coefficients.itemset(power, coeffs)",
        "expanded_coefficients[power] = coeffs",
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "modules.numbers",
        "remainder_divisor / 2",
        "remainder_divisor // 2",
        "Python 3.12 rejects floats in random.randint; half a power of ten is an integer",
        2,
    ),
    # The next three change no question's probability. Without them, questions depend on the process's hash
    # seed and on memory addresses, and the seed would not determine them.
    Repair(
        "util.composition",
        "random.choice(list(allowed))",
        "random.choice(sorted(allowed))",
        "the order of a set of letters differs between processes",
    ),
    Repair(
        "util.composition",
        "entities = set(context.child_entities)",
        "entities = dict.fromkeys(context.child_entities)",
        "the order of a set of objects depends on their addresses",
    ),
    Repair(
        "util.composition",
        "entities.add(maybe_entity)",
        "entities[maybe_entity] = None",
        "needed by the previous repair",
    ),
)

_SHORTCUTS = (
    Repair(
        "sample.number",
        "sympy.gcd(value, coprime_to) == 1",
        "math.gcd(value, coprime_to) == 1",
        "SymPy converts both integers to polynomials first; every module draws integers",
    ),
    Repair(
        "sample.polynomials",
        "if polynomial.is_constant():",
        "if not polynomial.free_symbols:",
        "the polynomial is expanded, so this needs no simplification",
    ),
    Repair(
        "modules.comparison",
        "len(sympy.FiniteSet(*values)) == len(values)",
        "len(set(map(sympy.sympify, values))) == len(values)",
        "a FiniteSet is also sorted",
    ),
    Repair(
        "modules.probability",
        """    event_in_space = random_variable.inverse(event)
    if too_big(event_in_space):
      continue
    answer = space.probability(event_in_space)
""",
        """    size, answer = size_and_probability(random_variable, event)
    if size > int(2e5):
      continue
""",
        "formulas replace enumeration, which visits up to millions of sequences",
    ),
    Repair(
        "modules.probability",
        "import numpy as np\n",
        "import numpy as np\nfrom tp_transformer.mathematics.repairs import size_and_probability\n",
        "needed by the previous repair",
    ),
)

REPAIRS = _REPAIRS + _SHORTCUTS
"""Repairs without which the package does not run or does not follow the seed, and shortcuts, which change no
question.

With the shortcuts the whole training set takes 71 core hours instead of 137, and the extrapolation tests 20
minutes instead of six and a half hours.
"""

_ORDER = (
    "sample.number",
    "sample.polynomials",
    "util.composition",
    "modules.comparison",
    "modules.numbers",
    "modules.probability",
)
"""The modules with repairs, in an order in which none is imported, unrepaired, by an earlier one."""

_lock = threading.Lock()


def _repaired_source(name: str, source: str) -> str:
    """Applies the repairs to a module's source; raises ImportError if they are for another version."""
    for repair in REPAIRS:
        if f"{PACKAGE}.{repair.module}" != name:
            continue
        if (found := source.count(repair.old)) != repair.count:
            raise ImportError(
                f"{name}: got {found} occurrences of {repair.old!r}, expected {repair.count}; the repairs "
                f"are for {PACKAGE} 1.0.1",
                name=name,
            )
        source = source.replace(repair.old, repair.new)
    return source


def _import_repaired(name: str) -> None:
    """Imports one module of the package from its repaired source."""
    spec = importlib.util.find_spec(name)
    loader = spec and spec.loader
    source = loader.get_source(name) if isinstance(loader, importlib.machinery.SourceFileLoader) else None
    if spec is None or source is None or spec.origin is None:
        raise ImportError(f"{name}: got no source code, expected some to repair", name=name)
    module = importlib.util.module_from_spec(spec)
    code = compile(_repaired_source(name, source), spec.origin, "exec", dont_inherit=True)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


@functools.cache
def _import_once() -> types.ModuleType:
    names = [f"{PACKAGE}.{module}" for module in _ORDER]
    if early := [name for name in names if name in sys.modules]:
        raise ImportError(f"{', '.join(early)}: imported before the repairs could be applied", name=early[0])
    for name in names:
        _import_repaired(name)
    return importlib.import_module(f"{PACKAGE}.modules.modules")


def import_generator() -> types.ModuleType:
    """Returns the package's `modules.modules`, repaired; the first call takes a second or two.

    Raises:
        ImportError: the package is missing, has another version, or was already imported unrepaired.
    """
    with _lock, logic_zoo.extra("data"):
        return _import_once()


def size_and_probability(random_variable: Any, event: Any) -> tuple[int, Any]:
    """Replaces enumeration in the probability modules: letters drawn from a bag without replacement.

    The event takes c_a of the m_a letters a, k of n letters in total. In a given order there are
    prod_a m_a^c_a ways to take them with replacement and prod_a m_a! / (m_a - c_a)! ways without, out of
    n! / (n - k)! ways to take any k letters. If the order is free, there are k! / prod_a c_a! orders.

    Args:
        random_variable: the package's `FiniteProductRandomVariable` of k equal draws from the bag.
        event: the package's `FiniteProductEvent` of single letters (a sequence) or `CountLevelSetEvent`
            (counts).

    Returns:
        The number of sequences of places in the bag that realise the event, including those that use a place
        twice (the package compares it with its limit for enumeration), and the probability, a SymPy rational.
    """
    import sympy

    (draw,) = set(random_variable._random_variables)
    bag = {letter: len(places) for letter, places in draw._inverse.items()}
    if hasattr(event, "counts"):
        taken = event.counts
        orders = math.factorial(sum(taken.values())) // math.prod(map(math.factorial, taken.values()))
    else:
        taken = collections.Counter(letter for place in event.events for letter in place.values)
        orders = 1
    size = orders * math.prod(bag.get(letter, 0) ** count for letter, count in taken.items())
    ways = orders * math.prod(math.perm(bag.get(letter, 0), count) for letter, count in taken.items())
    return size, sympy.Rational(ways, math.perm(sum(bag.values()), sum(taken.values())))
