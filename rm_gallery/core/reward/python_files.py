"""Modules and Python files that rewards are loaded from."""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from rm_gallery.core.utils.errors import ConfigError

_lock = threading.RLock()
_known: dict[Path, tuple[bytes, ModuleType]] = {}
"""By file: what it said when it was loaded, and the module it gave."""


class _Unkept(SourceFileLoader):
    """Reads the source and no bytecode: what is kept of that goes by the size and the second of the
    last change.
    """

    def path_stats(self, path: str) -> NoReturn:
        """None, by which the import system knows that nothing is to be kept."""
        raise OSError(path)


def split_target(target: str) -> tuple[str, str]:
    """File or module, and the name in it (empty when left out), of `FILE:NAME`; a drive letter is
    no name.
    """
    where, _, name = target.rpartition(":")
    return (where, name) if where and name.isidentifier() else (target.rstrip(":"), "")


def origin_of(module: str | None) -> str | None:
    """The file a module of this kind was loaded from, None for a module that is imported by its
    name.
    """
    loader = getattr(sys.modules.get(module or ""), "__loader__", None)
    return loader.path if isinstance(loader, _Unkept) else None


def load_module(where: str) -> ModuleType:
    """The module that a file, or a dotted name, is; a file that has changed since is loaded again.

    Modules beside the file can be imported by it. Raises ConfigError when it is absent or raises on
    import.
    """
    if not (where.endswith(".py") or "/" in where or "\\" in where or Path(where).exists()):
        try:
            return _imported(where)
        except ImportError as error:
            raise ConfigError(
                f"{where}: no such file, and as a module it cannot be imported: {error}"
            ) from error
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{where}: the module cannot be loaded: {type(error).__name__}: {error}"
            ) from error
    path = Path(where).expanduser().resolve()
    if path.is_dir():
        path = path / "main.py"
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{where}: {path} cannot be read ({error.strerror}); give the path of a Python file."
        ) from error
    with _lock:
        known = _known.get(path)
        if known is None or known[0] != source:
            _known[path] = known = source, _executed(path, where)
        return known[1]


def _imported(where: str) -> ModuleType:
    """The module of this name, which may lie in the working directory: a command has that not on
    its path, as `python` has.
    """
    top, folder = where.partition(".")[0], str(Path.cwd())
    if top not in sys.modules and folder not in sys.path and find_spec(top) is None:
        # last, so that it hides nothing, and for good, since workers import what they are sent by
        # this name
        sys.path.append(folder)
        importlib.invalidate_caches()
    return importlib.import_module(where)


def _executed(path: Path, where: str) -> ModuleType:
    if path.suffix != ".py":
        raise ConfigError(f"{where}: {path.name} is no Python file; its name ends in .py.")
    name = f"reward_file_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    loader = _Unkept(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module, before = module_from_spec(spec), sys.modules.get(name)
    _set_aside(path.parent)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script without a main guard may end the process
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise ConfigError(
            f"{where}: {path.name} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _set_aside(folder: Path) -> None:
    """Forget modules that were found beside another such file under the name of one beside this:
    each gets its own.
    """
    others = {path.parent for path in _known} - {folder}
    for neighbour in folder.iterdir():
        file = getattr(sys.modules.get(neighbour.stem), "__file__", None)
        if not others.isdisjoint(Path(file or "").parents):
            del sys.modules[neighbour.stem]
