"""What a person sees while a run goes on: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Mapping

import jax
from tqdm import tqdm


class Progress:
    """Shows steps done, the loss, the speed and the time left, on the first process only."""

    def __init__(self, name: str, step: int, steps: int, *, quiet: bool = False, every: float = 10.0):
        """Starts showing.

        Args:
            name: what the run is called.
            step: steps done already.
            steps: steps in all.
            quiet: show nothing.
            every: seconds between lines where there is no terminal.
        """
        self._shown = not quiet and jax.process_index() == 0
        self._name, self._step, self._steps, self._every = name, step, steps, every
        self._first = step
        self._last_line = time.monotonic()
        self._bar = None
        if self._shown and sys.stderr.isatty():
            self._bar = tqdm(total=steps, initial=step, desc=name, unit="step", dynamic_ncols=True)

    def note(self, text: str) -> None:
        """Says something once."""
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.write(f"{self._name}: {text}", file=sys.stderr)
        else:
            print(f"{self._name}: {text}", file=sys.stderr, flush=True)

    def update(self, step: int, metrics: Mapping[str, float | None], seconds: float) -> None:
        """Shows that `step` steps are done.

        Args:
            step: steps done.
            metrics: what to show of them.
            seconds: time this session has spent on its steps, for the speed.
        """
        if not self._shown:
            return
        shown = ", ".join(
            f"{name} {value:.4g}" for name, value in metrics.items() if value is not None and name != "step"
        )
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(step - self._step)
            self._bar.set_postfix_str(shown)
        elif now - self._last_line >= self._every or step >= self._steps:
            self._last_line = now
            speed = (step - self._first) / max(seconds, 1e-9)
            left = (self._steps - step) / max(speed, 1e-9)
            self.note(f"step {step}/{self._steps}, {shown}, {speed:.3g} steps/s, {left:.0f} s left")
        self._step = step

    def close(self) -> None:
        """Ends the bar."""
        if self._bar is not None:
            self._bar.close()
