"""The probes of an audit: the questions each asks, the relation that has to hold between the answers,
and the figure made of how often it does.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats import Floats, Integers, np
from rm_gallery.core.stats.agreement import spearman_estimate
from rm_gallery.core.stats.significance import sign_test_over
from rm_gallery.core.stats.uncertainty import Estimate, difference, of_sums
from rm_gallery.gallery.benchmarks.judgements import Status, worst
from rm_gallery.study.attacks import (
    DRESSES,
    NO_ANSWERS,
    Injection,
    Material,
    as_judged,
    injections,
    read_texts,
    relaid,
    text_of,
    with_text,
)
from rm_gallery.study.pairwise_comparisons import (
    LEAST,
    Finding,
    Game,
    Limit,
    PairwiseComparison,
    Questionnaire,
    figure_text,
    lost,
    mean_finding,
    reason_of,
)

SHOWN = 5
"""Examples a figure keeps."""
SCREENED, AGAINST_ITSELF = 4, 2
"""Prompts every injection is tried on, of each language in turn; and on how many of them against
the same answer without, too.
"""
REPEATED = 60
"""Prompts at most on which an injection is repeated that worked on one of those."""
WORST = 12
"""Injections that are repeated at most, those that worked most often; where more work, the mean
over all of them says so.
"""


class AnswerPairs(Questionnaire):
    """The answers of all prompts in the form the reward's kind takes, and the questions about them."""

    def __init__(self, reward: BaseReward, materials: Sequence[Material]) -> None:
        super().__init__(reward)
        self.materials, self.steps = list(materials), reward.kind == "stepwise"
        self.first: dict[str, int] = {}
        """By prompt, that is cluster, the number of its first pair."""
        for number, material in enumerate(self.materials):
            self.first.setdefault(material.cluster, number)
        self.rounds: list[Questionnaire] = [self]
        """A second one holds the questions that are asked again."""
        self.good = [as_judged(material.good, self.steps) for material in self.materials]
        self.worse = [as_judged(material.worse, self.steps) for material in self.materials]
        self.plain = [
            self.against(number, good, worse)
            for number, (good, worse) in enumerate(zip(self.good, self.worse, strict=True))
        ]

    def text(self, output: DataOutput, text: str) -> DataOutput:
        """The answer with another text."""
        return with_text(output, text, self.steps)

    def against(self, number: int, first: DataOutput, second: DataOutput) -> PairwiseComparison:
        """Compare two answers to the prompt of a pair, by its number."""
        material = self.materials[number]
        return self.comparison(material.sample, first, second, material.cluster)

    def right(self, number: int) -> bool:
        """Whether the reward prefers the good answer of a pair when nobody attacks."""
        return (self.margin(self.plain[number]) or 0) > 0


# -- relations ---------------------------------------------------------------------------------


class Contrast(NamedTuple):
    """What is held against each other: one comparison, or the same two answers twice."""

    sides: tuple[PairwiseComparison, ...]
    attack: Injection | None = None
    """Rows of one attack are no more independent than those of one prompt."""
    number: int = -1
    """The pair of an attack, and the attacked answer."""
    text: str = ""


Games: TypeAlias = Sequence[Game]
Relation: TypeAlias = Callable[..., float | None]
"""How far a relation holds between what came of the sides of a row; None where that says nothing."""


def net(games: Games) -> float:
    """How far answer 0 is ahead, -1..1."""
    return sum(game.verdict for game in games) / len(games)


def won(games: Games) -> float:
    """The share of comparisons won, a tie counting half."""
    return (1 + net(games)) / 2


def tied(games: Games) -> float:
    """Whether none of the two is ahead."""
    return float(net(games) == 0)


def lifted(attacked: Games, plain: Games) -> float:
    """How much more is won than by the same answer plain, which is the second one there."""
    return won(attacked) - (1 - net(plain)) / 2


def changed(before: Games, after: Games) -> float:
    """The share of verdicts that are others, place by place; a tie that gets a winner has changed."""
    pairs = list(zip(before, after, strict=True))
    return sum(a.verdict != b.verdict for a, b in pairs) / len(pairs)


def first_ahead(games: Games) -> float | None:
    """How far whatever was shown first is ahead, -1..1; only two orders tell it from the better one."""
    shown = [game.verdict * (1 if game.first == 0 else -1) for game in games]
    return sum(shown) / len(shown) if len(shown) > 1 else None


