"""Runs a model exported by `experiments.export`; needs only JAX, NumPy and flatbuffers.

    python -m experiments.exporting.run_exported agent.jaxmodel --describe
    echo '{"text": "What is 2 + 2?"}' | python -m experiments.exporting.run_exported solver.jaxmodel
    python -m experiments.exporting.run_exported agent.jaxmodel --input=boards.npz --output=answers.npz

This file imports nothing else of its project: it also runs as a plain script, copied next to the model. Every
exported model contains a copy, so that `python agent.jaxmodel` runs the same program.

Each line of standard input is a request as JSON, and each line of standard output is its reply. If a request
fails, its reply has "error", and the process continues. The reply to `{"inputs": {NAME: array}}` is
`{"outputs": {NAME: array}}`, for a batch or, without the batch axis, for one example. Models that read text
reply to `{"text": ...}` with text. An `"id"` is copied to the reply. From Python:

    model = load("agent.jaxmodel")
    model({"observation": boards})["logits"]
"""

import argparse
import ctypes
import dataclasses
import datetime
import functools
import hashlib
import json
import os
import re
import sys
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export
from jax.sharding import AxisType, NamedSharding, PartitionSpec

FORMAT, FORMAT_VERSION = "jaxmodel", 1
MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
DTYPES = {"BOOL": "bool", "BF16": "bfloat16"}
"""Dtype names of safetensors that are not a letter and a number of bits."""


class Refused(ValueError):
    """Raised for an artifact that cannot run here, or a request that does not fit it."""


# ---- the file


def read_artifact(path: Path | str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Reads the manifest and the other members of an artifact, and checks their SHA-256.

    Raises:
        Refused: if the file is missing, damaged, or not an artifact.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        manifest = json.loads(members.pop(MANIFEST))
        kind = manifest["format"], manifest["format_version"]
        listed = {name: member["sha256"] for name, member in manifest["members"].items()}
    except FileNotFoundError as error:
        raise Refused(f"{path}: no such file") from error
    except Exception as error:  # a truncated archive raises different errors, depending on where it ends
        raise Refused(f"{path}: damaged, or not an exported model: {error!r}") from error
    if kind != (FORMAT, FORMAT_VERSION):
        raise Refused(f"{path}: got format {kind}, expected {(FORMAT, FORMAT_VERSION)}")
    for name, wanted in listed.items():
        if name not in members or hashlib.sha256(members[name]).hexdigest() != wanted:
            raise Refused(f"{path}: damaged: the SHA-256 of {name} does not match the manifest")
    if unknown := [name for name in members if name not in listed]:
        raise Refused(f"{path}: damaged: got member {unknown[0]}, expected only members of the manifest")
    return manifest, members


def read_weights(content: bytes) -> dict[str, np.ndarray]:
    """Reads the arrays of a safetensors file: 8 bytes of header length, a JSON header, the data."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    arrays = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        letters = entry["dtype"]
        dtype = DTYPES.get(letters) or letters.replace("F", "float").replace("U", "uint").replace("I", "int")
        flat = np.frombuffer(memoryview(content)[begin:end], jax.numpy.dtype(dtype))
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


# ---- compatibility


def version_key(version: str) -> tuple[int, ...]:
    """Converts a version to numbers for comparison: "0.12.0.1" to (0, 12, 0, 1); suffixes are ignored."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def check_window(
    compatibility: Mapping[str, Any], *, here: str = jax.__version__, today: datetime.date
) -> None:
    """Checks JAX's guarantee: an export runs with a JAX built up to six months later or three weeks earlier.

    The exporting version always runs it. A newer version installed by the last day of the window was built by
    that day. The build date of an older version is unknown, so it is accepted only if it is a release of the
    same 0.X.Y. `compatibility` is that of the manifest.

    Raises:
        Refused: if this JAX is outside the window; the message has both versions and the window.
    """
    made, theirs, ours = compatibility["jax"], version_key(compatibility["jax"]), version_key(here)
    advice = f"install jax=={made}, or export the model again"
    if ours == theirs:
        return
    if ours < theirs and ours[:3] != theirs[:3]:
        raise Refused(
            f"jax: got {here}, expected {made} or newer: JAX guarantees forward compatibility for "
            f"{compatibility['weeks_forward']} weeks only; {advice}"
        )
    if ours > theirs and today > datetime.date.fromisoformat(compatibility["until"]):
        raise Refused(
            f"jax: got {here}, expected {made}: the {compatibility['months_backward']} months of backward "
            f"compatibility that JAX guarantees ended on {compatibility['until']}; {advice}"
        )


