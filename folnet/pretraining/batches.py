"""Batches of pretraining examples, each a function of its step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from folnet.pretraining.masks import Masking, max_predictions
from folnet.pretraining.pairs import NO_LABEL, SWAPPED, another_document, check_objective, cut, segment_of
from folnet.pretraining.windows import SPECIAL, Window, Windows
from folnet.settings import at_least
from folnet.tokenization import Inputs, WordPieceTokenizer

if TYPE_CHECKING:
    import grain

_ENDLESS = 2**40  # batches; also examples of an epoch, at most


class PretrainingBatch(NamedTuple):
    """What a step of pretraining is given. B examples, T tokens, P places for predictions."""

    input_ids: Int32[np.ndarray, "B T"]
    """[CLS] first [SEP] second [SEP], masked; then padding."""
    token_type_ids: Int32[np.ndarray, "B T"]
    """1 in the second segment and at its [SEP], 0 elsewhere, so also in the padding."""
    attention_mask: Bool[np.ndarray, "B T"]
    """True at tokens. FOLNet as released does not look at it."""
    mlm_positions: Int32[np.ndarray, "B P"]
    """Where tokens are to be predicted; 0 in places that are not needed."""
    mlm_labels: Int32[np.ndarray, "B P"]
    """Those tokens; -1 in places that are not needed."""
    next_sentence_label: Int32[np.ndarray, "B"]
    """0 as it was, 1 swapped or another document's, -1 not asked; see `pairs`."""