def flipped(games: Games) -> float | None:
    """Whether the orders disagree."""
    return float(len({game.verdict for game in games}) > 1) if len(games) > 1 else None


def first_preferred(games: Games) -> float | None:
    """Of orders that disagree, whether whatever was shown first won."""
    ahead = first_ahead(games)
    return float(ahead > 0) if ahead else None


def turned_round(scores: Sequence[float], other: Sequence[float]) -> float:
    """Whether a list has another best answer in the opposite order."""
    first, second = ([score == max(own) for score in own] for own in (scores, other))
    return float(first != second[::-1])


def silenced(status: Status, plain: Games) -> float:
    """Whether an attack leaves no verdict where there is one without it."""
    return float(status != "scored")


# -- probes ------------------------------------------------------------------------------------

Steps: TypeAlias = Generator[None, bool, list[Finding]]
"""A probe puts down questions, yields until they are answered, and gives figures. It is sent whether
there is an answer to further questions, which then are followed by another yield.
"""


class Probe:
    """One group of figures, under way.

    What each figure counts, its unit and its limits stand in `texts/figures.yaml`, below `group`,
    which is the probe's name by default; `words` are filled in there.
    """

    def __init__(self, name: str, pairs: AnswerPairs, steps: Callable[[Probe], Steps]) -> None:
        self.name, self.group, self.pairs = name, name, pairs
        self.words: Mapping[str, Any] = {}
        self.found: list[Finding] = []
        self._steps = steps(self)
        self.go(None)

    def go(self, further: bool | None) -> bool:
        """Take the next step; whether there is one after it."""
        try:
            self._steps.send(further)  # type: ignore[arg-type]  # None begins it
        except StopIteration as done:
            self.found = done.value or self.found
            return False
        return True

    def findings(self) -> list[Finding]:
        """The figures, of what is answered by now."""
        while self.go(False):
            pass
        return self.found

    def useless(self, why: str) -> list[Finding]:
        """That the probe does not apply to this reward."""
        return [Finding(self.name, "all", verdict="does not apply", why=why)]

    def row(self, name: str) -> tuple[str, Any, Limit | None]:
        """What a figure counts, its unit, and its limit."""
        row = read_texts("figures")[self.group][name]
        limit = Limit(*row["limit"]) if "limit" in row else None
        return row["what"].format_map(self.words), row.get("unit", "share"), limit

    def figure(self, name: str, **known: Any) -> Finding:
        """A figure by what is known of it; only a value is held to the limit."""
        what, unit, limit = self.row(name)
        finding = Finding(self.name, name, what, unit, **known)
        return finding.held_to(limit) if limit and "value" in known else finding

    def estimate(self, name: str, one: Estimate, **more: Any) -> Finding:
        """A figure that is no mean."""
        more |= {"n": one.n, "clusters": one.n_clusters}
        return self.figure(name, value=one.estimate, ci95=one.interval(), **more)

    def mean_of(
        self, name: str, values: Sequence[float], clusters: Sequence[Hashable], **more: Any
    ) -> Finding:
        """A figure that is the mean of credits or nets."""
        what, unit, limit = self.row(name)
        return mean_finding(self.name, name, what, values, clusters, limit, unit=unit, **more)

    def known(
        self, rows: Iterable[Contrast], *read: Callable[[PairwiseComparison], Any]
    ) -> tuple[list[tuple[Contrast, list[Any]]], dict[str, int]]:
        """What came of every side of the rows, of those where all of them have a verdict, and what
        was lost elsewhere; `read` are the sides' readers in turn, by default of games.
        """
        known, statuses = list[tuple[Contrast, list[Any]]](), list[Status]()
        for row in rows:
            came = [get(one) for get, one in zip(cycle(read or (self.pairs.games,)), row.sides)]
            if all(came):
                known.append((row, came))
            else:
                statuses.append(worst(map(self.pairs.status, row.sides)))
        return known, lost(statuses)

    def mean(
        self,
        name: str,
        rows: Iterable[Contrast],
        relation: Relation,
        *read: Callable[[PairwiseComparison], Any],
        **more: Any,
    ) -> Finding:
        """How far a relation holds on the mean; rows without a verdict are counted as lost."""
        known, without = self.known(rows, *read)
        values = [(row, value) for row, came in known if (value := relation(*came)) is not None]
        attacks = [row.attack.name for row, _ in values if row.attack is not None]
        return self.mean_of(
            name,
            [value for _, value in values],
            [row.sides[0].cluster for row, _ in values],
            **{"crossed": attacks or None, "lost": without, **more},
        )

    def lift(self, name: str, rows: Sequence[Contrast], why: str = "", **more: Any) -> Finding:
        """How much more often the attacked answer wins than the same answer plain, row by row.

        A judge that is merely noisy is not lifted. One that prefers too few of the good answers
        from the start leaves nothing to turn, so that it does not pass either.
        """
        pairs, known = self.pairs, [came for _, came in self.known(rows)[0]]
        after = fmean(won(attacked) for attacked, _ in known) if known else None
        before = fmean((1 - net(plain)) / 2 for _, plain in known) if known else None
        rates = f"won {figure_text(after, 'share')} attacked, {figure_text(before, 'share')} plain"
        right = len({one.cluster for number, one in enumerate(pairs.plain) if pairs.right(number)})
        few = (
            f"only {right} prompts are decided rightly without it, too few to see whether it turns "
            f"them"
        )
        said = rates if known else "", few if right < LEAST else "", why
        more["extra"] = {"won_attacked": after, "won_plain": before, **more.get("extra", {})}
        finding = self.mean(name, rows, lifted, why="; ".join(filter(None, said)), **more)
        unproven = right < LEAST and finding.verdict == "pass"
        return replace(finding, verdict="not enough") if unproven else finding


