"""Recursion without Python's stack, so that the numeral 500 is as good a term as the numeral 2.

A program is as deep as the number it computes, and Python's stack is a thousand calls. A function marked
`@stackless` is written as the recursion it is, with `yield` before each recursive call; the pending calls
then live in a list instead of on the stack.
"""

import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

type Steps[R] = Generator[Any, Any, R]


def drive(steps: "Steps[T]") -> T:
    """Run a generator that yields the generators of its recursive calls; returns what it returns."""
    pending: list[Generator[Any, Any, Any]] = [steps]
    value: Any = None
    while pending:
        try:
            call = pending[-1].send(value)
        except StopIteration as finished:
            pending.pop()
            value = finished.value
        else:
            pending.append(call)
            value = None
    return value


def each(calls: "Iterable[Steps[T]]") -> "Steps[list[T]]":
    """Steps that make several recursive calls in order, for `yield from`; they return the results."""
    results = []
    for call in calls:
        results.append((yield call))
    return results


class Stackless:
    """A generator function that `drive` runs when it is called; `.steps(..)` is the call to yield in one."""

    def __init__(self, function: Callable[..., "Steps[Any]"]):
        self.steps = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return drive(self.steps(*args, **kwargs))


def stackless(function: "Callable[P, Steps[T]]") -> Stackless:
    """Decorator: `value = yield f.steps(...)` inside `f`, plain `f(...)` outside."""
    return Stackless(function)