class PretrainingBatches:
    """The batches of a run: `batches(step)` is a function of the step and the arguments below, nothing else.

    So a run that is continued goes on with the very batches it would have had. The examples of an epoch are a
    permutation of the windows, and one epoch follows the other without a gap: each window is used once in
    each, whatever the batch size; a batch may have the end of one epoch and the beginning of the next.
    """

    def __init__(
        self,
        windows: Windows,
        tokenizer: WordPieceTokenizer,
        batch_size: int,
        *,
        objective: str = "sop",
        cut: str | None = None,
        mask_rate: float = 0.15,
        predictions: int | None = None,
        whole_words: bool = False,
        dynamic: bool = True,
        seed: int = 0,
        shuffle: bool = True,
        repeat: bool = True,
        process_index: int = 0,
        process_count: int = 1,
    ):
        """Plans the batches; reads at most one window.

        Args:
            windows: the text, prepared.
            tokenizer: which made its tokens.
            batch_size: examples a batch, over all hosts, B.
            objective: `sop`, `nsp`, `pair` or `single`; see `pairs`.
            cut: where windows are cut in two, `middle` or `sentence`; by default the middle for `sop`, as
                released, and between sentences otherwise.
            mask_rate: part of the tokens to be predicted.
            predictions: places for them, P; by default `max_predictions(T)`.
            whole_words: whether words are masked whole.
            dynamic: whether an example is drawn anew in each epoch; otherwise always as in the first.
            seed: of all that is drawn.
            shuffle: another order in each epoch; otherwise the windows' own.
            repeat: without end; otherwise one epoch, whose last batch has empty rows if need be.
            process_index: which host this is; it gives its rows of each batch.
            process_count: how many there are; must divide `batch_size`.

        Raises:
            ValueError: an argument is wrong: which, and what was expected.
        """
        self.objective = objective
        self.cut = cut or ("middle" if objective == "sop" else "sentence")
        check_objective(objective, self.cut, windows)
        if not len(windows):
            raise ValueError("windows must have at least one window, got none")
        if windows.vocabulary != tokenizer.fingerprint:
            raise ValueError(
                f"tokenizer must be the one that made the windows (vocabulary {windows.vocabulary}), got "
                f"another ({tokenizer.fingerprint})"
            )
        if not len(tokenizer.ordinary_ids):
            raise ValueError("tokenizer must have pieces beside the special tokens, got none")
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed must be in 0 .. {2**32 - 1}, got {seed}")
        at_least(1, batch_size=batch_size)
        if not 0 <= process_index < process_count:
            raise ValueError(f"process_index must be in 0 .. {process_count - 1}, got {process_index}")
        if batch_size % process_count:
            raise ValueError(f"batch_size={batch_size} must be a multiple of process_count={process_count}")
        self.windows, self.tokenizer, self.batch_size, self.seed = windows, tokenizer, batch_size, seed
        self.length = windows.room + SPECIAL
        """Tokens of an example, T."""
        self.masking = Masking(
            mask_rate, max_predictions(self.length) if predictions is None else predictions, whole_words
        )
        self._dynamic, self._repeat = dynamic, repeat
        import grain  # here: what only needs the objective does without it

        order = grain.MapDataset.range(len(windows))
        if shuffle:
            order = order.shuffle(seed=seed)
        self._order: Any = order.repeat()  # typed as if an element could be missing
        rows = batch_size // process_count
        self._rows = range(process_index * rows, (process_index + 1) * rows)

    def __len__(self) -> int:
        """Batches of an epoch; the last may reach into the next epoch, or have empty rows."""
        return -(-len(self.windows) // self.batch_size)

    def examples(self, step: int) -> list[tuple[int, int]]:
        """The epoch and window of each row this host has of a batch, without empty ones; or ValueError."""
        if step < 0 or (not self._repeat and step >= len(self)):
            last = "" if self._repeat else f" .. {len(self) - 1}"
            raise ValueError(f"step must be in 0{last or ' and above'}, got {step}")
        positions = [step * self.batch_size + row for row in self._rows]
        if not self._repeat:
            positions = [position for position in positions if position < len(self.windows)]
        return [(position // len(self.windows), int(self._order[position])) for position in positions]

    def __call__(self, step: int | np.integer) -> PretrainingBatch:
        """The rows this host has of the batch at a step, from 0 over all epochs; or ValueError if damaged."""
        chosen = self.examples(int(step))
        windows = self.windows.take([index for _, index in chosen])
        draws = np.empty((len(self._rows), 3, self.length))
        pairs: list[tuple[np.ndarray, np.ndarray | None]] = []
        labels = np.full(len(self._rows), NO_LABEL, np.int32)
        generators = [self._generator(epoch, index) for epoch, index in chosen]
        for row, (window, rng) in enumerate(zip(windows, generators, strict=True)):
            draws[row] = rng.random((3, self.length))
            first, second, labels[row] = self._halves(window, rng)
            pairs.append((first, second))
        if self.objective == "nsp":
            self._replace(chosen, windows, generators, pairs, labels)
        draws[len(chosen) :] = 0  # rows without an example
        ids, types, mask = self._assemble(pairs)
        masked = self.masking(ids, draws, self.tokenizer)
        return PretrainingBatch(masked.input_ids, types, mask, masked.positions, masked.labels, labels)

    def _generator(self, epoch: int, index: int) -> np.random.Generator:
        """Random numbers of one example, whatever batch or host it is on; one Philox key for each."""
        epoch = epoch if self._dynamic else 0
        key = np.asarray([self.seed, epoch * _ENDLESS + index], np.uint64)
        return np.random.Generator(np.random.Philox(key=key))

    def _halves(self, window: Window, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray | None, int]:
        if self.objective == "single":
            return window.tokens, None, NO_LABEL
        place = cut(window, self.cut, rng)
        first, second = window.tokens[:place], window.tokens[place:]
        if self.objective == "pair":
            return first, second, NO_LABEL
        other = int(rng.random() < SWAPPED)
        if self.objective == "sop" and other:
            first, second = second, first
        return first, second, other

    def _replace(
        self,
        chosen: list[tuple[int, int]],
        windows: list[Window],
        generators: list[np.random.Generator],
        pairs: list[tuple[np.ndarray, np.ndarray | None]],
        labels: Int32[np.ndarray, "B"],
    ) -> None:
        """Puts text of other documents into the rows whose second segment is not to follow the first."""
        rows = [row for row in range(len(chosen)) if labels[row] == 1]
        found = {
            row: another_document(chosen[row][1], windows[row], len(self.windows), generators[row])
            for row in rows
        }
        drawn = dict(zip(rows, self.windows.take(list(found.values())), strict=True))
        # A sentence near a window's end goes on in the next one of its document.
        more = [row for row in rows if drawn[row].place + 1 < drawn[row].count]
        following = dict(zip(more, self.windows.take([found[row] + 1 for row in more]), strict=True))
        for row in rows:
            tokens, starts = drawn[row].tokens, drawn[row].starts.astype(np.int64)
            if row in following:
                tokens = np.concatenate([tokens, following[row].tokens])
            first = pairs[row][0]
            size = len(windows[row].tokens) - len(first)
            pairs[row] = first, segment_of(tokens, starts, size, generators[row])

    def _assemble(self, pairs: list[tuple[np.ndarray, np.ndarray | None]]) -> Inputs:
        """The pairs with their marks; rows of padding where there is no example."""
        first = [pair[0] for pair in pairs]
        second = None if self.objective == "single" else [pair[1] for pair in pairs if pair[1] is not None]
        inputs = self.tokenizer.assemble(first, second, length=self.length)
        if empty := len(self._rows) - len(pairs):
            filled = zip(inputs, (self.tokenizer.pad_id, 0, False), strict=True)
            inputs = Inputs(*(np.pad(a, ((0, empty), (0, 0)), constant_values=value) for a, value in filled))
        return inputs

    def __iter__(self) -> Iterator[PretrainingBatch]:
        """The batches of the first epoch."""
        return map(self, range(len(self)))

    def dataset(
        self, steps: int | None = None, *, threads: int = 2, ahead: int = 4, workers: int = 0
    ) -> "grain.IterDataset[PretrainingBatch]":
        """The batches as a Grain dataset that works ahead.

        Its iterators know their position (`get_state`, `set_state`), a small dictionary that is the same on
        all hosts. Or give no thought to it: the batch of a step is `batches(step)`.

        Args:
            steps: how many batches; by default without end, or the one epoch.
            threads: that read and draw at the same time.
            ahead: batches made in advance.
            workers: processes that do so beside this one; 0: none. Grain wants absl's flags parsed for that,
                as they are in a program started by `absl.app.run`.

        Raises:
            ValueError: a number is too small.
        """
        if steps is None:
            steps = _ENDLESS if self._repeat else len(self)
        at_least(1, threads=threads, ahead=ahead)
        at_least(0, workers=workers, steps=steps)
        import grain  # here: it is slow to import, and training does without

        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(ahead, threads))
        batches = grain.MapDataset.range(steps).map(self.__call__).to_iter_dataset(options)
        if workers:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
        return batches
