"""Recursion without Python's stack, for terms as deep as the numeral 500.

A numeral is as deep as its number, and Python's stack holds a thousand calls. A function marked `@stackless`
is written as a recursion with `yield` before each recursive call; the pending calls are then in a list
instead of on the stack.
"""

import functools
from collections.abc import Callable, Generator, Iterable
from typing import Any

type Steps[R] = Generator[Any, Any, R]


class stackless:
    """A decorator of recursive functions: `value = yield f.steps(...)` inside `f`, `f(...)` elsewhere."""

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


def steps_of(function: Callable[..., Any], *arguments: Any) -> Steps[Any]:
    """Calls any function, under `yield`; if the function is `stackless`, the call is a recursive one."""
    if isinstance(function, stackless):
        return (yield function.steps(*arguments))
    return function(*arguments)


def each[R](calls: Iterable[Steps[R]]) -> Steps[list[R]]:
    """Makes several recursive calls in order, under `yield from`, and returns the list of results."""
    results = []
    for call in calls:
        results.append((yield call))
    return results
