"""Names that code of earlier versions imports lead to today's."""

from __future__ import annotations

import importlib

import pytest

from rm_gallery.core.utils.compat import EARLIER


@pytest.mark.parametrize(
    ("module", "name", "target"),
    [(m, n, t) for m, names in EARLIER.items() for n, t in names.items()],
)
def test_an_earlier_name_is_todays(module: str, name: str, target: str) -> None:
    now, _, attribute = target.partition(":")
    assert getattr(importlib.import_module(module), name) is getattr(
        importlib.import_module(now), attribute
    )


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'never_there'"):
        _ = importlib.import_module("rm_gallery.core.stats.denominator").never_there


@pytest.mark.parametrize(
    ("module", "name"),
    [("rm_gallery.study.opened", "StepSaid"), ("rm_gallery.study.duels", "Duel")],
)
def test_an_earlier_module_holds_its_names(module: str, name: str) -> None:
    assert isinstance(getattr(importlib.import_module(module), name), type)
