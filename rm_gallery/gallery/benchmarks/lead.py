"""What a report leads with: its first facts in their order, and whether it may praise. Every
rendering shows this one list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from rm_gallery.core.utils.shown import number, percent, show

TRUST_CARD = "trust_card"
"""The rule of an audit: parts in units and directions of their own, and no one figure."""
COMPARED = "win_rate"
"""The rule that compares two columns instead of asking whether a reward is right."""
OWN_UNIT = ("mean_score", "label_correlation", "correlation", "points")
"""Rules whose figure is no share."""
Kind = Literal["verdict", "corrected", "agreement", "contradicted", "constant", "tally", "figure"]
PLAIN: tuple[Kind, ...] = ("tally", "figure")
"""What every report says of itself; it leads only where people and constancy have nothing to add.
"""


Figures = Mapping[str, Any]
"""A report, saved or as `Report.to_dict` gives it, or a part of one."""


class Fact(NamedTuple):
    """One thing a report leads with."""

    kind: Kind
    text: str
    """A sentence; of a tally, counts."""


def leads(figures: Figures) -> list[Fact]:
    """The facts a report leads with, the most trustworthy first.

    The verdict of a comparison, as `judge-select` gives it, comes first. Labels of people come
    before the judge they correct: the corrected figure, the agreement, and
    whether they contradict the judge. A page once led with "100 % wins" of a judge that people
    contradicted in every row.

    Args:
        figures: a report, saved or as `Report.to_dict` gives it.
    """
    verdict, why = _object(figures.get("extra")).get("verdict"), contradicted(figures)
    told: list[tuple[Kind, str]] = [
        ("verdict", verdict if isinstance(verdict, str) else ""),
        ("corrected", corrected_of(figures)),
        *(("agreement", text) for text in _agreements(figures)),
        (
            "contradicted",
            why and f"People's labels do not support what the judge alone says: {why}.",
        ),
        ("constant", str(figures.get("constant") or "")),
        ("tally", tally_of(figures)),
        ("figure", headline(figures)),
    ]
    return [Fact(kind, text) for kind, text in told if text]


def leads_beyond_figure(figures: Figures) -> list[Fact]:
    """All the facts where they hold more than the figure of the judge; empty where a table of
    figures says it all.
    """
    facts = leads(figures)
    return facts if any(fact.kind not in PLAIN for fact in facts) else []


def lead_figure(figures: Figures) -> Figures:
    """The figures with the score and the interval that lead: those corrected by labels of people,
    where there are any.
    """
    corrected = corrected_figure(figures)
    return figures if corrected is None else {**figures, **corrected}


def corrected_figure(figures: Figures) -> dict[str, Any] | None:
    """The figure corrected by labels of people as numbers: score, ci95 and n_labelled; None without
    labels.
    """
    about = _extra(figures, "corrected")
    if about.get("estimate") is None:
        return None
    return {
        "score": about["estimate"],
        "ci95": about.get("ci95"),
        "n_labelled": count_of(about, "n_labelled"),
    }


def contradicted(figures: Figures) -> str:
    """Why labels of people forbid to praise the judge or what it prefers; empty where they do not,
    and without labels.

    Praise needs an agreement above chance, and of a comparison a corrected interval on the same
    side of 50 % as the judge.
    """
    if _compares(figures):
        return _against_comparison(figures, _extra(figures, "agreement"))
    for about in _labelled(figures):
        name, value = _measure(about)
        # of labels that are all the same nothing is known
        if about.get("n") and name and not number(value) > 0:
            return f"the scores{_of_grader(about)} do not rise with the labels"
    return ""


def may_praise(figures: Figures) -> bool:
    """Whether anything may be called good: labels of people do not contradict it, and guessing is
    no better on the data's own.
    """
    score, chance = figures.get("score"), figures.get("chance")
    if isinstance(score, int | float) and isinstance(chance, int | float) and score <= chance:
        return _compares(figures) and not contradicted(figures)
    return not contradicted(figures)


def _against_comparison(figures: Figures, agreement: Figures) -> str:
    corrected, score = corrected_figure(figures), figures.get("score")
    kappa, share = agreement.get("kappa"), number(agreement.get("agreement"))
    if agreement.get("n") and (share <= 0.5 if kappa is None else number(kappa) <= 0):
        return "it agrees with them no more often than chance would"
    if corrected is not None and isinstance(score, int | float) and score != 0.5:
        low, high = corrected["ci95"] or (0.0, 1.0)
        if (low if score > 0.5 else 1.0 - high) <= 0.5:
            better, worse = _sides(figures) if score > 0.5 else reversed(_sides(figures))
            return f"the corrected figure does not show that {better} is better than {worse}"
    return ""


def _object(value: Any) -> Figures:
    """A part of a file that is an object; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def _extra(figures: Figures, name: str) -> Figures:
    return _object(_object(figures.get("extra")).get(name))


def _compares(figures: Figures) -> bool:
    return bool(figures.get("rule") == COMPARED)


def _in_own_unit(figures: Figures) -> bool:
    return figures.get("rule") in OWN_UNIT


def count_of(figures: Figures, name: str) -> int:
    """A count out of a file; 0 where it is none."""
    return int(number(figures.get(name)))


def _interval(figures: Figures) -> str:
    """The interval in brackets, in the unit of the rule; empty where there is none."""
    bounds, unit = between(figures, " to "), "" if _in_own_unit(figures) else " %"
    return f" (95 % interval {bounds}{unit})" if bounds else ""


