"""Models on a hub, such as huggingface.co: directories by the name "user/model".

Files are downloaded into the cache of `huggingface_hub`, and uploaded by it; it has to be installed. Its
environment variables apply: `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_OFFLINE`, `HF_TOKEN`.
"""

import importlib
import os
import re
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ("*.json", "*.safetensors", "vocab.txt")
"""What is downloaded: settings, parameters, tokenizers; never code."""


def directory_of(name: str | os.PathLike[str], revision: str | None = None) -> Path:
    """Returns a directory as it is, or downloads a model by its name on the hub.

    Args:
      name: a directory; or "user/model", if there is no such directory.
      revision: branch, tag or commit on the hub; None for its main branch.

    Raises:
      ValueError: If the model cannot be downloaded, or a directory has a revision.
      ModuleNotFoundError: If `huggingface_hub` is missing.
    """
    path = Path(name).expanduser()
    if path.exists() or not (isinstance(name, str) and _NAME.fullmatch(name)):
        if revision is not None:
            raise ValueError(f"revision: got {revision!r}, expected None with the directory {path}")
        return path
    library = _library(f"{name}: no such directory, and to download it")
    try:
        return Path(library.snapshot_download(name, revision=revision, allow_patterns=list(_FILES)))
    except (*_errors(library), ValueError) as error:
        at = "" if revision is None else f" at revision {revision!r}"
        raise ValueError(
            f"{name}: got neither a directory nor a model on {library.constants.ENDPOINT}{at} "
            f"({_first_line(error)}), expected one of them"
        ) from error


def push(directory: str | os.PathLike[str], name: str, *, message: str, private: bool) -> str:
    """Uploads a directory as "user/model", which is created if it does not exist; returns its address.

    Raises:
      ValueError: If the name is no such name, or the hub refuses.
      ModuleNotFoundError: If `huggingface_hub` is missing.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f'name: got {name!r}, expected "user/model"')
    library = _library("to upload a model")
    api = library.HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=str(directory), commit_message=message)
    except _errors(library) as error:
        raise ValueError(f"{name}: refused by {library.constants.ENDPOINT} ({_first_line(error)})") from error
    return f"{library.constants.ENDPOINT}/{name}"


def _errors(library: Any) -> tuple[type[Exception], ...]:
    """Returns what the library raises where there is no network, no such model, or no right to it."""
    return OSError, library.errors.HfHubHTTPError, getattr(library.errors, "HTTPError", OSError)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _library(why: str) -> Any:
    try:
        library = importlib.import_module("huggingface_hub")
        for part in ("constants", "errors"):
            importlib.import_module(f"huggingface_hub.{part}")
        return library
    except ModuleNotFoundError as error:
        message = f"{why}: huggingface_hub is not installed: pip install huggingface_hub"
        raise ModuleNotFoundError(message, name=error.name) from error
