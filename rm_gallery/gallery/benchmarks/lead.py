"""What a report is worth, in the sentences that every rendering begins with; and whether it may
praise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from rm_gallery.core.stats.intervals import Interval, shown_side
from rm_gallery.core.utils.shown import number, percent, show

TRUST_CARD = "trust_card"
"""The rule of an audit: parts in units and directions of their own, and no one figure."""
COMPARED = "win_rate"
"""The rule that compares two columns instead of asking whether a reward is right."""
MEAN_SCORE = "mean_score"
"""The rule that averages scores in the reward's own unit."""
OWN_UNIT = (MEAN_SCORE, "label_correlation", "correlation", "points")
"""Rules whose figure is no share."""
HELD_TO_NO_LABELS = {
    MEAN_SCORE: "mean score",
    COMPARED: "win rate",
    "no_conflict": "share without a conflict",
    "consistency": "share judged alike in both orders",
}
"""Rules whose credits are no rights, since nothing labelled is asked about, with what their figure is:
`drift` once took a judge that always passes for one that people agree with more.
"""
LENGTH_ALONE = 0.95
"""Share of decided rows from which on a judge may go by length alone."""
FEWEST_DECIDED = 10
FEW_CLUSTERS = 10

Figures = Mapping[str, Any]
"""A report, saved or as `Report.to_dict` gives it, or a part of one."""


def worth(figures: Figures) -> str:
    """What a reader may conclude from a report, in short sentences, worst news first.

    That the run is unfinished, and how far it came; a constant judge, or one that goes by length
    alone; rows of one cluster; agreement with people; the figure against guessing, an even match or
    0, corrected by labels of people where there are any, or the verdict of a report that has one;
    what is missing and by whom, and what is in no figure; few clusters; and where nothing is shown,
    what could have been seen. A page once led with "100 % wins" of a judge that people contradicted
    in every row.

    Args:
        figures: a report, saved or as `Report.to_dict` gives it; of what one of an earlier version
            does not hold nothing is said.
    """
    verdict = _object(figures.get("extra")).get("verdict")
    facts = [
        _unfinished(figures),
        str(figures.get("constant") or ""),
        _length_alone(figures),
        _clusters(figures, 1),
        _other_unit(figures),
        *(
            _figure_told(figures)
            if not isinstance(verdict, str)
            else [verdict, *_agreements(figures)]
        ),
        _missing(figures),
        *_outside(figures),
        _clusters(figures, FEW_CLUSTERS),
        _detectable(figures),
    ]
    return " ".join(f"{fact.removesuffix('.')}." for fact in facts if fact)


def _figure_told(figures: Figures) -> list[str]:
    """Agreement with people, and the figure, behind the one corrected by their labels; no score
    comes before all.
    """
    corrected, agreements = _corrected(figures), _agreements(figures)
    if figures.get("score") is None:  # labels alone once led as the figure of an unreadable judge
        return [f"{headline(figures)}{_where(figures)}", corrected, *agreements]
    if not corrected:
        return [*agreements, f"{headline(figures)}{_where(figures)}"]
    return [*agreements, f"{corrected}{_where(figures)}", headline(figures)]


def _other_unit(figures: Figures) -> str:
    """That labels lie outside the range of the scores that they correct."""
    about = _extra(figures, "labels_outside")
    if not (n := count_of(about, "n")):
        return ""
    low, high = about["range"]
    ends = ("" if end is None else f"{end:g}" for end in (low, high))
    return (
        f"{n:,} {'label lies' if n == 1 else 'labels lie'} outside the range of the scores "
        f"({' to '.join(ends).strip()}): they may be in another unit, and then correct nothing"
    )


def _unfinished(figures: Figures) -> str:
    """That the run did not come to its end, and to how many samples of how many."""
    partial, stopped = figures.get("partial"), str(figures.get("stopped") or "")
    if not partial and not stopped:
        return ""
    asked = count_of(figures, "n") - count_of(figures, "n_stopped")
    whole = count_of(figures, "n_whole" if partial else "n")
    if whole > asked and figures.get("rule") == TRUST_CARD:
        return f"Unfinished: {asked:,} of {whole:,} questions were asked"
    if whole > asked:
        return f"Unfinished: {asked:,} of {whole:,} samples were asked about"
    if stopped:  # between repeats, or with the last sample
        return f"Unfinished: {stopped.partition('. ')[0].replace('; ', ', ')}"
    return f"Unfinished: {asked:,} samples were asked about so far"


