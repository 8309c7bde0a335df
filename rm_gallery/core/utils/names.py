"""Names that are not known, and the known ones that are most like them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from functools import partial

from rm_gallery.core.utils.errors import ConfigError

MIN_SIMILARITY, MIN_WORD_SIMILARITY = 0.5, 0.75
"""How much a name, or one word of it, has to be like what was given to be proposed."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> list[str]:
    """The known names that are most like a name, or have a word that is, nearest first; none where
    nothing is like it.
    """
    wanted = difflib.SequenceMatcher(b=name.casefold())
    matches: dict[str, tuple[float, str]] = {}
    for each in sorted(known):
        whole = each.casefold()
        word = max(map(partial(_similarity, wanted), whole.split("_")))
        similarity = max(_similarity(wanted, whole), word if word >= MIN_WORD_SIMILARITY else 0.0)
        if similarity >= MIN_SIMILARITY:
            matches.setdefault(whole, (-similarity, each))
    return [each for _, each in sorted(matches.values())[:n]]


def _similarity(wanted: difflib.SequenceMatcher[str], text: str) -> float:
    wanted.set_seq1(text)
    return wanted.ratio()


def unknown_name(
    what: str, name: str, known: Iterable[str], hint: str = "", shown: int = 12
) -> str:
    """Message for a name that is not known, with the nearest ones that are, else with the first
    few.
    """
    names = sorted(known)
    near = nearest(name, names)
    suggestion = (
        f" Did you mean {', '.join(near)}?"
        if near
        else f" Known: {', '.join(names[:shown])}."
        if names
        else ""
    )
    return f"There is no {what} '{name}'.{suggestion}" + (f" {hint}" if hint else "")


def check_known(what: str, names: Iterable[str], known: Collection[str], where: str = "") -> None:
    """Raise ConfigError for the first of the names that is not known."""
    for name in names:
        if name not in known:
            raise ConfigError(where + unknown_name(what, str(name), known))
