"""The question generator of Saxton et al. (2019), made to run on current Python, NumPy and SymPy.

`mathematics_dataset` 1.0.1 was written for Python 3.5 to 3.7 and has not changed since. What stops it today
is mended in its source text as it is imported, in its own modules only: nothing is patched into NumPy,
`random` or SymPy, where others would meet it, and no warning is silenced. Every repair names the text it
expects and how often, so another version of the package is refused instead of being half mended.
"""

import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
import types

PACKAGE = "mathematics_dataset"


@dataclasses.dataclass(frozen=True)
class Repair:
    """One piece of the package's text, what to put there, and why."""

    module: str
    """Name of the module below the package."""

    old: str
    new: str

    count: int
    """How often `old` occurs."""

    why: str


REPAIRS = (
    Repair(
        "sample.polynomials",
        "from sympy.solvers.diophantine import base_solution_linear",
        "from sympy.solvers.diophantine.diophantine import base_solution_linear",
        1,
        "SymPy 1.6 made a package of the module",
    ),
    Repair("sample.polynomials", "np.object", "object", 3, "NumPy 1.24 removed the alias"),
    Repair(
        "sample.polynomials",
        "coeffs.itemset(index, value)",
        "coeffs[index] = value",
        1,
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "sample.polynomials",
        "expanded_coefficients.itemset(power, coeffs)",
        "expanded_coefficients[power] = coeffs",
        1,
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "modules.numbers",
        "remainder_divisor / 2",
        "remainder_divisor // 2",
        2,
        "Python 3.12 refuses floats in random.randint; half a power of ten is whole",
    ),
    # These three change no question's probability. Without them a question depends on the hash seed of the
    # process and on memory addresses, and a seed would not determine it.
    Repair(
        "util.composition",
        "random.choice(list(allowed))",
        "random.choice(sorted(allowed))",
        1,
        "the order of a set of letters differs from process to process",
    ),
    Repair(
        "util.composition",
        "entities = set(context.child_entities)",
        "entities = dict.fromkeys(context.child_entities)",
        1,
        "the order of a set of objects follows their addresses",
    ),
    Repair(
        "util.composition",
        "entities.add(maybe_entity)",
        "entities[maybe_entity] = None",
        1,
        "goes with the one above",
    ),
)

_lock = threading.Lock()


def _repaired_source(name: str, source: str) -> str:
    """The text of a module with its repairs made.

    Raises:
        ImportError: the text is not the one the repairs were written for.
    """
    for repair in REPAIRS:
        if f"{PACKAGE}.{repair.module}" != name:
            continue
        if (found := source.count(repair.old)) != repair.count:
            raise ImportError(
                f"{name}: {repair.old!r} occurs {found} times where {repair.count} were expected; the "
                f"repairs are written for {PACKAGE} 1.0.1",
                name=name,
            )
        source = source.replace(repair.old, repair.new)
    return source


def _import_repaired(name: str) -> None:
    """Imports one module of the package from its repaired text."""
    spec = importlib.util.find_spec(name)
    if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        raise ImportError(f"{name}: its source is not there to be repaired", name=name)
    source = spec.loader.get_source(name)
    if source is None or spec.origin is None:
        raise ImportError(f"{name}: its source is not there to be repaired", name=name)
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
    names = list(dict.fromkeys(f"{PACKAGE}.{repair.module}" for repair in REPAIRS))
    if early := [name for name in names if name in sys.modules]:
        raise ImportError(f"{', '.join(early)} was imported before it could be repaired", name=early[0])
    # In an order in which no repaired module is imported, unrepaired, by another.
    _import_repaired(f"{PACKAGE}.sample.polynomials")
    _import_repaired(f"{PACKAGE}.util.composition")
    _import_repaired(f"{PACKAGE}.modules.numbers")
    return importlib.import_module(f"{PACKAGE}.modules.modules")


def import_generator() -> types.ModuleType:
    """The package's `modules.modules`, repaired; imported at the first call, which takes a second or two.

    Raises:
        ImportError: the package is missing, is another version, or was imported unrepaired by someone else.
    """
    with _lock:
        return _import_once()