def _outside(figures: Figures) -> Iterator[str]:
    """Parts whose samples are judged and that have no score of their own to enter the mean, such as
    ties without a complete pair: a figure over 35 samples once stood beside "40 scored of 40".
    """
    parts, listed = _object(figures.get("by_subset")), _object(figures.get("extra")).items()
    gaps = (names for key, names in listed if key.endswith(("_without_score", "_absent")))
    for name in chain.from_iterable(gaps) if figures.get("score") is not None else ():
        if n := count_of(_object(parts.get(name)), "n_scored"):
            what = f"{n:,} judged {'samples are' if n > 1 else 'sample is'} not in the figure"
            yield f"{what}: {name} has no score of its own"


def _length_alone(figures: Figures) -> str:
    lengths = _object(figures.get("lengths"))
    n = count_of(lengths, "n")
    for side in ("longer", "shorter"):
        took = count_of(lengths, side)
        if n >= FEWEST_DECIDED and took >= LENGTH_ALONE * n:
            what = f"took the {side} answer in {took:,} of {n:,} rows"
            return f"{_name(figures)} {what}: it may measure length alone"
    return ""


def _clusters(figures: Figures, most: int) -> str:
    """That the rows are of one cluster, or of fewer than `most`."""
    n, clusters = count_of(figures, "n_scored"), count_of(figures, "n_clusters")
    if clusters == most == 1:
        rows = f"{n:,} rows" if n > 1 else "1 row"
        cure = "; name a column with cluster=" if n > 1 else ""
        return f"{rows} from 1 prompt: no interval{cure}"
    if 1 < clusters < most:
        return (
            f"{n:,} rows come from only {clusters} clusters" if n > clusters else f"Only {n} rows"
        )
    return ""


def _null(figures: Figures) -> tuple[float, str] | None:
    """The value that is nothing, and its name; None where there is none."""
    if _compares(figures):
        return 0.5, "50 %"
    if figures.get("rule") == "label_correlation":
        return 0.0, "0"
    chance = figures.get("chance")
    known = isinstance(chance, int | float)
    return (number(chance), f"guessing ({percent(number(chance))})") if known else None


def _sides(figures: Figures) -> tuple[int, int, str] | None:
    """On which side of nothing the figure that leads lies by its interval, and on which whatever is
    missing, and the name of nothing; None where that is no question.
    """
    null, lead = _null(figures), lead_figure(figures)
    score, ci95 = lead.get("score"), lead.get("ci95")
    if null is None or score is None or not ci95 or figures.get("score") is None:
        return None
    # labels move the figure by as much, whatever the missing rows would have got
    low, high = (end + (score - figures["score"]) for end in ends_of(figures))
    value, name = null
    return shown_side(value, ci95, (score, score)), shown_side(value, ci95, (low, high)), name


def _where(figures: Figures) -> str:
    """Where the figure that leads lies from nothing."""
    if (found := _sides(figures)) is None:
        return ""
    side, surely, name = found
    if not side:
        return f", which cannot be told from {name}"
    end = ": worse than guessing" if side < 0 and name.startswith("guess") else ""
    end = end if surely else ", but what is missing could undo that"
    return f", {'above' if side > 0 else 'below'} {name}{end}"


def _detectable(figures: Figures) -> str:
    found, least = _sides(figures), figures.get("detectable")
    if found is None or found[0] or not least or corrected_figure(figures):
        return ""
    size = show(least) if _in_own_unit(figures) else f"{100 * number(least):.3g} points"
    return f"Only a distance of {size} or more would have been seen in 4 of 5 such runs"


def _missing(figures: Figures) -> str:
    gone = missing_of(figures)
    if not gone:
        return ""
    causes, bounds = by_cause(_object(figures.get("missing"))), figures.get("bounds") or (None,)
    ends = "" if None in bounds else between({**figures, "ci95": bounds}, " to ")
    unit = "" if _in_own_unit(figures) else " %"
    lies = f", so that the figure lies from {ends}{unit}" if ends else ""
    known = f" ({causes})" if causes else ""
    are = "is" if gone == 1 else "are"
    return f"{gone:,} of {count_of(figures, 'n'):,} rows {are} missing{known}{lies}"


