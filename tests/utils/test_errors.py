"""Every error of the library comes whole out of another process."""

from __future__ import annotations

import importlib
import pickle
import pkgutil

import pytest

import rm_gallery.core.engine
import rm_gallery.core.model
from rm_gallery.core.utils import errors


def families() -> list[type[errors.RMGalleryError]]:
    for package in (rm_gallery.core.engine, rm_gallery.core.model):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, open_ = list[type[errors.RMGalleryError]](), [errors.RMGalleryError]
    while open_:
        found.append(open_.pop())
        open_ += found[-1].__subclasses__()
    return sorted({cls for cls in found if cls.__module__.startswith("rm_gallery.")}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", families(), ids=lambda cls: cls.__name__)
def test_it_comes_whole_out_of_another_process(cls: type[errors.RMGalleryError]) -> None:
    error = cls.__new__(cls)
    error.args, error.__dict__["told"] = ("what happened", 3), {"more": 1}
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.__dict__) == (cls, error.args, error.__dict__)
