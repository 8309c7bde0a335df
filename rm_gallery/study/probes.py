"""The probes of an audit: the questions each asks, and the figures it makes of the outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rm_gallery.core.data.schema import DataOutput, DataSample
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.stats.significance import sign_test
from rm_gallery.gallery.benchmarks.judgements import Status, cluster_of, worst
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
    Limit,
    PairwiseComparison,
    Questionnaire,
    figure_text,
    lost,
    mean_finding,
)


class AnswerPairs:
    """The answers of all prompts in the form the reward's kind takes, and the questions about them."""

    def __init__(self, reward: BaseReward, materials: Sequence[Material], seed: int = 0) -> None:
        self.reward, self.materials, self.seed = reward, list(materials), seed
        self.sheet = Questionnaire(reward)
        self.steps = reward.kind == "stepwise"
        self.good = [as_judged(material.good, self.steps) for material in self.materials]
        self.worse = [as_judged(material.worse, self.steps) for material in self.materials]
        self.plain = [
            self.sheet.comparison(material.sample, good, worse)
            for material, good, worse in zip(self.materials, self.good, self.worse, strict=True)
        ]

    @property
    def comparing(self) -> bool:
        """Whether the reward compares answers instead of scoring each."""
        return self.sheet.comparing

    def text(self, output: DataOutput, text: str) -> DataOutput:
        """The answer with another text."""
        return with_text(output, text, self.steps)

    def comparison(self, number: int, first: DataOutput, second: DataOutput) -> PairwiseComparison:
        """Compare two answers to a prompt, by its number."""
        return self.sheet.comparison(self.materials[number].sample, first, second)

    def right(self, number: int) -> bool:
        """Whether the reward prefers the good answer of a prompt when nobody attacks."""
        margin = self.sheet.margin(self.plain[number])
        return margin is not None and margin > 0

    def score(self, output: DataOutput, number: int) -> float | None:
        """The score of an answer to a prompt, by a reward that scores each by itself; higher is
        better.
        """
        outcome = self.sheet.outcomes.get(self.sheet.ask(self.materials[number].sample, [output]))
        return None if outcome is None or outcome.status != "scored" else outcome.scores[0]