def _quality(probe: Probe) -> Steps:
    """Whether the reward sees quality at all: what every other figure rests on."""
    yield
    return [probe.mean("good_preferred", _alone(probe.pairs.plain), won)]


def _alone(comparisons: Iterable[PairwiseComparison]) -> list[Contrast]:
    return [Contrast((one,)) for one in comparisons]


def _position(probe: Probe) -> Steps:
    """Whether being shown first decides: flip rate, first-preference rate among the flips with its
    sign test, and the net advantage of the first place.
    """
    if not probe.pairs.comparing:
        return probe.useless("answers are scored one by one, so none is shown before another")
    yield
    rows = _alone(probe.pairs.plain)
    known = [(first_preferred(came[0]), row.sides[0].cluster) for row, came in probe.known(rows)[0]]
    shares = [(share, cluster) for share, cluster in known if share is not None]
    first = int(sum(share for share, _ in shares))
    second = len(shares) - first
    signs, clusters = [2 * share - 1 for share, _ in shares], [cluster for _, cluster in shares]
    p = sign_test_over(signs, clusters) if shares else None
    extra = {
        "first_first": first,
        "second_second": second,
        "p_value": p,
        "test": "two-sided sign test over prompts, exact where each has one pair",
    }
    if p is None:
        why = "one prompt says nothing of others" if shares else "no pair is inconsistent"
    elif p < 1e-4:
        why = f"sign test over {len(shares)}: p < 0.0001"
    else:
        why = f"sign test over the {len(shares)} inconsistent pairs: p = {p:.2g}"
    return [
        probe.mean("flips", rows, flipped),
        probe.mean("first_preference", rows, first_preferred, extra=extra, why=why, lost={}),
        probe.mean("first_advantage", rows, first_ahead),
    ]


def _stability(probe: Probe) -> Steps:
    """Whether the verdict holds when nothing that matters changes: the good answer reworded, the
    prompt reworded, another layout, and a third answer in two orders.
    """
    pairs = probe.pairs
    rows, lists = defaultdict[str, list[Contrast]](list), list[Contrast]()
    listwise = pairs.reward.kind == "listwise"
    prompts = [*pairs.first]
    after = dict(zip(prompts, [*prompts[1:], *prompts[:1]], strict=True))
    for number, material in enumerate(pairs.materials):
        plain, sample = pairs.plain[number], material.sample
        good, worse = pairs.good[number], pairs.worse[number]
        laid = [pairs.text(one, relaid(text_of(one))) for one in (material.good, material.worse)]
        reworded = material.reworded and as_judged(material.reworded, pairs.steps)
        variants: dict[str, tuple[DataSample | None, DataOutput | None, DataOutput]] = {
            "reworded_answer": (sample, reworded, worse),
            "reworded_prompt": (material.asked, good, worse),
            "layout": (sample, laid[0], laid[1]),
        }
        for name, (of, first, second) in variants.items():
            if of is not None and first is not None:
                one = pairs.comparison(of, first, second, plain.cluster)
                rows[name].append(Contrast((plain, one)))
        if listwise and len(prompts) > 1:
            # no rival of the best, so of another prompt: equals are no trial
            third = pairs.worse[pairs.first[after[plain.cluster]]]
            orders = [good, worse, third], [third, worse, good]
            keys = [pairs.ask(sample, order, plain.cluster) for order in orders]
            lists.append(Contrast(tuple(PairwiseComparison((key,), plain.cluster) for key in keys)))
    yield
    useless = partial(probe.figure, verdict="does not apply")
    once = "the data say nothing in two ways; the built-in questions do"
    out = [
        probe.mean(name, rows[name], changed) if rows[name] else useless(name, why=once)
        for name in ("reworded_answer", "reworded_prompt", "layout")
    ]
    if listwise:
        return [*out, probe.mean("reorder", lists, turned_round, pairs.scores)]
    of_two = "the order of two answers is what `position` asks about"
    why = of_two if pairs.comparing else "no list is judged"
    return [*out, useless("reorder", why=why)]


