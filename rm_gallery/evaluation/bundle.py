"""A deployable bundle: the files of one or more metric folders, with their requirements and a hash."""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

import orjson

from rm_gallery.core.model.storage import canonical_key
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError
from rm_gallery.core.utils.identity import syntax_tree

MAX_FILES = 500
MAX_BYTES = 8 * 2**20
MAX_DEPTH = 12
_PACKED_LIMIT = 2 * MAX_BYTES

Mode = Literal["pointwise", "batch"]
_NAME = re.compile(r"\w[\w.-]{0,99}")
_MAIN = "main.py"
_NEVER_NAMES = ("__pycache__", "node_modules")
_NEVER_ENDS = (".pyc", ".pyo", "~")
_KEYS = re.compile(
    r".*\.(?:env|pem|key|p12|pfx|jks|keystore|kdbx|ppk|gpg|asc|tfstate)|id_(?:rsa|dsa|ecdsa"
    r"|ed25519)(?:_\w+)?|htpasswd|kubeconfig"
    r"|(?:.*[_.-])?(?:credentials?|secrets?|passwords?|tokens?|api_?keys?|service[_-]?account"
    r"|client[_-]?secret)(?:[_.-].*)?"
    r"(?<!\.py)",
    re.IGNORECASE,
)
"""Where keys are usually kept."""


class DamagedBundle(RMGalleryError):
    """Stored bytes that are not what was deployed."""


@dataclass(frozen=True)
class Bundle:
    """The files of an evaluator by `METRIC/path`, and what is known of them without running
    anything.
    """

    files: Mapping[str, bytes]
    metrics: tuple[str, ...]
    """Names of the metrics, each a folder in `files` with a `main.py`, in the order they were
    given.
    """
    requirements: tuple[str, ...] = ()
    mode: Mode = "pointwise"
    skipped: tuple[str, ...] = field(default=(), compare=False)
    """What was left out of the folders on purpose: hidden files, links, caches; each with the
    reason.
    """

    @property
    def hash(self) -> str:
        """sha256 over names, contents, requirements and mode: equal bundles, equal hash, on every
        machine.
        """
        contents = {path: hashlib.sha256(data).hexdigest() for path, data in self.files.items()}
        return canonical_key([contents, self.metrics, self.requirements, self.mode])

    def pack(self) -> bytes:
        """As compressed bytes, see `unpack`."""
        files = {path: base64.b64encode(data).decode("ascii") for path, data in self.files.items()}
        value = {
            "metrics": self.metrics,
            "requirements": self.requirements,
            "mode": self.mode,
            "files": files,
        }
        return zlib.compress(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), 9)

    @staticmethod
    def unpack(data: bytes, expected_hash: str) -> Bundle:
        """What `pack` made; raises DamagedBundle when it is not exactly what `expected_hash` was
        taken of.
        """
        try:
            reader = zlib.decompressobj()
            text = reader.decompress(data, _PACKED_LIMIT)
            value: Any = orjson.loads(text) if reader.eof else None
            files = {
                path: base64.b64decode(content, validate=True)
                for path, content in value["files"].items()
            }
            mode = cast(Mode, value["mode"])
            bundle = Bundle(files, tuple(value["metrics"]), tuple(value["requirements"]), mode)
            unsafe = [path for path in files if not is_inside(path)]
        except (zlib.error, ValueError, AttributeError, KeyError, TypeError) as error:
            raise DamagedBundle(
                f"the stored files cannot be read ({type(error).__name__}); deploy them again"
            ) from error
        if unsafe or bundle.hash != expected_hash:
            raise DamagedBundle(
                "the stored files are not those that were deployed; deploy them again"
            )
        return bundle


def is_inside(path: str) -> bool:
    """Whether a path of a bundle stays in its folder: relative, plain parts, no way up."""
    parts = path.split("/")
    return (
        len(parts) > 1
        and "\\" not in path
        and "\0" not in path
        and not {"", ".", ".."} & set(parts)
    )


