"""What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere."""

import importlib.util
import sys
import time
from collections.abc import Mapping

import jax

_NOT_SHOWN = ("step", "grad_norm", "train_seconds")
_MOST_SHOWN = 5  # a line is read at a glance; all of them are in the record


class Progress:
    """Shows steps done, the loss, the speed and the time left, on the first process only."""

    def __init__(
        self,
        name: str,
        step: int,
        steps: int,
        *,
        max_seconds: float = 0.0,
        quiet: bool = False,
        every: float = 10.0,
    ):
        """Starts showing.

        Args:
            name: what the run is called.
            step: steps done already.
            steps: steps in all.
            max_seconds: seconds of this session after which the run stops before its last step; 0: none.
            quiet: show nothing.
            every: seconds between lines where there is no terminal.
        """
        self._shown = not quiet and jax.process_index() == 0
        self._name, self._step, self._steps, self._every = name, step, steps, every
        self._first, self._max_seconds = step, max_seconds
        self._last_line = time.monotonic()
        self._bar = None
        # Without tqdm there are lines, as there are without a terminal.
        if self._shown and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None:
            from tqdm import tqdm

            # A run that the clock will stop has no known number of steps to fill the bar with.
            total = None if max_seconds else steps
            self._bar = tqdm(total=total, initial=step, desc=name, unit="step", dynamic_ncols=True)

    def note(self, text: str) -> None:
        """Says something once."""
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.write(f"{self._name}: {text}", file=sys.stderr)
        else:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def update(self, step: int, metrics: Mapping[str, float | None], seconds: float) -> None:
        """Shows that `step` steps are done, their metrics, and the speed over `seconds` of this session."""
        if not self._shown:
            return
        known = [
            f"{name} {value:.4g}"
            for name, value in metrics.items()
            if value is not None and name not in _NOT_SHOWN
        ]
        shown = ", ".join(known[:_MOST_SHOWN])
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(step - self._step)
            self._bar.set_postfix_str(shown)
        elif now - self._last_line >= self._every or step >= self._steps:
            self._last_line = now
            speed = (step - self._first) / max(seconds, 1e-9)
            left, of = (self._steps - step) / max(speed, 1e-9), f"/{self._steps}"
            if self._max_seconds and (remaining := max(0.0, self._max_seconds - seconds)) < left:
                left, of = remaining, ""
            self.note(f"step {step}{of}, {shown}, {speed:.3g} steps/s, {left:.0f} s left")
        self._step = step

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