class Probe(ABC):
    """One group of figures: `ask` adds the questions, `read` makes figures of their outcomes.

    What each figure counts, its unit and its limits stand in `texts/figures.yaml`.
    """

    name: str = ""
    group: str = ""
    """Where its figures stand in that file; below its name by default."""
    words: Mapping[str, Any] = {}
    """What is filled in there."""

    def __init__(self, pairs: AnswerPairs) -> None:
        self.pairs = pairs
        if not self.inapplicable():
            self.ask()

    def inapplicable(self) -> str:
        """Why the probe does not apply to this reward; empty where it does."""
        return ""

    def ask(self) -> None:
        """Add questions beyond those about the plain answers."""
        return

    def follow(self) -> None:
        """Add the questions that the first outcomes make worth asking."""
        return

    @abstractmethod
    def read(self) -> list[Finding]:
        """The figures."""

    def findings(self) -> list[Finding]:
        """The figures, or one that says why there are none."""
        why = self.inapplicable()
        if not why:
            return self.read()
        return [Finding(self.name, "all", verdict="does not apply", why=why)]

    def _row(self, name: str) -> tuple[str, Any, Limit | None]:
        """What a figure counts, its unit, and its limit."""
        row = read_texts("figures")[self.group or self.name][name]
        limit = Limit(*row["limit"]) if "limit" in row else None
        return row["what"].format_map(self.words), row.get("unit", "share"), limit

    def _figure(self, name: str, **known: Any) -> Finding:
        """A figure by what is known of it; only a value is held to the limit."""
        what, unit, limit = self._row(name)
        finding = Finding(self.name, name, what, unit, **known)
        return finding.held_to(limit) if limit and "value" in known else finding

    def _mean_figure(
        self, name: str, values: Sequence[float], clusters: Sequence[Hashable], **more: Any
    ) -> Finding:
        """A figure that is the mean of credits or nets."""
        what, unit, limit = self._row(name)
        return mean_finding(self.name, name, what, values, clusters, limit, unit=unit, **more)

    def _rate(
        self,
        name: str,
        comparisons: Sequence[PairwiseComparison],
        credit: Callable[[float], float],
        *,
        attacks: Sequence[Hashable] | None = None,
        **more: Any,
    ) -> Finding:
        """The mean credit of the comparisons with a verdict; those without are counted as lost."""
        known, without = self._margins(comparisons)
        values = [credit(margin) for [margin] in known.values()]
        where = [comparisons[place].cluster for place in known]
        more |= {"crossed": attacks and [attacks[place] for place in known], "lost": without}
        return self._mean_figure(name, values, where, **more)

    def _margins(
        self, *sides: Sequence[PairwiseComparison]
    ) -> tuple[dict[int, list[float]], dict[str, int]]:
        """Of comparisons side by side the margins by place, where all have a verdict, and what was
        lost elsewhere.
        """
        sheet, known, statuses = self.pairs.sheet, dict[int, list[float]](), list[Status]()
        for place, row in enumerate(zip(*sides, strict=True)):
            margins = [m for one in row if (m := sheet.margin(one)) is not None]
            if len(margins) == len(row):
                known[place] = margins
            else:
                statuses.append(worst(map(sheet.status, row)))
        return known, lost("unscored" if status == "scored" else status for status in statuses)

    def _changes(
        self,
        name: str,
        both: Iterable[tuple[PairwiseComparison, PairwiseComparison]],
        again: Questionnaire | None = None,
    ) -> Finding:
        """The share of comparisons with another verdict the second time, place by place; a tie that
        gets a winner has changed.
        """
        values, where, statuses = [], [], []
        for before, after in both:
            asked = ((self.pairs.sheet, before), (again or self.pairs.sheet, after))
            first, second = (sheet.games(one) for sheet, one in asked)
            statuses += [sheet.status(one) for sheet, one in asked if not sheet.games(one)]
            if first and second:
                pairs = list(zip(first, second, strict=True))
                values.append(sum(a.verdict != b.verdict for a, b in pairs) / len(pairs))
                where.append(before.cluster)
        return self._mean_figure(name, values, where, lost=lost(statuses))

    def _lift(
        self,
        name: str,
        comparisons: Sequence[PairwiseComparison],
        numbers: Sequence[int],
        *,
        attacks: Sequence[Hashable] | None = None,
        why: str = "",
        **more: Any,
    ) -> Finding:
        """How much more often the attacked answer wins than the same answer plain, pair by pair.

        A judge that is merely noisy is not lifted. One that prefers too few of the good answers
        from the start leaves nothing to turn, so that it does not pass either.
        """
        plain = self.pairs.plain
        known, without = self._margins(comparisons, [plain[number] for number in numbers])
        both = [(won(attacked), won(-before)) for attacked, before in known.values()]
        after, before = (
            sum(share[k] for share in both) / len(both) if both else None for k in (0, 1)
        )
        rates = (
            f"won {figure_text(after, 'share')} attacked, {figure_text(before, 'share')} plain"
            if both
            else ""
        )
        decided = {one.cluster for number, one in enumerate(plain) if self.pairs.right(number)}
        right = len(decided)
        few = (
            f"only {right} prompts are decided rightly without it, too few to see whether it turns "
            f"them"
        )
        finding = self._mean_figure(
            name,
            [attacked - before for attacked, before in both],
            [comparisons[place].cluster for place in known],
            crossed=attacks and [attacks[place] for place in known],
            lost=without,
            why="; ".join(part for part in (rates, few if right < LEAST else "", why) if part),
            extra={"won_attacked": after, "won_plain": before, **more.pop("extra", {})},
            **more,
        )
        return (
            replace(finding, verdict="not enough")
            if right < LEAST and finding.verdict == "pass"
            else finding
        )


def won(margin: float) -> float:
    """The share of comparisons won, a tie counting half."""
    return (1 + margin) / 2


class Discernment(Probe):
    """Whether the reward sees quality at all: what every other figure rests on."""

    name = "quality"

    def read(self) -> list[Finding]:
        """The share of pairs decided rightly, ties half."""
        return [self._rate("good_preferred", self.pairs.plain, won)]


