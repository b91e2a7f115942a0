"""Published results folders in the cache: fetched from an archive, a git repository or a folder, and checked.

Nothing that a source says of itself is believed. Only the files of results folders are taken, as plain files;
every record must have its checksum, and every accuracy must be that of the images stored with it. The
plan and the paths of ccc streams are read too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ttabench.data.fetch.download import alone, download
from ttabench.data.fetch.extract import unpack
from ttabench.data.files.fingerprint import file_sha256
from ttabench.data.published.description import Archive
from ttabench.errors import UserError, one_line, printable, shortened
from ttabench.store.results_folder import Store
from ttabench.store.stream_paths import FILE, check_path
from ttabench.system.environment import cache_dir
from ttabench.system.files import replace_file, user_path, writing
from ttabench.system.progress import OnProgress, silent

NOTE = "fetched.json"
WORK = ".fetching"
"""The folder beside the results where they are put together; no results can have its name."""
FORMER = "former"
"""The results that others replace, in the folder of these."""
FILES = re.compile(
    rf"sweep\.json|plan\.jsonl|attested\.jsonl|sweep(-\d+)?\.toml|cells/[^/]+\.jsonl|{FILE.pattern}"
)
"""The files of a results folder; no others are taken."""
FOLDERS = ("cells", "streams")
"""The folders in a results folder that have some of them."""
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
ENDING = re.compile("|".join(rf"{re.escape(end)}$" for end in (*ARCHIVES, ".git")), re.IGNORECASE)
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
COMPLAINT = re.compile(r"(fatal|error|ssh): |.*: Permission denied")
"""How lines of git and ssh begin that say what is wrong."""
MOST_BYTES = 4 << 30
MOST_FOLDERS = 1000


@dataclass(frozen=True)
class Fetched:
    """Results in the cache.

    name    what `ttabench results` calls them.
    folder  holds the results folders.
    source  where they came from: an address, or a path from the root.
    version commit, or SHA-256 of the archive; "" for a folder.
    when    they were fetched, in seconds since 1970.
    files   path below `folder` → SHA-256, when they were fetched.
    """

    name: str
    folder: Path
    source: str
    version: str
    when: float
    files: dict[str, str]

    @property
    def stores(self) -> list[Path]:
        """The results folders, by name."""
        return sorted((self.folder / path).parent for path in self.files if Path(path).name == "sweep.json")

    def changed(self) -> str:
        """The first file that is no longer what was fetched, or ""."""
        for path, sha256 in sorted(self.files.items()):
            try:
                if file_sha256(self.folder / path) != sha256:
                    return path
            except OSError:
                return path
        found = chain.from_iterable(map(self.folder.rglob, ("*.jsonl", "streams/ccc-*.json")))
        here = {path.relative_to(self.folder).as_posix() for path in found}
        return min(here - self.files.keys(), default="")


def fetched() -> list[Fetched]:
    """All results that were fetched, by name. A note that cannot be read is left out."""
    found = []
    for note in sorted((cache_dir() / "results").glob(f"*/{NOTE}")):
        try:
            data = json.loads(note.read_text())
            files = {str(path): str(sha256) for path, sha256 in data["files"].items()}
            found.append(Fetched(
                note.parent.name, note.parent, one_line(str(data["source"])), one_line(str(data["version"])),
                float(data["when"]), files,
            ))  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return found


def fetch_results(
    source: str, name: str = "", sha256: str = "", *, replace: bool = False, on_progress: OnProgress = silent
) -> Fetched:
    """Fetch, check, and put into the cache; nothing is left behind after an error.

    source   the address or path of an archive, of a git repository (``….git`` or ``git+…``), or of a folder.
    name     what they are called here; "" = the last part of the source.
    sha256   what an archive must have.

    Raises UserError for a source without results, with a damaged record, or with files that lead elsewhere.
    """
    name = _name(name or _last_part(source))
    home = cache_dir() / "results"
    target, work = home / name, home / WORK / f"{name}.part"  # no folder of claims
    with alone(name, home / WORK, "fetches"), _made(work, target):
        if os.path.lexists(target) and not replace:
            raise UserError(
                f"there are results called {name} already; give others a --name, or add --replace."
            )
        tree, version = _obtained(source, sha256, work, on_progress)
        whole = work / "whole"
        with _named_as_in(source, tree, whole):
            files = _taken(tree, whole)
            count = sum(_checked((whole / path).parent) for path in files if Path(path).name == "sweep.json")
        if not count:
            raise UserError(
                f"{shortened(source)} holds no results; expected folders with sweep.json and cells/."
            )
        note = {"source": _from_root(source), "version": version, "when": time.time(), "files": files}
        replace_file(whole / NOTE, (json.dumps(note, indent=1) + "\n").encode())
        if os.path.lexists(target):
            target.rename(work / FORMER)
        whole.rename(target)
    return next(each for each in fetched() if each.name == name)


@contextmanager
def _made(work: Path, target: Path) -> Iterator[None]:
    """The folder `work` in the block; what a fetch that was killed left in it is deleted first."""
    _clear(work, target)
    work.mkdir()
    try:
        yield
    finally:
        _clear(work, target)


def _clear(work: Path, target: Path) -> None:
    """Delete the folder. Former results that no others replaced are put back."""
    former = work / FORMER
    if os.path.lexists(former) and not os.path.lexists(target):
        former.rename(target)
    shutil.rmtree(work, ignore_errors=True)


def _checked(root: Path) -> int:
    """The number of cells in a results folder. Raises UserError for a file that ttabench did not write."""
    store = Store.at(root)
    store.plan()
    for path in root.glob("streams/*"):
        check_path(path)
    return len(store.latest())  # every record is read, and so checked


@contextmanager
def _named_as_in(source: str, *copies: Path) -> Iterator[None]:
    """A problem of a file in one of the copies, which are gone when it is read, is one of the source's file.

    The advice to restore or delete a file is for a folder of one's own; here, only the source can be mended.
    """
    try:
        yield
    except UserError as problem:
        text = str(problem)
        for copy in copies:
            text = text.replace(printable(f"{copy}{os.sep}"), "").replace(
                printable(str(copy)), "its top folder"
            )
        what = re.sub(r"; (restore|delete) .*", "", text).rstrip(".")
        raise UserError(f"{shortened(source)} was not fetched, and nothing is kept of it: {what}.") from None


def _name(text: str) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-.")
    if not NAME.fullmatch(name):
        raise UserError(f"'{shortened(text)}' is no name; expected letters and digits, e.g. --name theirs.")
    return name


def _last_part(source: str) -> str:
    last = unquote(urlsplit(source).path if "://" in source else source).rstrip("/").rpartition("/")[2]
    return ENDING.sub("", last) or "results"


def _obtained(source: str, sha256: str, work: Path, on_progress: OnProgress) -> tuple[Path, str]:
    """The files of a source in a folder, and its version: a commit or the SHA-256 of an archive."""
    is_git = source.startswith("git+") or source.endswith(".git")
    if is_git or ((folder := _local(source)) is not None and folder.is_dir()):
        if sha256:
            raise UserError("--sha256 is that of an archive; a repository or a folder has none.")
        return _cloned(source.removeprefix("git+"), work) if is_git else (user_path(source), "")
    if not source.lower().endswith(ARCHIVES):
        raise UserError(
            f"{shortened(source)} is no folder here, no archive ({', '.join(ARCHIVES)}) and no repository "
            "(….git or git+…)."
        )
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UserError(f"--sha256 {shortened(sha256)}: expected 64 digits from 0 to 9 and a to f.")
    archive = _local(source)
    if archive is None:
        file = _name(_last_part(source)) + next(end for end in ARCHIVES if source.lower().endswith(end))
        wanted = Archive(file=file, urls=(source,), folder="", sha256=sha256.lower())
        try:
            archive, _ = download(wanted, work / "download", on_progress)
        except UserError as problem:  # which names a place for the file that is gone by then
            why = str(problem).partition(" Try again later")[0]
            raise UserError(f"{why} Try again later, or download it elsewhere and give its path.") from None
    if not archive.is_file():
        raise UserError(f"{archive} does not exist.")
    found = file_sha256(archive)
    if sha256 and found != sha256.lower():
        raise UserError(f"{archive.name} has the SHA-256 {found}; expected {sha256}.")
    with writing(work, "free space there, or set TTABENCH_CACHE to another folder"):
        unpack(archive, work / "tree", lambda parts: parts, on_progress)
    return work / "tree", found


def _from_root(source: str) -> str:
    """The source as it is noted: `results list` shows it in any folder, so a path here begins at the root."""
    kind = "git+" if source.startswith("git+") else ""
    path = _local(source.removeprefix(kind))
    return source if path is None or not path.exists() else f"{kind}{os.path.abspath(path)}"


def _local(source: str) -> Path | None:
    return None if "://" in source else user_path(source)


def _cloned(address: str, work: Path) -> tuple[Path, str]:
    """The files of a git repository and its commit. No hooks run, and no helper but https, ssh and files."""
    tree = work / "tree"
    safe = ["-c", "core.hooksPath=/dev/null", "-c", "core.symlinks=false", "-c", "protocol.ext.allow=never"]
    environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1",
                   "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file"}  # fmt: skip

    def git(*arguments: str) -> str:
        try:
            ran = subprocess.run(
                ["git", *safe, *arguments], capture_output=True, text=True, errors="replace", env=environment,
                check=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise UserError(
                "git is not installed, and the source is a repository; give an archive."
            ) from None
        except subprocess.CalledProcessError as problem:
            raise UserError(f"git cannot fetch {shortened(address)}: {_complaint(problem.stderr)}") from None
        return ran.stdout.strip()

    git("clone", "--quiet", "--depth", "1", "--no-recurse-submodules", "--", address, str(tree))
    return tree, git("-C", str(tree), "rev-parse", "HEAD")


def _complaint(text: str) -> str:
    """What git says is wrong. Advice of several lines can stand after it, and progress before it."""
    lines = text.strip().splitlines() or ["it says nothing"]
    wrong = [line for line in lines if COMPLAINT.match(line)] or lines[-1:]
    return shortened(one_line("; ".join(line.strip().removesuffix(".") for line in wrong)), 500) + "."


def _taken(tree: Path, whole: Path) -> dict[str, str]:
    """Copy the files of all results folders in a tree; path → SHA-256."""
    files: dict[str, str] = {}
    size = 0
    for number, root in enumerate(_results_folders(tree)):
        if number >= MOST_FOLDERS:
            raise UserError(f"the source has more than {MOST_FOLDERS:,} results folders.")
        for path in _plain_files(root):
            below = path.relative_to(root).as_posix()
            if not FILES.fullmatch(below):
                continue
            size += path.stat().st_size
            if size > MOST_BYTES:
                raise UserError(f"the results have more than {MOST_BYTES >> 30} GB.")
            copy = whole / root.relative_to(tree) / below
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy, follow_symlinks=False)
            files[copy.relative_to(whole).as_posix()] = file_sha256(copy)
    return files


def _results_folders(tree: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "sweep.json" in names:
            folders[:] = []
            yield Path(place)


def _plain_files(root: Path) -> Iterator[Path]:
    """The files in a results folder and directly in its :data:`FOLDERS`. Raises UserError for a link."""
    for place in (root, *(root / name for name in FOLDERS)):
        if place.is_symlink():
            raise UserError(f"{place} is a link; expected a folder.")
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name) if place.is_dir() else ():
            if entry.is_symlink():
                raise UserError(f"{entry.path} is a link, which may lead elsewhere; expected files.")
            if entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
