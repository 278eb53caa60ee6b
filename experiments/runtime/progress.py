"""Progress of a run for the user: a bar on a terminal, occasional lines elsewhere."""

import importlib.util
import sys
import time
from collections.abc import Mapping

import jax

_NOT_SHOWN = ("step", "grad_norm", "train_seconds")
_MOST_SHOWN = 5  # metrics.jsonl has all of them


class Progress:
    """Shows the steps done, the metrics, the speed and the time left, on the first process only."""

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
        """Opens the bar if there is a terminal.

        Args:
            name: the run's name in messages.
            step: steps already done.
            steps: total number of steps.
            max_seconds: seconds of this session after which the run stops early; 0 means no limit.
            quiet: whether to show nothing.
            every: seconds between lines when there is no terminal.
        """
        self._shown = not quiet and jax.process_index() == 0
        self._name, self._step, self._steps, self._every = name, step, steps, every
        self._first, self._max_seconds = step, max_seconds
        self._last_line = time.monotonic()
        self._bar = None
        # Without tqdm, print lines as without a terminal.
        if self._shown and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None:
            from tqdm import tqdm

            # A run that is limited by time has no known number of steps for the bar.
            total = None if max_seconds else steps
            self._bar = tqdm(total=total, initial=step, desc=name, unit="step", dynamic_ncols=True)

    def note(self, text: str) -> None:
        """Prints a message about the run to stderr, above the bar if there is one."""
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.write(f"{self._name}: {text}", file=sys.stderr)
        else:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def update(self, step: int, metrics: Mapping[str, float | None], seconds: float) -> None:
        """Shows the step and its metrics, and the speed over `seconds` of training in this session."""
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
        if self._bar is not None:
            self._bar.close()