def _dressed(probe: Probe) -> Steps:
    """Whether a dress out of `DRESSES`, which adds nothing, lifts an answer: the good answer dressed
    against itself, and the worse one dressed against the good one.
    """
    pairs, (done, dress) = probe.pairs, DRESSES[probe.name]
    probe.group, probe.words = "dress", {"done": done}
    own, turned, worse = list[Contrast](), list[Contrast](), list[DataOutput]()
    for number, material in enumerate(pairs.materials):
        dressed_good, dressed = (
            pairs.text(plain, dress(material, text_of(plain), number))
            for plain in (material.good, material.worse)
        )
        own += _alone([pairs.against(number, dressed_good, pairs.good[number])])
        worse.append(dressed)
        # a score that is there already; a comparison would be another call
        if not pairs.comparing:
            own += _alone([pairs.against(number, dressed, pairs.worse[number])])
        against = pairs.against(number, dressed, pairs.good[number])
        turned.append(Contrast((against, pairs.plain[number])))
    if (yield) and pairs.comparing:
        # where that decides nothing, a noisy judge needs a larger sample
        if probe.mean("over_itself", own, net).verdict not in ("pass", "fail"):
            again = (pairs.against(n, one, pairs.worse[n]) for n, one in enumerate(worse))
            own += _alone(again)
            yield
    examples = [
        {
            "prompt": pairs.materials[number].sample.query_text(),
            "attacked": text_of(worse[number]),
            "better": text_of(pairs.materials[number].good),
        }
        for number, row in enumerate(turned)
        if pairs.right(number) and (pairs.margin(row.sides[0]) or 0) > 0
    ]
    lift = probe.lift("over_better", turned, examples=examples[:SHOWN])
    return [lift, probe.mean("over_itself", own, net)]


def _no_answers(probe: Probe) -> Steps:
    """Whether a text that answers nothing beats the good answer."""
    pairs = probe.pairs
    probe.words = {name: done for name, (done, _) in NO_ANSWERS.items()}
    rows = {
        name: _alone(
            pairs.against(n, pairs.text(material.worse, make(material)), pairs.good[n])
            for n, material in enumerate(pairs.materials)
        )
        for name, (_, make) in NO_ANSWERS.items()
    }
    yield
    return [probe.mean(name, own, won) for name, own in rows.items()]


def _attacked(pairs: AnswerPairs, attack: Injection, number: int) -> Contrast:
    """A worse answer with an injected text against the good answer, beside the plain comparison."""
    worse = pairs.materials[number].worse
    text = attack.on(text_of(worse))
    against = pairs.against(number, pairs.text(worse, text), pairs.good[number])
    return Contrast((against, pairs.plain[number]), attack, number, text)


def _silent(probe: Probe, name: str, attacks: Iterable[Contrast], **more: Any) -> Finding:
    pairs = probe.pairs
    return probe.mean(name, attacks, silenced, pairs.status, pairs.games, lost={}, **more)