def by_cause(missing: Mapping[str, int]) -> str:
    """What is missing, by who caused it: "80 by the judge, 2 by the data"."""
    return ", ".join(f"{number:,} by the {cause}" for cause, number in missing.items())


def missing_of(figures: Figures) -> int:
    """How many scores are missing; reports of earlier versions do not tell what the protocol left
    out.
    """
    known = figures.get("missing")
    if isinstance(known, Mapping):
        return sum(count_of(known, cause) for cause in known)
    if figures.get("n") is None or figures.get("n_scored") is None:
        return 0
    return count_of(figures, "n") - count_of(figures, "n_scored")


def ends_of(figures: Figures) -> Interval:
    """The score of figures that have one at worst and at best, whatever is missing would have got;
    infinite where nobody knows.
    """
    if not missing_of(figures):
        return Interval(figures["score"], figures["score"])
    low, high = figures.get("bounds") or (None, None)
    return Interval(number(low, -math.inf), number(high, math.inf))


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


def contradicted(figures: Figures) -> bool:
    """Whether labels of people forbid to praise the judge or what it prefers; not without labels.

    Praise needs an agreement above chance, and of a comparison a corrected interval on the same
    side of 50 % as the judge.
    """
    for about in _labelled(figures):
        (name, value), share = _measure(about), about.get("agreement")
        # of labels that are all the same nothing is known but how often the judge says so
        against = number(value) <= 0 if name else share is not None and number(share) <= 0.5
        if about.get("n") and against:
            return True
    corrected, score = corrected_figure(figures), figures.get("score")
    if not _compares(figures) or corrected is None or score in (None, 0.5):
        return False
    low, high = corrected["ci95"] or (0.0, 1.0)
    return bool((low if number(score) > 0.5 else 1.0 - high) <= 0.5)


def may_praise(figures: Figures) -> bool:
    """Whether anything may be called good: labels of people do not contradict it, and guessing is
    no better on the data's own.
    """
    score, chance = figures.get("score"), figures.get("chance")
    if isinstance(score, int | float) and isinstance(chance, int | float) and score <= chance:
        return _compares(figures) and not contradicted(figures)
    return not contradicted(figures)


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
    """What people's labels say: of a comparison, of the answers of a table, of the judge that was
    selected, or of every grader that has labels.
    """
    validation, about = _extra(figures, "validation"), _extra(figures, "agreement")
    for name, one in validation.items():
        yield {"name": name, **_object(one)}
    if not validation and not about.keys().isdisjoint((*_MEASURES, "agreement")):
        yield about


_MEASURES = {"kappa": "kappa", "spearman": "Spearman's correlation"}


def _measure(about: Figures) -> tuple[str, Any]:
    """The measure that allows for chance, and its value; None where all scores or all labels are
    the same.
    """
    known = [(name, about[name]) for name in _MEASURES if about.get(name) is not None]
    return known[0] if known else ("", None)


def _agreements(figures: Figures) -> Iterator[str]:
    """How far the judge agrees with people; nothing without labels."""
    for about in _labelled(figures):
        n, name, share = count_of(about, "n"), _measure(about)[0], about.get("agreement")
        ends = about.get(f"{name}_ci95") or (None, None)
        alike = f"alike in {percent(share)} of {n:,} rows{_interval({'ci95': about.get('ci95')})}"
        known = [f"n = {n:,}"] if share is None else [alike, *_right_where_decided(about)]
        known += [
            f"{who} in {percent(number(about[beside]))}"
            for beside, who in (("chance", "chance alone"), ("longest", "always the longer answer"))
            if about.get(beside) is not None
        ]
        known += [_valued(name, about)] if name else []
        who = about.get("name") or _name(figures)
        says = (
            f"Whether {who} agrees with people more than chance is unknown, since all scores or all "
            f"labels are the same"
            if not name and number(share, 1.0) > 0.5
            else f"{who} agrees with people more than chance"
            if number(ends[0]) > 0
            else f"{who} agrees with people less than chance"
            if number(ends[1]) < 0
            else f"{who} is not shown to agree with people more than chance"
        )
        if n:
            yield f"{says}: {', '.join(known)}"