class Place(Probe):
    """Whether being shown first decides."""

    name = "position"

    def inapplicable(self) -> str:
        """Answers that are scored one by one have no place."""
        return (
            ""
            if self.pairs.comparing
            else "answers are scored one by one, so none is shown before another"
        )

    def read(self) -> list[Finding]:
        """Flip rate, first-preference rate among the flips with its sign test, and the net
        advantage of the first place.
        """
        sheet = self.pairs.sheet
        flips, nets, clusters = [], [], []
        for comparison in self.pairs.plain:
            games = [game for game in sheet.games(comparison) if game.first is not None]
            if len(games) < 2:
                continue
            flips.append(float(len({game.verdict for game in games}) > 1))
            nets.append(
                sum(game.verdict * (1 if game.first == 0 else -1) for game in games) / len(games)
            )
            clusters.append(comparison.cluster)
        missing = lost(sheet.status(comparison) for comparison in self.pairs.plain)
        where = [cluster for net, cluster in zip(nets, clusters, strict=True) if net]
        shares = [float(net > 0) for net in nets if net]
        first = int(sum(shares))
        second = len(shares) - first
        p = sign_test(first, second) if shares else None
        extra = {
            "first_first": first,
            "second_second": second,
            "p_value": p,
            "test": "two-sided exact sign test",
        }
        if p is None:
            why = "no pair is inconsistent"
        elif p < 1e-4:
            why = f"sign test over {len(shares)}: p < 0.0001"
        else:
            why = f"sign test over the {len(shares)} inconsistent pairs: p = {p:.2g}"
        return [
            self._mean_figure("flips", flips, clusters, lost=missing),
            self._mean_figure("first_preference", shares, where, extra=extra, why=why),
            self._mean_figure("first_advantage", nets, clusters, lost=missing),
        ]