def bundle_folders(
    metric_folders: Sequence[str | os.PathLike[str]] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    code: str | None = None,
    code_file: str = _MAIN,
    code_name: str = "evaluator",
    mode: Mode | None = None,
) -> Bundle:
    """Read an evaluator's files; nothing of them is run.

    Args:
        metric_folders: `name=path` each; a folder holds `main.py` with a function `evaluate`.
        folder: instead: one such folder, or one whose sub-folders are.
        code: instead: the text of the `main.py` of one metric.
        code_file: its name, `main.py`.
        code_name: the name of that metric.
        mode: "pointwise" or "batch" where the files do not say it (`@reward_function(mode=…)`).

    Hidden files, symbolic links, caches and files that look like keys (.env, .pem, id_rsa,
    credentials.json, …) are never read; they are named in `skipped`.

    Raises:
        ConfigError: none or several of the three, a folder without `main.py`, code that does not
            parse or defines no `evaluate`, more than 500 files or 8 MB, modes that differ; nothing
            is read beyond these bounds.
    """
    given = [value is not None for value in (metric_folders, folder, code)]
    if sum(given) != 1:
        raise ConfigError(
            "name what is to be evaluated in one way: metric_folders=['name=path', …], folder=PATH or "
            f"python_code_to_evaluate=TEXT; found {sum(given)} of them"
        )
    files: dict[str, bytes] = {}
    skipped: list[str] = []
    if code is not None:
        if code_file != _MAIN:
            raise ConfigError(
                f"python_file_name_for_code is {code_file!r}; the entry of a metric is {_MAIN!r}"
            )
        metrics = [_metric_name(code_name, "criterion_name_for_code")]
        try:
            files[f"{metrics[0]}/{_MAIN}"] = code.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(
                "python_code_to_evaluate holds characters that are no valid Unicode"
            ) from None
    else:
        folders = (
            _named_folders(metric_folders)
            if metric_folders is not None
            else _folders_below(Path(folder or ""))
        )
        metrics = list(folders)
        for name, path in folders.items():
            _read_folder(name, path, files, skipped)
    facts = [_facts_of(name, files) for name in metrics]
    modes = {stated for _, stated in facts if stated} | ({mode} if mode else set())
    if len(modes) > 1 or not modes <= {"pointwise", "batch"}:
        raise ConfigError(
            f"reward_function_mode is one of 'pointwise', 'batch', for all metrics; found "
            f"{sorted(map(str, modes))}"
        )
    requirements = sorted({line for lines, _ in facts for line in lines})
    return Bundle(
        files,
        tuple(metrics),
        tuple(requirements),
        cast(Mode, next(iter(modes), "pointwise")),
        tuple(skipped),
    )


def _metric_name(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{what}: {name[:120]!r} is no name of a metric; use letters, digits, '_', '-' and '.'"
        )
    return name


def _named_folders(specs: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    if isinstance(specs, (str, os.PathLike)):
        raise ConfigError(
            f"metric_folders is a list of 'name=path' texts; found {os.fspath(specs)!r}, put it "
            f"into a list"
        )
    folders: dict[str, Path] = {}
    for spec in specs:
        name, equals, path = os.fspath(spec).partition("=")
        if not equals or not name or not path:
            raise ConfigError(f"metric_folders: found {os.fspath(spec)!r}; the form is 'name=path'")
        name = _metric_name(name.strip(), "metric_folders")
        if name in folders:
            raise ConfigError(
                f"metric_folders: two folders are named {name!r}; give each a name of its own"
            )
        folders[name] = _folder(Path(path.strip()).expanduser())
    if not folders:
        raise ConfigError(
            "metric_folders (--metrics-folders) is empty; give at least one 'name=path'"
        )
    return folders


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise ConfigError(
            f"{path}: {'is no folder' if path.exists() else 'there is no such folder'}"
        )
    return path


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error


def _folders_below(path: Path) -> dict[str, Path]:
    path = _folder(path.expanduser())
    if (path / _MAIN).is_file():
        return {_metric_name(path.resolve().name, "folder"): path}
    with _readable(path):
        below = [
            inner
            for inner in sorted(path.iterdir())
            if not _reason_to_skip(inner.name) and (inner / _MAIN).is_file()
        ]
    if not below:
        raise ConfigError(f"{path}: neither it nor a folder in it holds {_MAIN!r}")
    return {_metric_name(inner.name, "folder"): inner for inner in below if not inner.is_symlink()}


def _reason_to_skip(name: str) -> str:
    if name.startswith("."):
        return "hidden"
    never = name in _NEVER_NAMES or name.endswith(_NEVER_ENDS) or _KEYS.fullmatch(name)
    return "never bundled" if never else ""


def _read_folder(name: str, path: Path, files: dict[str, bytes], skipped: list[str]) -> None:
    total = sum(map(len, files.values()))
    for inner, entry in _walk(path, (), skipped, name):
        if len(files) >= MAX_FILES:
            raise ConfigError(
                f"{path}: more than {MAX_FILES} files; an evaluator holds its code and small "
                f"tables only"
            )
        data = _read_plain_file(Path(entry.path), MAX_BYTES - total)
        total += len(data)
        files[f"{name}/{inner}"] = data
    if f"{name}/{_MAIN}" not in files:
        linked = " (a symbolic link is not followed)" if (path / _MAIN).is_symlink() else ""
        raise ConfigError(
            f"{path}: there is no {_MAIN!r} in it{linked}; it defines the function 'evaluate'"
        )


def _walk(
    path: Path, parts: tuple[str, ...], skipped: list[str], name: str
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if len(parts) > MAX_DEPTH:
        raise ConfigError(f"{path}: folders are nested deeper than {MAX_DEPTH}")
    with _readable(path), os.scandir(path) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        inner = (*parts, entry.name)
        reason = _reason_to_skip(entry.name) or _odd_kind(entry)
        if reason:
            if entry.name != "__pycache__":
                skipped.append(f"{name}/{'/'.join(inner)} ({reason})")
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), inner, skipped, name)
        else:
            yield "/".join(inner), entry