def _right_where_decided(about: Figures) -> Iterator[str]:
    """Of the rows that a judge decides, in how many it is right; nothing where it never ties: a tie
    counts as a miss beside labels that have none.
    """
    table = _object(about.get("table"))
    decided = {key: count_of(table, key) for key in table if not key.startswith("judge tie")}
    if 0 < (n := sum(decided.values())) < count_of(about, "n"):
        right = sum(decided.get(f"judge {side}, people {side}", 0) for side in "ab")
        yield f"in {right:,} of the {n:,} that it decides"


def _valued(name: str, about: Figures) -> str:
    ends = about.get(f"{name}_ci95")
    interval = (
        f" (95 % interval {ends[0]:.2f} to {ends[1]:.2f})" if ends and None not in ends else ""
    )
    return f"{_MEASURES[name]} {number(about[name]):.2f}{interval}"


def whole_name(extra: Figures) -> str:
    """What the row of the whole is called below the parts: `all`, or where these are judges or
    graders of the same rows, that it is the headline and whose.
    """
    name = extra.get("headline")
    return f"headline: {name}" if isinstance(name, str) else "all"


def in_unit(figure: Figures, value: Any) -> str:
    """A value of a figure for people: a percentage, or as it is where the rule keeps the reward's
    own unit.
    """
    if not isinstance(value, (int, float)):
        return "–"
    return show(value, 4) if _in_own_unit(figure) else percent(value)


def change_in_unit(figure: Figures, change: float) -> str:
    """A difference of two values of a figure with its sign: in points, or in the rule's own unit."""
    return f"{change:+.4g}" if _in_own_unit(figure) else f"{100 * change:+.1f}"


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


def _name(figures: Figures) -> str:
    """Whose figure it is: of several graders of the same rows, of the one whose figure leads."""
    lead = _object(figures.get("extra")).get("headline")
    return str((isinstance(lead, str) and lead) or figures.get("reward") or "The reward")


def _corrected(figures: Figures) -> str:
    """The figure corrected by people's labels, in words; empty without labels."""
    corrected = corrected_figure(figures)
    if corrected is None:
        return ""
    lead = {**figures, **corrected}
    names = sides_of(figures) if _compares(figures) else None
    what = f"win rate of {names[0]} against {names[1]}" if names else "figure"
    labels, value = f"{corrected['n_labelled']:,} labels of people", in_unit(lead, lead["score"])
    alone = _extra(figures, "corrected").get("method") == "labels only"
    if figures.get("score") is None:
        by = f"By {labels} alone"
    else:
        by = f"By {labels}" if alone else f"Corrected by {labels}"
    return f"{by} the {what} is {value}{_interval(lead)}"


def headline(figures: Figures) -> str:
    """Score, rule, n and interval in words."""
    name, extra = _name(figures), _object(figures.get("extra"))
    n, scored = count_of(figures, "n"), count_of(figures, "n_scored")
    on = f" on {figures['benchmark']}" if figures.get("benchmark") else ""
    if figures.get("score") is None:
        if scored:  # such as of a grader that only ranks
            return f"{name} has no one score{on}; {scored:,} of {n:,} samples are judged"
        what = "no sample could be scored" if n else "there is no finished sample"
        return f"{name} has no score{on}: {what}{f' out of {n:,}' if n else ''}"
    ci95, score = _interval(figures), in_unit(figures, figures["score"])
    if _compares(figures) and (names := sides_of(figures)):
        first, second = names
        of = f"{scored:,} of {n:,} rows"
        if "wins" in extra:
            won, tied, lost = (count_of(extra, each) for each in ("wins", "ties", "losses"))
            of += f" ({won:,} for {first}, {tied:,} tied, {lost:,} for {second})"
        if contradicted(figures):  # nothing is won that people give to the other side
            return f"{name} prefers {first} to {second} in {score} of the rows{ci95}, judging {of}"
        return f"{first} wins {score} of the rows against {second}{ci95}, as {name} judges {of}"
    verb = "has a mean score of" if figures.get("rule") == MEAN_SCORE else "reaches"
    return f"{name} {verb} {score}{ci95}{on}, over {scored:,} scored of {n:,} samples"