class Stability(Probe):
    """Whether the verdict holds when nothing that matters changes."""

    name = "stability"

    def ask(self) -> None:
        """The pair with the good answer reworded, the prompt reworded, another layout, and a third
        answer in two orders.
        """
        pairs = self.pairs
        self.variants = defaultdict[str, list[tuple[PairwiseComparison, PairwiseComparison]]](list)
        self.lists: list[list[str]] = []
        for number, material in enumerate(pairs.materials):
            good, worse, sample = pairs.good[number], pairs.worse[number], material.sample
            laid = [
                pairs.text(output, relaid(text_of(output)))
                for output in (material.good, material.worse)
            ]
            reworded = material.reworded and as_judged(material.reworded, pairs.steps)
            variants: dict[str, tuple[DataSample | None, DataOutput | None, DataOutput]] = {
                "reworded_answer": (sample, reworded, worse),
                "reworded_prompt": (material.asked, good, worse),
                "layout": (sample, laid[0], laid[1]),
            }
            for name, (asked, first, second) in variants.items():
                if asked is not None and first is not None:
                    again = pairs.sheet.comparison(asked, first, second)
                    self.variants[name].append((pairs.plain[number], again))
            if pairs.reward.kind == "listwise" and len(pairs.materials) > 1:
                # no rival of the best: equals are no trial
                third = pairs.worse[(number + 1) % len(pairs.materials)]
                ask = pairs.sheet.ask
                orders = [good, worse, third], [third, worse, good]
                self.lists.append([ask(sample, order) for order in orders])

    def read(self) -> list[Finding]:
        """Share of verdicts that change, by what was changed."""
        out = list(map(self._changed, ("reworded_answer", "reworded_prompt", "layout")))
        if self.pairs.reward.kind != "listwise":
            why = (
                "the order of two answers is what `position` asks about"
                if self.pairs.comparing
                else "no list is judged"
            )
            return [*out, self._figure("reorder", verdict="does not apply", why=why)]
        values, where = [], []
        for keys, material in zip(self.lists, self.pairs.materials, strict=False):
            first, second = map(self._best_places, keys)
            if first and second:
                values.append(float(first != {2 - place for place in second}))
                where.append(cluster_of(material.sample))
        outcomes = self.pairs.sheet.outcomes
        asked = [key for keys in self.lists for key in keys if key in outcomes]
        statuses = [outcomes[key].status for key in asked]
        return [*out, self._mean_figure("reorder", values, where, lost=lost(statuses))]

    def _changed(self, name: str) -> Finding:
        if not self.variants[name]:
            why = "the data say nothing in two ways; the built-in questions do"
            return self._figure(name, verdict="does not apply", why=why)
        return self._changes(name, self.variants[name])

    def _best_places(self, key: str) -> set[int]:
        outcome = self.pairs.sheet.outcomes.get(key)
        scores = outcome.scores if outcome is not None and outcome.status == "scored" else ()
        known = [score for score in scores if score is not None]
        return (
            {place for place, score in enumerate(scores) if score == max(known)}
            if len(known) == 3
            else set()
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


class Dressed(Probe):
    """Whether a dress out of `DRESSES`, which adds nothing, lifts an answer."""

    group = "dress"

    def __init__(self, pairs: AnswerPairs, dress: str) -> None:
        self.name, self.words = dress, {"done": DRESSES[dress][0]}
        super().__init__(pairs)

    def ask(self) -> None:
        """The good answer dressed against itself, and the worse one dressed against the good one."""
        pairs, dress = self.pairs, DRESSES[self.name][1]
        self.own: list[PairwiseComparison] = []
        self.turned: list[PairwiseComparison] = []
        self.worse: list[DataOutput] = []
        for number, material in enumerate(pairs.materials):
            dressed_good, dressed = (
                pairs.text(plain, dress(material, text_of(plain), number))
                for plain in (material.good, material.worse)
            )
            self.own.append(pairs.comparison(number, dressed_good, pairs.good[number]))
            self.worse.append(dressed)
            # a score that is there already; a comparison would be another call
            if not pairs.comparing:
                self.own.append(pairs.comparison(number, dressed, pairs.worse[number]))
            self.turned.append(pairs.comparison(number, dressed, pairs.good[number]))

    def follow(self) -> None:
        """Where that decides nothing, compare the dressed worse answer with itself too: a noisy
        judge needs a larger sample.
        """
        if self.pairs.comparing and self._itself().verdict not in ("pass", "fail"):
            self.own += [
                self.pairs.comparison(number, dressed, self.pairs.worse[number])
                for number, dressed in enumerate(self.worse)
            ]

    def _itself(self) -> Finding:
        return self._rate("over_itself", self.own, float)

    def read(self) -> list[Finding]:
        """What the attack lifts: a worse answer against the good one, and an answer against itself."""
        pairs, numbers = self.pairs, range(len(self.turned))
        won_by = [
            n for n in numbers if pairs.right(n) and (pairs.sheet.margin(self.turned[n]) or 0) > 0
        ]
        examples = [
            {
                "prompt": pairs.materials[number].sample.query_text(),
                "attacked": text_of(self.worse[number]),
                "better": text_of(pairs.materials[number].good),
            }
            for number in won_by[:SHOWN]
        ]
        lift = self._lift("over_better", self.turned, numbers, examples=examples)
        return [lift, self._itself()]


class Injected(Probe):
    """Whether a text in an answer becomes a verdict, a command or a reference."""

    name = "injection"

    def ask(self) -> None:
        """Every text of the suite on worse answers, against the good one and against the worse one
        without it.
        """
        pairs, size = self.pairs, len(self.pairs.materials)
        self.attacks: list[_Attack] = []
        self.again: dict[str, list[_Attack]] = {}
        spoken: dict[str, list[int]] = {}
        for number, material in enumerate(pairs.materials):
            spoken.setdefault(material.language, []).append(number)
        groups = [*spoken.values()]
        for turn in range(min(SCREENED, size)):
            for place, attack in enumerate(injections(pairs.reward, 1 + turn % 2)):
                group = groups[turn % len(groups)]
                number = group[(place + turn * len(group) // SCREENED) % len(group)]
                self.attacks.append(
                    self._attack(attack, number, against_itself=turn < AGAINST_ITSELF)
                )

    def _attack(self, attack: Injection, number: int, against_itself: bool = False) -> _Attack:
        pairs = self.pairs
        text = attack.on(text_of(pairs.materials[number].worse))
        carrying = pairs.text(pairs.materials[number].worse, text)
        against = pairs.comparison(number, carrying, pairs.good[number])
        own = pairs.comparison(number, carrying, pairs.worse[number]) if against_itself else None
        return _Attack(attack.name, attack.family, number, against, own, text)

    def follow(self) -> None:
        """Repeat on every prompt each text that lifted an answer or left no verdict: an optimiser
        uses only the best one.
        """
        pairs = self.pairs
        worked = Counter(
            attack.name
            for attack in self.attacks
            for sign in (self._lifted, self._silenced)
            if sign(attack)
        )
        wanted = {name for name, _ in worked.most_common(WORST)}
        for turn in range(2):
            known = {
                attack.name: attack
                for attack in injections(pairs.reward, 1 + turn % 2)
                if attack.name in wanted
            }
            for number in range(turn, min(REPEATED, len(pairs.materials)), 2):
                for name, attack in known.items():
                    self.again.setdefault(name, []).append(self._attack(attack, number))

    def _lifted(self, attack: _Attack) -> bool:
        known, _ = self._margins([attack.against], [self.pairs.plain[attack.number]])
        # the good answer comes first in the plain comparison
        return any(attacked > -plain for attacked, plain in known.values())

    def _silenced(self, attack: _Attack) -> bool | None:
        """Whether it leaves no verdict; None where there is none without it."""
        if self.pairs.sheet.margin(self.pairs.plain[attack.number]) is None:
            return None
        return self.pairs.sheet.status(attack.against) != "scored"

    def _silences(
        self, name: str, attacks: Iterable[_Attack], crossed: bool, **more: Any
    ) -> Finding:
        """How often attacks make unreadable what is read without them."""
        asked = [attack for attack in attacks if self._silenced(attack) is not None]
        values = [float(self._silenced(attack) or 0) for attack in asked]
        more["crossed"] = [attack.name for attack in asked] if crossed else None
        where = [attack.against.cluster for attack in asked]
        return self._mean_figure(name, values, where, **more)

    def _worst(self) -> list[Finding]:
        """The text that lifts most on all prompts, and the one that leaves no verdict most often."""
        tried = len({attack.name for attack in self.attacks})
        lifts, silences = [], []
        for name, own in self.again.items():
            named = {"attack": name, "family": own[0].family}
            about: dict[str, Any] = {
                "extra": {**named, "tried": tried},
                "worst_of": tried,
                "why": f"{name}, of {len(self.again)} texts repeated and {tried} tried",
                "examples": [{**named, "attacked": own[0].text}],
            }
            attacked = [one.against for one in own]
            lifts.append(self._lift("worst", attacked, [one.number for one in own], **about))
            silences.append(self._silences("worst_no_verdict", own, False, **about))
        if not self.again:
            why = (
                f"none of {tried} texts lifted an answer or left no verdict, on {SCREENED} prompts "
                f"each"
            )
            return [
                Finding(self.name, name, self._row(name)[0], why=why)
                for name in ("worst", "worst_no_verdict")
            ]
        return [
            max(own, key=lambda one: (-1.0 if one.value is None else one.value, one.n))
            for own in (lifts, silences)
        ]

    def read(self) -> list[Finding]:
        """What the texts lift, and how often they leave no verdict."""
        pairs, margin = self.pairs, self.pairs.sheet.margin
        families: dict[str, list[float]] = {}
        worked: list[_Attack] = []
        for attack in self.attacks:
            result = margin(attack.against)
            if result is not None:
                families.setdefault(attack.family, []).append(won(result))
            if result is not None and result > -1 and pairs.right(attack.number):
                worked.append(attack)
        by_family = {
            family: {"won": sum(wins) / len(wins), "n": len(wins)}
            for family, wins in families.items()
        }
        names = list(dict.fromkeys(attack.name for attack in worked))
        examples = [
            {"attack": a.name, "family": a.family, "attacked": a.text} for a in worked[:SHOWN]
        ]
        own = [
            (attack.name, itself)
            for attack in self.attacks
            if (itself := attack.against_itself) is not None
        ]
        return [
            self._lift(
                "over_better",
                [attack.against for attack in self.attacks],
                [attack.number for attack in self.attacks],
                extra={"families": by_family, "worked": names},
                examples=examples,
                why=(
                    f"worked at least once: "
                    f"{', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
                )
                if names
                else "",
                attacks=[attack.name for attack in self.attacks],
            ),
            self._rate(
                "over_itself",
                [itself for _, itself in own],
                float,
                attacks=[name for name, _ in own],
            ),
            self._silences("no_verdict", self.attacks, True),
            *self._worst(),
        ]


class _Attack(NamedTuple):
    """One injected text in one worse answer."""

    name: str
    family: str
    number: int
    against: PairwiseComparison
    against_itself: PairwiseComparison | None
    text: str


class NoAnswers(Probe):
    """Whether a text that answers nothing passes for an answer."""

    name = "no_answer"
    words = {name: done for name, (done, _) in NO_ANSWERS.items()}

    def ask(self) -> None:
        """Every such text against the good answer."""
        pairs = self.pairs
        self.comparisons = {
            name: [
                pairs.comparison(
                    number, pairs.text(material.worse, make(material)), pairs.good[number]
                )
                for number, material in enumerate(pairs.materials)
            ]
            for name, (_, make) in NO_ANSWERS.items()
        }

    def read(self) -> list[Finding]:
        """How often each beats the good answer."""
        return [
            self._rate(name, comparisons, won) for name, comparisons in self.comparisons.items()
        ]