def _labelled(figures: Figures) -> Iterator[Figures]:
    """What people's labels say of scores: of the answers of a table, or of every grader that has
    labels; nothing of a figure that is a share.
    """
    if not _in_own_unit(figures):
        return
    if "validation" in _object(figures.get("extra")):
        for name, about in _extra(figures, "validation").items():
            yield {"name": name, **_object(about)}
    elif "spearman" in (about := _extra(figures, "agreement")):
        yield about


_MEASURES = {"kappa": "kappa", "spearman": "Spearman's correlation"}


def _measure(about: Figures) -> tuple[str, Any]:
    """The measure that allows for chance, and its value; None where all scores or all labels are
    the same.
    """
    known = [(name, about[name]) for name in _MEASURES if about.get(name) is not None]
    return known[0] if known else ("", None)


def _agreements(figures: Figures) -> Iterator[str]:
    """How far the judge agrees with people, a sentence each; nothing without labels."""
    if _compares(figures):
        agreement = _extra(figures, "agreement")
        if agreement.get("n"):
            share = percent(number(agreement.get("agreement")))
            ends = _interval({"ci95": agreement.get("ci95")})
            kappa = "" if agreement.get("kappa") is None else f", {_valued('kappa', agreement)}"
            beside = [
                f"{who} in {percent(number(agreement[name]))}"
                for name, who in (("chance", "chance"), ("longest", "the longer answer"))
                if agreement.get(name) is not None
            ]
            yield (
                f"Agreement with people: {share}{ends}{kappa}, n = {count_of(agreement, 'n'):,}"
                f"{'; beside it ' if beside else ''}{', '.join(beside)}."
            )
        return
    for about in _labelled(figures):
        n, name = count_of(about, "n"), _measure(about)[0]
        unknown = "unknown, since all scores or all labels are the same"
        measured = _valued(name, about) if name else unknown
        if n:
            yield f"Agreement{_of_grader(about)} with people: {measured}, n = {n:,}."


def _of_grader(about: Figures) -> str:
    return f" of {about['name']}" if about.get("name") else ""


def _valued(name: str, about: Figures) -> str:
    ends = about.get(f"{name}_ci95")
    interval = (
        f" (95 % interval {ends[0]:.2f} to {ends[1]:.2f})" if ends and None not in ends else ""
    )
    return f"{_MEASURES[name]} {number(about[name]):.2f}{interval}"


def in_unit(figure: Figures, value: Any) -> str:
    """A value of a figure for people: a percentage, or as it is where the rule keeps the reward's
    own unit.
    """
    if not isinstance(value, (int, float)):
        return "–"
    return show(value, 4) if _in_own_unit(figure) else percent(value)


def between(figure: Figures, joined: str = " – ") -> str:
    """The interval of a figure for people, without a percent sign; empty where there is none."""
    bounds = figure.get("ci95")
    if not bounds:
        return ""
    own = _in_own_unit(figure)
    return joined.join(show(value, 4) if own else f"{100 * value:.1f}" for value in bounds)


def sides_of(figures: Figures) -> tuple[str, str] | None:
    """The names of the two columns that were compared."""
    extra = _object(figures.get("extra"))
    first, second = extra.get("a"), extra.get("b")
    return (first, second) if isinstance(first, str) and isinstance(second, str) else None


def _sides(figures: Figures) -> tuple[str, str]:
    return sides_of(figures) or ("the first", "the second")


def tally_of(figures: Figures) -> str:
    """How many rows were won, tied and lost; empty where nothing was compared."""
    extra = _object(figures.get("extra"))
    if not _compares(figures) or "wins" not in extra:
        return ""
    won, lost = "won", "lost"
    if contradicted(figures):  # nothing is won that people give to the other side
        won, lost = (f"for {side}" for side in _sides(figures))
    words = {"wins": won, "ties": "tied", "losses": lost}
    counts = " · ".join(f"{count_of(extra, name):,} {word}" for name, word in words.items())
    return f"{counts}, by the judge alone" if corrected_figure(figures) else counts


def corrected_of(figures: Figures) -> str:
    """The figure corrected by people's labels, in a sentence; empty without labels."""
    corrected = corrected_figure(figures)
    if corrected is None:
        return ""
    lead = {**figures, **corrected}
    names = sides_of(figures) if _compares(figures) else None
    rate = f"win rate of {names[0]} against {names[1]} " if names else ""
    return (
        f"Corrected by {corrected['n_labelled']:,} labels of people: {rate}"
        f"{in_unit(lead, lead['score'])}{_interval(lead)}."
    )


def headline(figures: Figures) -> str:
    """Score, rule, n and interval in one sentence."""
    name = figures.get("reward") or "The reward"
    n, scored = count_of(figures, "n"), count_of(figures, "n_scored")
    on = f" on {figures['benchmark']}" if figures.get("benchmark") else ""
    if figures.get("score") is None:
        if scored:  # such as of a grader that only ranks
            return f"{name} has no one score{on}; {scored:,} of {n:,} samples are judged."
        what = "no sample could be scored" if n else "there is no finished sample"
        return f"{name} has no score{on}: {what}{f' out of {n:,}' if n else ''}."
    ci95, score = _interval(figures), in_unit(figures, figures["score"])
    if _compares(figures) and (names := sides_of(figures)):
        first, second = names
        of = f"{scored:,} of {n:,} rows"
        if contradicted(figures):
            return f"{name} prefers {first} to {second} in {score} of the rows{ci95}, judging {of}."
        return f"{first} wins {score} of the rows against {second}{ci95}, as {name} judges {of}."
    verb = "has a mean score of" if figures.get("rule") == OWN_UNIT[0] else "reaches"
    return f"{name} {verb} {score}{ci95}{on}, over {scored:,} scored of {n:,} samples."