def _odd_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "symbolic link"
    if not is_inside(f"x/{entry.name}") or not entry.name.isprintable():
        return "unusual name"
    plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
    return "" if plain else "no plain file"


def _read_plain_file(path: Path, left: int) -> bytes:
    """The bytes of a plain file; what became a link or a pipe since it was listed is refused."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # where the system has them
        flags |= getattr(os, name, 0)
    with _readable(path), os.fdopen(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigError(f"{path}: is no plain file")
        data = file.read(left + 1)
    if len(data) > left:
        raise ConfigError(
            f"{path}: with it the evaluator has more than {MAX_BYTES // 2**20} MB; leave large "
            f"files out"
        )
    return data


def _facts_of(name: str, files: Mapping[str, bytes]) -> tuple[list[str], str]:
    """The requirements and the mode that main.py says of itself; it is parsed, never run."""
    where = f"{name}/{_MAIN}"
    try:
        # warnings about odd escapes concern the author of the code, not who deploys it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = syntax_tree(files[where])
            assert isinstance(tree, ast.Module)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        at = f", line {line}" if line else ""
        raise ConfigError(
            f"{where}{at}: is no valid Python: {getattr(error, 'msg', None) or error}"
        ) from error
    function = _binding_of_evaluate(tree)
    if function is None:
        named = [
            each.name
            for each in tree.body
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        there = f"it defines {', '.join(named[:5])}" if named else "define it there"
        raise ConfigError(f"{where}: defines no function 'evaluate' at its top level; {there}")
    requirements: list[str] = []
    mode = ""
    decorators = [
        each for each in getattr(function, "decorator_list", ()) if isinstance(each, ast.Call)
    ]
    for keyword in chain.from_iterable(each.keywords for each in decorators):
        value: Any = None
        with contextlib.suppress(ValueError):
            value = ast.literal_eval(keyword.value)
        if keyword.arg == "requirements" and isinstance(value, (list, tuple)):
            requirements += [
                line.strip() for line in value if isinstance(line, str) and line.strip()
            ]
        elif keyword.arg == "mode" and isinstance(value, str):
            mode = value
    lines = files.get(f"{name}/requirements.txt", b"").decode("utf-8-sig", "replace").splitlines()
    plain = (re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip() for line in lines)
    requirements += [line for line in plain if line and not line.startswith("-")]
    return requirements, mode


def _binding_of_evaluate(tree: ast.Module) -> ast.stmt | None:
    """The statement at the top level that gives `evaluate` its meaning; a definition comes before
    an assignment or import.
    """
    for statement in tree.body:
        if (
            isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            and statement.name == "evaluate"
        ):
            return statement
    return next(
        (statement for statement in tree.body if "evaluate" in set(_names_bound(statement))), None
    )


def _names_bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name  # in a branch of `if` or `try`
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
