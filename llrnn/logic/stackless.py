"""Recursion without Python's stack, so that the numeral 500 is as good a term as the numeral 2.

A program is as deep as the number it computes, and Python's stack is a thousand calls. A function marked
`@stackless` is written as the recursion it is, with `yield` before each recursive call; the pending calls
then live in a list instead of on the stack.
"""

import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any

type Steps[R] = Generator[Any, Any, R]


class stackless:
    """Decorator: `value = yield f.steps(...)` inside `f`, plain `f(...)` outside."""

    def __init__(self, function: Callable[..., Steps[Any]]):
        self.steps = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pending = [self.steps(*args, **kwargs)]
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


def each[R](calls: Iterable[Steps[R]]) -> Steps[list[R]]:
    """Steps that make several recursive calls in order, for `yield from`; they return the results."""
    results = []
    for call in calls:
        results.append((yield call))
    return results
