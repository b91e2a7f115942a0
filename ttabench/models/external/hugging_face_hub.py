"""Files of the Hugging Face hub: their addresses, and whether the hub answers."""

from __future__ import annotations

import os
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

PATIENCE = 10.0  # seconds until an address counts as out of reach


def address(repository: str, file: str) -> str:
    """The address of a file of a repository."""
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{hub}/{quote(repository)}/resolve/main/{quote(file)}"


def check_reachable(repository: str, file: str, *others: str) -> None:
    """Raises OSError or ValueError if the hub does not answer and none of the files is cached.

    The packages that download from the hub try for up to a minute and more, and name no file.
    """
    if any(_is_cached(repository, each) for each in (file, *others)):
        return
    try:
        with urlopen(Request(address(repository, file), method="HEAD"), timeout=PATIENCE):
            pass
    except HTTPError:
        return  # the hub answers; the package reports any other problem
    except HTTPException as problem:
        raise OSError(f"no hub answers at {address(repository, file)}: {problem}") from None


def cached_revision(repository: str, *files: str) -> str:
    """The commit of a repository that the first cached one of the files is of; "" if none is cached."""
    found = next(filter(None, (_cached(repository, file) for file in files)), "")
    _, snapshots, below = found.replace("\\", "/").rpartition("/snapshots/")
    return below.partition("/")[0] if snapshots else ""


def _is_cached(repository: str, file: str) -> bool:
    return bool(_cached(repository, file))


def _cached(repository: str, file: str) -> str:
    """The path of a file in the cache of the hub's package; "" if it is not there."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return ""
    try:
        found = try_to_load_from_cache(repository, file)
    except ValueError:  # the name of no repository: the hub says so
        return ""
    return found if isinstance(found, str) else ""