def check_surroundings(manifest: Mapping[str, Any], devices: Sequence[Any]) -> None:
    """Checks that platform, chip and number of devices match the artifact.

    Raises:
        Refused: if one of them does not match.
    """
    kind, backend = devices[0].device_kind, devices[0].platform
    platform = {"gpu": "rocm" if "rocm" in devices[0].client.platform_version else "cuda"}.get(
        backend, backend
    )
    if platform not in manifest["platforms"]:
        raise Refused(
            f"platform: got {platform}, expected one of {', '.join(manifest['platforms'])}; export the model "
            f"with --platforms={platform}"
        )
    if (chips := manifest["kernels"]["chips"]) and kind not in chips:
        raise Refused(
            f"device: got {kind}, expected one of {', '.join(chips)}, for whose kernels the model was "
            "exported; export it with --kernels=portable"
        )
    wanted = manifest["sharding"]["devices"]
    if wanted > 1 and len(devices) != wanted:
        axes = ",".join(f"{name}:{size}" for name, size in manifest["sharding"]["axes"].items())
        raise Refused(f"devices: got {len(devices)}, expected {wanted} ({axes}), as exported")


# ---- the model


@dataclasses.dataclass(frozen=True)
class Program:
    """One function of an artifact, compiled once for each input shape.

    Attributes:
        length: its length; None means any length, or no length at all.
        exported: the deserialized program.
        call: maps weights and inputs to outputs.
        pullback: maps weights, inputs and cotangents of the outputs to cotangents of the weights.
    """

    length: int | None
    exported: export.Exported
    call: Callable[..., Any]
    pullback: Callable[..., Any]