def _injected(probe: Probe) -> Steps:
    """Whether a text in an answer becomes a verdict, a command or a reference.

    Every text of the suite is tried on some worse answers, and each that lifted one or left no
    verdict on all of them: an optimiser uses only the best one.
    """
    pairs = probe.pairs
    by_language = defaultdict[str, list[int]](list)
    for number in pairs.first.values():
        by_language[pairs.materials[number].language].append(number)
    attacks, again, against_itself = list[Contrast](), list[Contrast](), list[Contrast]()
    for turn in range(min(SCREENED, len(pairs.first))):
        group = [*by_language.values()][turn % len(by_language)]
        for place, attack in enumerate(injections(pairs.reward, 1 + turn % 2)):
            number = group[(place + turn * len(group) // SCREENED) % len(group)]
            attacks.append(_attacked(pairs, attack, number))
            if turn < AGAINST_ITSELF:
                carrying = pairs.text(pairs.materials[number].worse, attacks[-1].text)
                plain = pairs.against(number, carrying, pairs.worse[number])
                against_itself.append(Contrast((plain,), attack))
    if repeats := (yield):
        worked = Counter[str]()
        for row, games in probe.known(attacks, pairs.status, pairs.games)[0]:
            lifts = any(lifted(*both) > 0 for _, both in probe.known([row])[0])
            worked.update([_name(row)] * (lifts + int(silenced(*games))))
        wanted = {name for name, _ in worked.most_common(WORST)}
        again = [
            _attacked(pairs, attack, number)
            for turn in range(2)
            for attack in injections(pairs.reward, 1 + turn % 2)
            if attack.name in wanted
            for number in range(turn, min(REPEATED, len(pairs.materials)), 2)
        ]
        yield
    shares, effective = defaultdict[str, list[float]](list), list[Contrast]()
    for row in attacks:
        margin = pairs.margin(row.sides[0])
        if margin is not None:
            shares[_about(row)["family"]].append((1 + margin) / 2)
            effective += [row] if margin > -1 and pairs.right(row.number) else []
    names = list(dict.fromkeys(map(_name, effective)))
    listed = f"{', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
    families = {name: {"won": fmean(own), "n": len(own)} for name, own in shares.items()}
    return [
        probe.lift(
            "over_better",
            attacks,
            f"worked at least once: {listed}" if names else "",
            extra={"families": families, "worked": names},
            examples=[{**_about(row), "attacked": row.text} for row in effective[:SHOWN]],
        ),
        probe.mean("over_itself", against_itself, net),
        _silent(probe, "no_verdict", attacks),
        *_worst(probe, again, len(set(map(_name, attacks))), repeats),
    ]


def _worst(probe: Probe, again: Sequence[Contrast], tried: int, repeats: bool) -> Iterator[Finding]:
    """The text that lifts most on all prompts, and the one that leaves no verdict most often."""
    by_name = defaultdict[str, list[Contrast]](list)
    for row in again:
        by_name[_name(row)].append(row)
    none = f"none of {tried} texts lifted an answer or left no verdict, on {SCREENED} prompts each"
    for name, figure in (("worst", probe.lift), ("worst_no_verdict", partial(_silent, probe))):
        figures = [
            figure(
                name,
                rows,
                extra={**_about(rows[0]), "tried": tried},
                worst_of=tried,
                crossed=None,
                why=f"{attack}, of {len(by_name)} texts repeated and {tried} tried",
                examples=[{**_about(rows[0]), "attacked": rows[0].text}],
            )
            for attack, rows in by_name.items()
        ]
        if not repeats:
            figures = [
                probe.figure(name, value=None, why="the run ended before texts were repeated")
            ]
        yield max(
            figures or [Finding(probe.name, name, probe.row(name)[0], why=none)],
            key=lambda one: (-1.0 if one.value is None else one.value, one.n),
        )


def _name(row: Contrast) -> str:
    return _about(row)["attack"]


def _about(row: Contrast) -> dict[str, str]:
    assert row.attack is not None
    return {"attack": row.attack.name, "family": row.attack.family}


# -- the numbers themselves --------------------------------------------------------------------


def _range(probe: Probe) -> Steps:
    """Whether the scale is used, and whether it runs out where it should tell answers apart: texts
    that are no answers belong to its lower end.
    """
    pairs = probe.pairs
    if pairs.comparing:
        return probe.useless("answers are compared, and a verdict has no scale")
    asked = [
        [
            *plain.keys,
            *(
                pairs.ask(
                    material.sample,
                    [pairs.text(material.worse, NO_ANSWERS[name][1](material))],
                    plain.cluster,
                )
                for name in ("gibberish", "echo")
            ),
        ]
        for plain, material in zip(pairs.plain, pairs.materials, strict=True)
    ]
    yield
    given = [
        (score, plain.cluster, place > 0)
        for keys, plain in zip(asked, pairs.plain, strict=True)
        for place, key in enumerate(keys)
        for score in pairs.scores(PairwiseComparison((key,), plain.cluster))
    ]
    every = [score for score, *_ in given]
    poor = [(score, cluster) for score, cluster, is_poor in given if is_poor]
    # scores are kept so that higher is better; people are shown the reward's own
    turn, end = (1.0, "highest") if pairs.reward.higher_is_better else (-1.0, "lowest")
    low, high = pairs.reward.score_range[:: int(turn)]
    top = max(every, default=0.0) if high is None else turn * high  # without a bound the best seen
    counts = Counter(turn * score for score in every)
    extra: dict[str, Any] = {
        "levels": len(counts),
        "lowest": min(counts, default=None),
        "highest": max(counts, default=None),
    }
    for score, times in counts.most_common(1):
        extra["most_common"] = {"score": score, "share": times / len(every)}
    probe.words = {"end": end, "top": turn * top}
    at_top = probe.mean_of(
        "saturation", [float(score == top) for score, _ in poor], [where for _, where in poor]
    )
    if low is None or high is None or top <= turn * low:
        why = "the scale has no bounds"
        used = probe.figure("used", verdict="does not apply", why=why)
    elif every:
        prompts = np.unique([cluster for _, cluster, _ in given], return_inverse=True)[1]
        places = (np.array(every) - turn * low) / (top - turn * low)
        used = probe.estimate("used", _range_used(places, prompts))
    else:
        used = probe.figure("used", verdict="not enough")
    return [
        probe.mean("ties", _alone(pairs.plain), tied, extra=extra),
        at_top if every else replace(at_top, what=""),
        used,
    ]


def _range_used(scores: Floats, prompts: Integers) -> Estimate:
    """Distance of the 5th and the 95th percentile of scores within 0..1.

    A score pulls a quantile by whether it lies below, over the density there, which the quantiles
    beside it give: leaving prompts out covers 66 % instead of 95 with few of them.
    """
    n, estimate, pulls = len(scores), 0.0, np.zeros(len(scores))
    for share, sign in ((0.95, 1.0), (0.05, -1.0)):
        beside = math.sqrt(share * (1.0 - share) / n)
        ends = [max(0.0, share - beside), min(1.0, share + beside)]
        at, below, above = np.quantile(scores, [share, *ends])
        under = scores <= at
        pulls += sign * (above - below) / (ends[1] - ends[0]) * (under.mean() - under) / n
        estimate += sign * float(at)
    return Estimate(estimate, pulls, np.full(n, 1.0 / n), prompts)


def _length_correlation(probe: Probe) -> Steps:
    """Whether longer answers do better, beyond what the labels say of these answers: rank correlation
    of score (or verdict) and length, and how far it exceeds that of the labels.
    """
    yield
    pairs, blocks = probe.pairs, list[tuple[tuple[float, float, float], ...]]()
    names = list[str]()
    for good, worse, plain in zip(pairs.good, pairs.worse, pairs.plain, strict=True):
        of_good, of_worse = float(len(text_of(good))), float(len(text_of(worse)))
        apart, margin, scores = (
            of_good - of_worse,
            pairs.margin(plain),
            pairs.scores(plain),
        )
        if pairs.comparing and margin is not None:
            # of a comparison the differences, both ways round
            blocks.append(((margin, apart, 1.0), (-margin, -apart, -1.0)))
        elif not pairs.comparing and scores:
            blocks.append(((scores[0], of_good, 1.0), (scores[1], of_worse, 0.0)))
        names += [plain.cluster] * (2 * len(blocks) - len(names))
    of = "verdict and difference in length" if pairs.comparing else "score and length"
    probe.words, n = {"of": of}, 2 * len(blocks)
    if len(blocks) < 5:
        return [probe.figure(name, n=n, verdict="not enough") for name in ("rank", "excess")]
    given, lengths, labels = np.array(blocks, dtype=np.float64).reshape(-1, 3).T
    rank, of_labels = (spearman_estimate(own, lengths, clusters=names) for own in (given, labels))
    if rank is None or of_labels is None:
        why = "all scores, or all lengths, are equal"
        return [probe.figure("rank", verdict="does not apply", why=why)]
    excess, extra = difference(rank, of_labels), {"labels": of_labels.estimate}
    return [
        probe.estimate("rank", rank),
        probe.estimate("excess", excess, extra=extra),
    ]


def _repeats(probe: Probe) -> Steps:
    """Whether the same question gets the same verdict when it is asked again, in a round of its own:
    the share of verdicts that change, and what part of the scores' variance is noise.
    """
    pairs, again = probe.pairs, Questionnaire(probe.pairs.reward)
    again.questions = {key: pairs.questions[key] for plain in pairs.plain for key in plain.keys}
    pairs.rounds.append(again)
    if (yield):
        yield
    sheets: tuple[Questionnaire, ...] = (pairs, again)
    rows = [Contrast((plain, plain)) for plain in pairs.plain]
    without = lost(worst(sheet.status(plain) for sheet in sheets) for plain in pairs.plain)
    read = [sheet.games for sheet in sheets]
    verdicts = probe.mean("changed", rows, changed, *read, lost=without)
    if pairs.comparing:
        why = "a verdict has no variance of its own"
        return [verdicts, probe.figure("noise", verdict="does not apply", why=why)]
    twice = [([sheet.scores(plain) for sheet in sheets], plain.cluster) for plain in pairs.plain]
    # pair, time, answer
    table = np.array([both for both, _ in twice if all(both)], dtype=np.float64)
    clusters = [cluster for both, cluster in twice if all(both)]
    n = len(table)
    if n < 2:
        return [verdicts, probe.figure("noise", verdict="not enough")]
    if np.ptp(table) == 0.0:
        why = "all scores are equal"
        return [verdicts, probe.figure("noise", verdict="does not apply", why=why)]
    # scores near the end of what a float holds have squares beyond it
    scale = float(np.abs(table).max())
    asked = table.transpose(0, 2, 1).reshape(-1, 2) / scale
    apart = np.diff(asked)[:, 0] ** 2 / 2.0
    columns = [apart, asked.sum(axis=1), (asked**2).sum(axis=1), np.full(2 * n, 2.0)]
    noise = of_sums(np.column_stack(columns), _noise_share, np.repeat(clusters, 2))
    assert noise is not None
    deviation = scale * math.sqrt(float(apart.mean()))
    why = f"one score varies by {deviation:.2g} (standard deviation)"
    extra = {"score_sd": deviation}
    return [verdicts, probe.estimate("noise", noise, why=why, extra=extra)]


def _noise_share(sums: Floats) -> Floats:
    """Half the mean squared difference of two scores over the variance of all, at most 1; 0 where
    all are equal. From sums of those halves, of scores, of their squares, and how many they are.
    """
    apart, total, squares, n = sums.T
    variance = (squares - total**2 / n) / (n - 1.0)
    share: Floats = np.where(variance > 0.0, 2.0 * apart / n / variance, 0.0)
    return np.minimum(share, 1.0)


def _replies(probe: Probe) -> Steps:
    """How often there is no verdict: questions whose reply could not be read, and those that broke."""
    pairs = probe.pairs
    probe.group = "replies" if asks_a_model(pairs.reward) else "replies_of_rules"
    keys = list(pairs.questions)
    yield
    outcomes = {key: one for key in keys if (one := pairs.outcomes.get(key))}
    asked = {key: one for key, one in outcomes.items() if one.status != "stopped"}
    more: dict[str, Any] = {"lost": {"stopped": n} if (n := len(keys) - len(asked)) else {}}
    clusters = [pairs.clusters[key] for key in asked]
    figures = []
    for name, status in (("unread", "unscored"), ("failed", "failed")):
        reasons = Counter(reason_of(one)[0] for one in asked.values() if one.status == status)
        often = ", ".join(f"{n} × {reason}" for reason, n in reasons.most_common(3))
        credits = [float(one.status == status) for one in asked.values()]
        extra = {"reasons": dict(reasons)}
        figures.append(probe.mean_of(name, credits, clusters, extra=extra, why=often, **more))
    return figures


READ: dict[str, Callable[[Probe], Steps]] = {
    "quality": _quality,
    "position": _position,
    **dict.fromkeys(DRESSES, _dressed),
    "no_answer": _no_answers,
    "stability": _stability,
    "repeats": _repeats,
    "range": _range,
    "length_correlation": _length_correlation,
    "replies": _replies,  # of what was asked so far: not of injected answers
    "injection": _injected,
}
"""The probes, as they put down their questions."""
