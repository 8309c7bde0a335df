"""Imports every module of the package; one that needs a package of an extra may refuse, for that
reason alone.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import rm_gallery
from rm_gallery.core.utils.errors import MissingExtra


def module_names(under: str = "rm_gallery") -> list[str]:
    """Every module below a package, told by the files: not every folder holds an `__init__.py`."""
    root = Path(rm_gallery.__file__).parent.parent
    files = (root / under.replace(".", "/")).rglob("*.py")
    return sorted(
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        for file in files
    )


def main() -> int:
    """Import all, and say how many."""
    done, refused = 0, []
    for name in module_names():
        try:
            importlib.import_module(name)
            done += 1
        except MissingExtra as error:
            refused.append(f"{name}: {error}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("rm_gallery"):
                raise
            refused.append(f"{name}: {error}")
    print(
        f"{done} modules are imported, {len(refused)} need what is not installed",
        *refused,
        sep="\n  ",
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