class Model:
    """A loaded model.

    Attributes:
        manifest: the manifest of its artifact.
        inputs: the manifest's descriptions of the inputs, by name.
        text: the text codec; None for a model without text.
        programs: the programs, by increasing length.
        weights: arrays by name; empty if the weights are constants of the programs.
    """

    def __init__(self, manifest: dict[str, Any], members: Mapping[str, bytes], weights: bytes | None):
        """Deserializes the members of an artifact; use `load` to open a file."""
        self.manifest = manifest
        self.inputs = {one["name"]: one for one in manifest["inputs"]}
        self.text = make_text(manifest["text"])
        axes = manifest["sharding"]["axes"]
        self._mesh = None
        if axes:
            self._mesh = jax.make_mesh(
                tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes)
            )
        self.programs = [self._program(one["length"], members[one["member"]]) for one in manifest["programs"]]
        arrays = read_weights(weights) if weights is not None else {}
        splits = manifest["weights"]["split"]
        self.weights = {name: self._place(array, splits.get(name, ())) for name, array in arrays.items()}

    def _program(self, length: int | None, content: bytes) -> Program:
        exported = export.deserialize(bytearray(content))

        def pullback(weights, inputs, cotangents):
            _, pull = jax.vjp(lambda weights: exported.call(weights, inputs), weights)
            return pull(cotangents)[0]

        return Program(length, exported, jax.jit(exported.call), jax.jit(pullback))

    def _place(self, array: np.ndarray, split: Sequence[str | None]) -> jax.Array:
        if self._mesh is None:
            return jax.device_put(array)
        sharding = NamedSharding(self._mesh, PartitionSpec(*split))
        # Each process of a pod has the whole array and places only the parts of its own devices.
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the outputs for input arrays with the dtypes and shapes of the manifest.

        An input with a default may be omitted, and one with a padding value may be shorter than the lengths
        of the programs.

        Raises:
            Refused: with the name of an input that does not match the manifest.
        """
        program, arrays, room = self.prepare(inputs)
        outputs = fetch(program.call(*self.arguments(arrays)))
        return {name: self._without_padding(name, array, room) for name, array in outputs.items()}

    def gradient(self, inputs: Mapping[str, Any], cotangents: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Returns the derivative of sum(cotangents * outputs) with respect to each weight.

        Raises:
            Refused: if the artifact has no derivative, its weights are constants, or an array does not match.
        """
        if not self.manifest["derivative"]:
            raise Refused("the model has no derivative; export it with --derivative")
        if not self.weights:
            raise Refused("the weights are constants of the program; export the model with --weights=inside")
        program, arrays, room = self.prepare(inputs)
        if room:
            raise Refused(
                f"length: got {room[0]}, expected {room[1]}, since gradients do not support padding"
            )
        arguments = self.arguments(arrays)
        outputs = jax.eval_shape(program.call, *arguments)
        if set(cotangents) != set(outputs):
            raise Refused(f"cotangents: got {sorted(cotangents)}, expected {sorted(outputs)}")
        for name, array in outputs.items():
            if np.shape(cotangents[name]) != array.shape:
                raise Refused(
                    f"cotangent {name}: got shape {np.shape(cotangents[name])}, expected {array.shape}"
                )
        given = {name: jax.numpy.asarray(cotangents[name], array.dtype) for name, array in outputs.items()}
        return fetch(program.pullback(*arguments, given))

    @functools.cached_property
    def batch_step(self) -> int:
        """The number that the batch size must be a multiple of."""
        first = next(iter(self.inputs.values()))["shape"][0]
        return 1 if isinstance(first, int) else split_symbol(first)[0]

    @functools.cached_property
    def batch_room(self) -> int | None:
        """The batch size if it is fixed, otherwise None."""
        first = next(iter(self.inputs.values()))["shape"][0]
        return first if isinstance(first, int) else None

    def arguments(self, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns the arguments of a program's `call` for input arrays, placed on the devices."""
        placed = {name: self._place(array, self.inputs[name]["split"]) for name, array in arrays.items()}
        return (self.weights, placed) if self.manifest["weights"]["where"] != "constants" else (placed,)

    def prepare(
        self, inputs: Mapping[str, Any]
    ) -> tuple[Program, dict[str, np.ndarray], tuple[int, int] | None]:
        """Chooses the program for some inputs, and checks, completes and pads the inputs.

        Returns:
            The program, all its input arrays, and, if they were padded, (original length, padded length).
        """
        given = self._checked(inputs)
        sizes = self._bind(given)
        arrays = {}
        for name, one in self.inputs.items():
            shape = [size if isinstance(size, int) else sizes[size] for size in one["shape"]]
            arrays[name] = given[name] if name in given else np.full(shape, one["default"], one["dtype"])
        program, length = self.programs[0], sizes.get("length")
        if length is None or program.length is None:
            return program, arrays, None
        program, longer = self._fitting(length)
        if longer == length:
            return program, arrays, None
        room = (length, longer)
        return program, {name: self._padded(name, array, *room) for name, array in arrays.items()}, room

    def _checked(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        needed = [name for name, one in self.inputs.items() if one["default"] is None]
        if unknown := [name for name in inputs if name not in self.inputs]:
            raise Refused(f"inputs: got {unknown[0]!r}, expected names among {', '.join(self.inputs)}")
        if missing := [name for name in needed if name not in inputs]:
            raise Refused(f"inputs: got no {missing[0]!r}, expected {', '.join(needed)}")
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        for name, array in arrays.items():
            one = self.inputs[name]
            if array.dtype != one["dtype"]:
                raise Refused(f"input {name}: got dtype {array.dtype}, expected {one['dtype']}")
            low, high = one["range"] or (None, None)
            if low is not None and array.size and not low <= array.min() <= array.max() <= high:
                wrong = array.min() if array.min() < low else array.max()
                raise Refused(f"input {name}: got the value {wrong}, expected {low} to {high}")
        return arrays

    def _bind(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Returns the sizes of the manifest's symbolic expressions, such as "batch" or "4*batch"."""
        sizes: dict[str, int] = {}
        for name, array in arrays.items():
            shape = self.inputs[name]["shape"]
            known = dict(sizes)
            fits = len(shape) == array.ndim and all(
                (wanted if isinstance(wanted, int) else sizes.setdefault(wanted, size)) == size
                for wanted, size in zip(shape, array.shape, strict=True)
            )
            if not fits:
                shown = ", ".join(map(str, shape))
                values = "".join(f", with {symbol} = {size}" for symbol, size in known.items())
                raise Refused(f"input {name}: got shape {list(array.shape)}, expected [{shown}]{values}")
        for expression, size in sizes.items():
            factor, symbol = split_symbol(expression)
            least, most = self.manifest["symbols"][symbol]
            if size % factor:
                raise Refused(
                    f"{symbol}: got {size}, expected a multiple of {factor}, the devices along data"
                )
            if size < factor * least or (most is not None and size > most):
                room = f"{factor * least} or more" if most is None else f"{least} to {most}"
                raise Refused(f"{symbol}: got {size}, expected {room}")
        return sizes

    def _fitting(self, length: int) -> tuple[Program, int]:
        for program in self.programs:
            if program.length is not None and program.length >= length:
                return program, program.length
        raise Refused(f"length: got {length}, expected at most {self.programs[-1].length}")

    def _padded(self, name: str, array: np.ndarray, length: int, room: int) -> np.ndarray:
        one = self.inputs[name]
        if "length" not in one["shape"]:
            return array
        if one["pad"] is None:
            lengths = ", ".join(str(program.length) for program in self.programs)
            raise Refused(
                f"input {name}: got length {length}, expected one of {lengths}, since it cannot be padded"
            )
        widths = [(0, room - length if axis == "length" else 0) for axis in one["shape"]]
        return np.pad(array, widths, constant_values=one["pad"])

    def _without_padding(self, name: str, array: np.ndarray, room: tuple[int, int] | None) -> np.ndarray:
        if room is None:
            return array
        shape = next(one["shape"] for one in self.manifest["outputs"] if one["name"] == name)
        return array[tuple(slice(room[0]) if axis == "length" else slice(None) for axis in shape)]


def fetch(arrays: Any) -> Any:
    """Copies a tree of arrays to this host; with several processes, each gets the whole arrays."""
    if all(array.is_fully_addressable for array in jax.tree.leaves(arrays)):
        return jax.device_get(arrays)
    from jax.experimental import multihost_utils  # pods only

    return multihost_utils.process_allgather(arrays, tiled=True)


def split_symbol(expression: str) -> tuple[int, str]:
    """Splits a size such as "batch" or "4*batch" into its factor and its symbol."""
    *factor, symbol = expression.split("*")
    return int(factor[0]) if factor else 1, symbol


def load(path: Path | str, *, any_version: bool = False, today: datetime.date | None = None) -> Model:
    """Opens an exported model; separate weights must be in the same directory.

    `any_version` skips the check of JAX's compatibility window (see `check_window`).

    Raises:
        Refused: if the file is damaged, or not for this platform, chip, number of devices or version of JAX.
    """
    path = Path(path)
    manifest, members = read_artifact(path)
    if not any_version:
        check_window(manifest["compatibility"], today=today or datetime.datetime.now(datetime.UTC).date())
    check_surroundings(manifest, jax.devices())
    stored = manifest["weights"]
    weights = members.get(WEIGHTS)
    if stored["where"] == "beside":
        separate = path.with_name(stored["file"])
        if not separate.is_file():
            raise Refused(f"{separate}: no such file, expected the weights of {path}")
        weights = separate.read_bytes()
        if hashlib.sha256(weights).hexdigest() != stored["sha256"]:
            raise Refused(
                f"{separate}: damaged, or of another model: its SHA-256 does not match the manifest"
            )
    try:
        return Model(manifest, members, weights)
    except Exception as error:  # JAX checks versions too, without an exception class of its own
        raise Refused(f"{path}: JAX {jax.__version__} cannot read it: {error}") from error


# ---- text


class Characters:
    """The text codec of `tp_transformer`: a row of characters between a start and an end symbol."""

    def __init__(self, settings: Mapping[str, Any]):
        """Builds the codec from the `text` of a manifest."""
        self.settings = settings
        first = settings["first"]
        self.ids = {character: first + index for index, character in enumerate(settings["characters"])}
        self.characters = {number: character for character, number in self.ids.items()}

    def encode(self, texts: Sequence[str], _: Any = None) -> dict[str, np.ndarray]:
        """Returns the model's input, by name; raises `Refused` for an unknown character."""
        rows = []
        start, end = self.settings["start"], self.settings["end"]
        for text in texts:
            if unknown := [character for character in text if character not in self.ids]:
                raise Refused(
                    f"text: got {unknown[0]!r}, expected characters of {self.settings['characters']!r}"
                )
            rows.append([start, *(self.ids[character] for character in text), end])
        return {self.settings["input"]: padded(rows, self.settings["pad"])}

    def decode(self, _: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Returns the text before the first end or padding symbol; other non-characters become U+FFFD."""
        answers = []
        for row in outputs[self.settings["output"]].tolist():
            text = []
            for number in row[1:]:
                if number in (self.settings["end"], self.settings["pad"]):
                    break
                text.append(self.characters.get(number, "\ufffd"))
            answers.append({"text": "".join(text)})
        return answers


class WordPieces:
    """BERT's WordPiece tokens in plain Python, equal to those of `folnet.tokenization`."""

    LONGEST = 100  # maximum characters of a word; longer words are unknown
    CJK = (
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
        (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
    )  # fmt: skip

    def __init__(self, settings: Mapping[str, Any]):
        """Builds the codec from the `text` of a manifest."""
        self.settings = settings
        self.pieces = settings["vocabulary"]
        self.ids = {piece: number for number, piece in enumerate(self.pieces)}

    def words(self, text: str) -> Iterable[str]:
        """Yields the words of a text: cleaned, split at spaces and punctuation.

        For a lowercase vocabulary, words are lowercased and accents are removed.
        """
        cleaned = []
        for character in text:
            if character in "\t\n\r" or character.isspace():
                cleaned.append(" ")
            elif character == "\ufffd" or unicodedata.category(character)[0] == "C":
                continue
            elif any(low <= ord(character) <= high for low, high in self.CJK):
                cleaned.append(f" {character} ")
            else:
                cleaned.append(character)
        text = "".join(cleaned)
        if self.settings["lowercase"]:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
            text = "".join(character.lower() for character in text)  # one by one: no final sigma
        for chunk in text.split():
            word = ""
            for character in chunk:
                is_ascii_sign = character.isascii() and not character.isalnum()
                if is_ascii_sign or unicodedata.category(character)[0] == "P":
                    yield from (word, character) if word else (character,)
                    word = ""
                else:
                    word += character
            if word:
                yield word

    def cut(self, word: str) -> list[int]:
        """Splits a word greedily into the longest pieces from the left; [UNK] if that is impossible."""
        found, begin = [], 0
        while begin < len(word) <= self.LONGEST:
            for end in range(len(word), begin, -1):
                number = self.ids.get(("##" if begin else "") + word[begin:end])
                if number is not None:
                    break
            else:
                break
            found.append(number)
            begin = end
        return found if begin == len(word) else [self.ids["[UNK]"]]

    def tokens(self, text: str) -> list[int]:
        """Returns the ids of a text; `[MASK]` is a special token if the model predicts masked words."""
        parts = text.split("[MASK]") if self.settings["fills"] else [text]
        found: list[int] = []
        for index, part in enumerate(parts):
            found += [self.ids["[MASK]"]] * (index > 0)
            for word in self.words(part):
                found += self.cut(word)
        return found

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the inputs for [CLS] text [SEP] or [CLS] text [SEP] pair [SEP].

        Raises:
            Refused: if the tokens exceed the model's length, or the model does not read pairs.
        """
        ids, types, end = [], [], [self.ids["[SEP]"]]
        if pairs and not self.settings["inputs"]["types"]:
            raise Refused("pair: got a value, expected none, since this model reads no pairs")
        for index, text in enumerate(texts):
            first = [self.ids["[CLS]"], *self.tokens(text), *(end if self.settings["closes"] else [])]
            second = [*self.tokens(pairs[index]), *end] if pairs else []
            ids.append(first + second)
            types.append([0] * len(first) + [1] * len(second))
        names = self.settings["inputs"]
        room = self.settings["length"]
        found = {names["ids"]: padded(ids, self.ids["[PAD]"], room)}
        if names["types"]:
            found[names["types"]] = padded(types, 0, room)
        if self.settings["masks_padding"]:
            found[names["mask"]] = padded([[1] * len(row) for row in ids], 0, room).astype(bool)
        return found

    def join(self, ids: Iterable[int]) -> str:
        """Joins pieces to a text, up to the first [SEP] or [PAD]; no space comes before . ? ! and ,."""
        text = ""
        for number in ids:
            piece = self.pieces[number] if number < len(self.pieces) else "[UNK]"
            if piece in ("[SEP]", "[PAD]"):
                break
            if piece.startswith("##") and text:
                text += piece[2:]
            else:
                text += f" {piece}" if text and piece not in tuple(".?!,") else piece
        return text

    def decode(
        self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """Returns one answer per text: the generated text, or the outputs by name.

        Logits of words are replaced by "masks": the five most likely words of each `[MASK]`.
        """
        fills, writes = self.settings["fills"], self.settings["writes"]
        if writes:
            return [{"text": self.join(row)} for row in outputs[writes].tolist()]
        answers: list[dict[str, Any]] = []
        for row, ids in enumerate(inputs[self.settings["inputs"]["ids"]]):
            answer: dict[str, Any] = {name: array[row] for name, array in outputs.items() if name != fills}
            if fills:
                answer["masks"] = []
                for place in np.flatnonzero(ids == self.ids["[MASK]"]):
                    logits = outputs[fills][row, place, : len(self.pieces)].astype(np.float64)
                    shares = np.exp(logits - logits.max())
                    shares /= shares.sum()
                    best = np.argsort(-shares, kind="stable")[:5]
                    answer["masks"].append(
                        [[self.pieces[number], round(float(shares[number]), 6)] for number in best]
                    )
            answers.append(answer)
        return answers


def make_text(settings: Mapping[str, Any] | None) -> Characters | WordPieces | None:
    """Returns the text codec for the `text` of a manifest; None for models without text."""
    codecs = {"characters": Characters, "wordpieces": WordPieces}
    return None if settings is None else codecs[settings["kind"]](settings)


def padded(rows: Sequence[Sequence[int]], pad: int, length: int | None = None) -> np.ndarray:
    """Pads rows to an int32 array, of the longest row's length or of `length`.

    Raises:
        Refused: if a row is longer than `length`.
    """
    longest = max(map(len, rows))
    if length is not None and longest > length:
        raise Refused(f"text: got {longest} tokens, expected at most {length}")
    found = np.full((len(rows), length or longest), pad, np.int32)
    for row, values in zip(found, rows, strict=True):
        row[: len(values)] = values
    return found


# ---- requests


def answer(model: Model, request: Any) -> dict[str, Any]:
    """Returns the reply to a request: an object with "inputs", or "text" and optionally "pair".

    Raises:
        Refused: if the request is invalid or does not fit the model.
    """
    if not isinstance(request, dict) or ("text" in request) == ("inputs" in request):
        got = (
            f"keys {', '.join(map(str, request)) or 'none'}"
            if isinstance(request, dict)
            else type(request).__name__
        )
        raise Refused(f'request: got {got}, expected {{"inputs": {{NAME: array}}}} or {{"text": text}}')
    if unknown := [key for key in request if key not in ("text", "pair", "inputs", "id")]:
        raise Refused(f"request: got key {unknown[0]!r}, expected 'text', 'pair', 'inputs' or 'id'")
    echo = {"id": request["id"]} if "id" in request else {}
    if "text" in request:
        return echo | _answer_text(model, request["text"], request.get("pair"))
    if not isinstance(request["inputs"], dict):
        raise Refused(f"inputs: got {type(request['inputs']).__name__}, expected an object {{NAME: array}}")
    arrays, single = from_json(model, request["inputs"])
    outputs = in_even_batches(model, arrays)
    return echo | to_json(model, {name: array[0] for name, array in outputs.items()} if single else outputs)


def _answer_text(model: Model, text: Any, pair: Any) -> dict[str, Any]:
    if model.text is None:
        raise Refused("text: got a value, expected inputs, since this model reads no text")
    single = isinstance(text, str)
    texts, pairs = ([text], None if pair is None else [pair]) if single else (text, pair)
    for name, value in (("text", texts), ("pair", pairs)):
        if name == "pair" and value is None:
            continue
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            raise Refused(f"{name}: got {value!r:.60}, expected a string or a non-empty list of strings")
    if pairs is not None and isinstance(model.text, Characters):
        raise Refused("pair: got a value, expected none, since this model reads no pairs")
    if pairs is not None and len(pairs) != len(texts):
        raise Refused(f"pair: got {len(pairs)} strings, expected {len(texts)} as in text")
    inputs = model.text.encode(texts, pairs)
    answers = model.text.decode(inputs, in_even_batches(model, inputs))
    answers = [one if "text" in one else to_json(model, one) for one in answers]
    return answers[0] if single else {"answers": answers}


def in_even_batches(
    model: Model, inputs: Mapping[str, np.ndarray], room: int | None = None
) -> dict[str, np.ndarray]:
    """Runs the model on a batch that is padded with copies of its first row.

    The padded size is the fixed batch size, or `batch_step` times a power of two, because JAX compiles the
    program for every batch size. It is at most `room`, a multiple of `batch_step`, unless that is None.
    """
    batch = rows_of(inputs)
    wanted = model.batch_room or model.batch_step
    while wanted < batch and not model.batch_room:
        wanted *= 2
    wanted = min(wanted, room or wanted)
    if wanted < batch:
        raise Refused(f"batch: got {batch} rows, expected at most {wanted}")
    filled = {
        name: np.concatenate([array, np.repeat(array[:1], wanted - batch, 0)])
        for name, array in inputs.items()
    }
    return {name: array[:batch] for name, array in model(filled).items()}


def rows_of(inputs: Mapping[str, np.ndarray]) -> int:
    """Returns the size of the first axis of all inputs; raises `Refused` if they differ or it is empty."""
    counts = {array.shape[0] if array.ndim else 0 for array in inputs.values()}
    if len(counts) != 1 or counts == {0}:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in inputs.items())
        raise Refused(f"inputs: got shapes {shapes or 'none'}, expected equal numbers of rows, at least 1")
    return counts.pop()


def from_json(model: Model, given: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], bool]:
    """Converts JSON lists to arrays of the manifest's dtypes, with a batch axis.

    Returns:
        The arrays, and whether they were a single example without a batch axis.

    Raises:
        Refused: with the name of an input that is unknown or cannot be converted.
    """
    arrays, single = {}, set()
    for name, value in given.items():
        if name not in model.inputs:
            raise Refused(f"inputs: got {name!r}, expected names among {', '.join(model.inputs)}")
        one = model.inputs[name]
        dtype = np.dtype(jax.numpy.dtype(one["dtype"]))
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise Refused(f"input {name}: got rows of different lengths, expected equal lengths") from error
        kinds = {"b": "biu", "i": "iu", "u": "iu"}.get(dtype.kind, "iuf")
        if array.dtype.kind not in kinds:
            raise Refused(f"input {name}: got an array of {array.dtype}, expected {dtype}")
        if dtype.kind in "iub" and array.size and (array.astype(dtype) != array).any():
            raise Refused(f"input {name}: got numbers out of range, expected values of {dtype}")
        single.add(array.ndim == len(one["shape"]) - 1)
        arrays[name] = array.astype(dtype)
    if single == {True}:
        return {name: array[None] for name, array in arrays.items()}, True
    return arrays, False


def to_json(model: Model, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Converts outputs to lists, and adds the label of the greatest logit if the manifest has labels."""
    described = {one["name"]: one for one in model.manifest["outputs"]}
    found: dict[str, Any] = {"outputs": {}}
    for name, value in outputs.items():
        if name not in described:
            found[name] = value
            continue
        array = plain(np.asarray(value))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Refused(f"output {name}: got non-finite numbers, which JSON cannot represent")
        found["outputs"][name] = array.tolist()
        if labels := described[name]["labels"]:
            best = np.argmax(array, axis=-1)
            found.setdefault("labels", {})[name] = (
                np.asarray(labels, object)[best].tolist() if best.ndim else labels[int(best)]
            )
    return found


def plain(array: np.ndarray) -> np.ndarray:
    """Converts bfloat16, which NumPy files and JSON do not support, to float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def serve(model: Model, requests: Iterable[str], out: Any) -> None:
    """Writes one reply per non-empty line of `requests`; errors become replies with "error"."""
    for line in requests:
        if not line.strip():
            continue
        echo: dict[str, Any] = {}
        try:
            request = json.loads(line)
            if isinstance(request, dict) and "id" in request:
                echo = {"id": request["id"]}
            reply = answer(model, request)
        except ValueError as error:  # from JSON, and Refused
            reply = echo | {"error": str(error)}
        except Exception as error:  # from XLA, such as out of memory; the next request may be smaller
            reply = echo | {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply, allow_nan=False) + "\n")
        out.flush()


def read_arrays(source: Path) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file.

    Raises:
        OSError: if the file cannot be read.
        Refused: if it is damaged or not an .npz file.
    """
    with source.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            if strange := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
                raise ValueError(f"{strange[0]} is not an array")
            return arrays
        except Exception as error:  # a truncated archive raises different errors, depending on where it ends
            raise Refused(f"{source}: damaged, or not an .npz file ({error!r})") from error


def answer_file(model: Model, source: Path, target: Path, batch: int) -> int:
    """Runs the model on a file of arrays (.npz, batch axis first) or of requests (.jsonl).

    The replies are written atomically to a file of the same kind. Arrays are processed in batches of `batch`,
    rounded up to a multiple of `batch_step`.

    Returns:
        The number of rows or requests.

    Raises:
        Refused: if the file cannot be read, or does not fit the model.
    """
    if source.suffix != target.suffix or source.suffix not in (".npz", ".jsonl"):
        raise Refused(f"--input, --output: got {source} and {target}, expected both .npz or both .jsonl")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if source.suffix == ".jsonl":
            with source.open(encoding="utf-8") as lines, temporary.open("w", encoding="utf-8") as out:
                requests = [line for line in lines if line.strip()]
                serve(model, requests, out)
            count = len(requests)
        else:
            arrays = read_arrays(source)
            count = rows_of(arrays)
            batch = model.batch_room or -(-batch // model.batch_step) * model.batch_step
            parts = []
            for begin in range(0, count, batch):
                part = {name: array[begin : begin + batch] for name, array in arrays.items()}
                parts.append(in_even_batches(model, part, batch))
            joined: Any = {name: plain(np.concatenate([part[name] for part in parts])) for name in parts[0]}
            with temporary.open("wb") as out:
                np.savez(out, **joined)
        temporary.replace(target)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, Refused) else Refused(f"{source}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def keep_large_blocks(limit: int) -> bool:
    """Asks the GNU C library to keep freed blocks of up to `limit` MiB, so that calls reuse their pages.

    Call it before JAX's first computation: programs on CPUs then run in the calling thread. The process
    keeps up to `limit` MiB of free memory more. Does nothing if `limit` is 0, without this library, or if
    the environment sets its thresholds; on accelerators the library is not asked. Returns whether it has
    accepted.
    """
    chosen = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX"} & set(os.environ)
    if (
        not limit
        or chosen
        or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
        or sys.platform != "linux"
    ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    # The heap of any thread but the first has room for 64 MiB at most.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    if jax.default_backend() != "cpu":
        return False
    # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
    return all(mallopt(name, limit * 2**20) == 1 for name in (-3, -1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns exit status 2 if the artifact or the files cannot be used."""
    parser = argparse.ArgumentParser(description="Runs an exported model with JAX.")
    inside = not Path(__file__).is_file()  # when Python runs the artifact itself
    if not inside:
        parser.add_argument("artifact", type=Path, help="the .jaxmodel file")
    parser.add_argument("--input", type=Path, help="input arrays (.npz) or requests (.jsonl)")
    parser.add_argument("--output", type=Path, help="file for the outputs, of the same kind as --input")
    parser.add_argument("--batch", type=int, default=256, help="rows of arrays per call")
    parser.add_argument(
        "--describe", action="store_true", help="print the manifest without loading the model"
    )
    parser.add_argument(
        "--any-version", action="store_true", help="skip the check of JAX's compatibility window"
    )
    parser.add_argument(
        "--keep-blocks",
        type=int,
        default=1024,
        help="on CPUs, keep freed blocks of memory of up to so many MiB between calls; 0 returns them",
    )
    values = parser.parse_args(arguments)
    artifact = Path(sys.argv[0]) if inside else values.artifact
    if (values.input is None) != (values.output is None) or values.batch < 1:
        parser.error("expected both or neither of --input and --output, and --batch of at least 1")
    if not 0 <= values.keep_blocks <= 2047:
        parser.error(f"--keep-blocks: got {values.keep_blocks}, expected 0 to 2047")
    try:
        if values.describe:
            manifest, _ = read_artifact(artifact)
            if "vocabulary" in (manifest["text"] or {}):  # it would be thirty thousand lines for most models
                manifest["text"]["vocabulary"] = f"{len(manifest['text']['vocabulary'])} pieces"
            print(json.dumps(manifest, indent=1))
            return 0
        keep_large_blocks(values.keep_blocks)
        model = load(artifact, any_version=values.any_version)
        if values.input:
            count = answer_file(model, values.input, values.output, values.batch)
            print(f"{values.output}: {count} results")
        else:
            serve(model, sys.stdin, sys.stdout)
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
