"""The nearest names for a typing error, and copies of models that are not validated anew."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from rm_gallery.core.utils.models import build, copy_with, nearest, remake, unknown_name


@pytest.mark.parametrize(
    ("name", "found"),
    [("acuracy", ["accuracy"]), ("ACCURACY", ["accuracy"]), ("rouje", ["Rouge"]), ("xyzzy", []), ("", [])],
)
def test_nearest_names(name: str, found: list[str]) -> None:
    known = ["accuracy", "Rouge", "bleu"]
    assert nearest(name, known) == found
    assert unknown_name("reward", name, known).endswith(f"Did you mean {', '.join(found)}?") is bool(found)


def test_what_is_said_of_an_unknown_name() -> None:
    assert unknown_name("reward", "a", []) == "There is no reward 'a'."
    assert unknown_name("reward", "q", ["b", "c"], "See there.") == "There is no reward 'q'. Known: b, c. See there."
    many = [f"name_{n:02}" for n in range(30)]
    assert unknown_name("reward", "q", many).endswith("name_10, name_11.")
    assert nearest("weight", ["max_weight_of", "weights", "sight", "night"], n=2) == ["max_weight_of", "weights"]


class Thing(BaseModel):
    one: int = 1
    two: list[int] = []


def test_copies_share_what_is_not_changed() -> None:
    thing = Thing(one=3)
    copy = copy_with(thing, two=[5])
    assert (copy, copy.model_fields_set, thing.model_fields_set) == (Thing(one=3, two=[5]), {"one", "two"}, {"one"})
    assert copy_with(thing).two is thing.two
    assert (build(Thing, {"one": 2, "two": []}), remake(thing, {"one": 2, "two": []})) == (Thing(one=2, two=[]),) * 2
    assert build(Thing, {"one": 2, "two": []}).model_fields_set == {"one", "two"}
    assert remake(thing, {"one": 2, "two": []}).model_fields_set == {"one"}
