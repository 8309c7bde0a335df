"""Which answer made itself, or its group, impossible to judge: tried out with control answers, for
every kind of reward.

A judge that cannot be read and code that raises do not say whether the answer made them.

1. The same is tried again. How often it has to fail follows from how often this reward loses a
   score at random: a reward that loses a third of its calls loses an honest answer three times for
   one in 27.
2. Then another answer takes its place in front of the same question: one of this batch, or of
   those before, that the reward has scored. Such are what the reward can read; a function that
   reads JSON fails on any neutral text, which would acquit whoever breaks it. Only where there are
   none do neutral texts. A control replaces all that the candidate made, its turns, what its tools
   said and its workspace: poison in any of them would spoil the control as well.

Where controls get a score the answer is to blame, and has the worst score of the range. Where a
whole group has no score, each of its answers is tried among controls, and the rest is judged
without those that fail: nobody pays for a neighbour.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import weakref
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from rm_gallery.core.data.schema import CONVERSATION, DataOutput, DataSample, Step
from rm_gallery.core.engine.context import RunControl
from rm_gallery.core.engine.options import detached_options
from rm_gallery.core.engine.repeat import in_round
from rm_gallery.core.model.client import trouble_at
from rm_gallery.core.reward.founding import settled, write_score
from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.reward.judges import asks_a_model, models_of
from rm_gallery.core.reward.outputs import (
    DEADLINE_SHARE,
    PLAIN,
    Control,
    may_be_the_answers_doing,
    neutral,
    not_the_reference,
    of_its_form,
    said_of,
    said_of_step,
    stand_in,
)
from rm_gallery.core.score import Score
from rm_gallery.core.utils.models import copy_with

if TYPE_CHECKING:
    from rm_gallery.core.engine.options import RunOptions
    from rm_gallery.core.engine.progress import Progress

TRIALS = 3
"""How often an answer has to fail at least, and controls have to get a score, before it is to
blame.
"""
FALSE_BLAME = 1 / 5000
"""How likely an honest answer may be blamed."""
MOST_LOST = 0.6
"""A reward that loses more than this share at random says nothing about an answer."""
FEW, OFTEN = 10, 0.1
"""Answers without a score, and their share, from which on a judge is often silent."""
CONTROLS = 8
_PRIOR = (0.5, 5.0)
"""Lost and scored, before anything is known: a single answer has to fail four times."""
_ALIKE = 4
"""So many answers that broke code of the user in one and the same way are taken for an outage."""
REMEMBERED = 1000
"""Scores after which what was seen before counts half."""

Said = list[Score[Any]]
"""What was said of each output of a sample."""
Trials = Generator[list[DataSample], list[Said], None]
"""Yields samples to judge and is sent what was said of each; writes what it finds out to the
outputs it is about.
"""

T = TypeVar("T")
Attempts = Generator["str | T | None", Score[Any], 'Literal["answer", "again"] | None']


@dataclass(slots=True)
class Losses:
    """How often a reward loses a score at random, whatever the answer.

    The share is of what was lost once and scored when it was tried again, to what was scored at
    once. Answers that break the reward each time are in neither, so that many of them do not hide
    behind one another.
    """

    scored: float = 0.0
    missed: float = 0.0
    """Had no score at once, for whatever reason."""
    lost: float = 0.0
    recent: deque[Control] = field(default_factory=lambda: deque(maxlen=CONTROLS))
    """Answers that got a score, for where a batch has none."""

    @property
    def share(self) -> float:
        """The share of losses among honest answers."""
        return (self.lost + _PRIOR[0]) / (self.scored + _PRIOR[1])

    @property
    def often_silent(self) -> bool:
        """Whether so many answers had no score at once that silence is no news of one of them: what
        its judge says when asked again need not be heard twice.
        """
        return self.missed >= max(FEW, OFTEN * (self.missed + self.scored))

    @property
    def failures(self) -> float:
        """How often an answer has to fail until it is to blame; never, where the reward loses most
        of all.
        """
        if self.share > MOST_LOST:
            return math.inf
        return max(TRIALS, math.ceil(math.log(FALSE_BLAME) / math.log(self.share)))

    @property
    def losses(self) -> int:
        """How many controls may be lost until `TRIALS` have a score: so many that one in twenty loses
        more at random.
        """
        share = min(self.share, MOST_LOST)
        lost, chance = 0, (1 - share) ** TRIALS
        more = chance
        while more < 0.95:
            lost += 1
            chance *= share * (TRIALS + lost - 1) / lost
            more += chance
        return lost

    def note(self, scored: int, missed: int, new: Sequence[Control]) -> None:
        """Take in what a batch scored at once, and how many it did not."""
        if self.scored > REMEMBERED:
            self.scored, self.lost, self.missed = self.scored / 2, self.lost / 2, self.missed / 2
        self.scored += scored
        self.missed += missed
        self.recent.extend(new[-CONTROLS:])


_known: dict[int, Losses] = {}


def known_of(reward: AnyReward) -> Losses:
    """What earlier batches of this object showed: trainers and servers hand over answers one by
    one.
    """
    known = _known.get(id(reward))
    if known is None:
        known = _known[id(reward)] = Losses()
        weakref.finalize(reward, _known.pop, id(reward), None).atexit = False
    return known


class SecondLook:
    """The trials for all of these samples' outputs that have no score and may have caused that
    themselves, in rounds.

    While there is anything `asked`, the caller has `reward` judge it with the options of `probing`
    and hands it to `take`.
    """

    def __init__(self, reward: AnyReward, samples: Iterable[DataSample]) -> None:
        """Find out what is to be tried; nothing is judged here."""
        self.reward, self._of, self._round = reward, reward, 0
        self._going = list[tuple[Trials, list[DataSample]]]()
        self._about: list[DataSample] = []
        self.changed: list[DataSample] = []
        """Those that have another score than before, once all is settled."""
        samples = list(samples)
        known = known_of(reward)
        suspects = [(one, places) for one in samples if (places := list(suspected(reward, one)))]
        if suspects and self._in_trouble():
            suspects = []
        scored = [
            Control(sample, output)
            for sample in (samples if suspects else samples[-REMEMBERED:])
            for output in sample.output
            if _scored(reward, output)
        ]
        batch = _Batch(reward, known, scored, [*known.recent]) if suspects else None
        if batch is not None and reward.may_ask_others:
            why = [place.why.reason for _, places in suspects for place in places]
            batch.is_outage_likely = len(why) >= _ALIKE and len(set(why)) == 1
        units = {id(one.sample) for one in scored} if reward.compares else scored
        known.note(len(units), sum(len(places) for _, places in suspects), scored)
        for sample, places in suspects:
            assert batch is not None
            trials = _trials(batch, sample, places)
            first = next(trials, None)
            if first is not None:
                self._about.append(sample)
                self._going.append((trials, first))
        self._before = [self._scores_of(sample) for sample in self._about]
        if reward.kind == "stepwise" and suspects:
            # a turn is tried with what came before it, which need not be judged again
            self.reward = cast(Any, reward).for_newest_turn()

    def _in_trouble(self) -> bool:
        """Time and load are no answer's doing: nothing is tried out on an endpoint in trouble."""
        return any(map(trouble_at, models_of(self._of)))

    def _scores_of(self, sample: DataSample) -> list[Score[float]]:
        return [said_of(self._of, output) for output in sample.output]

    @property
    def asked(self) -> list[DataSample]:
        """What is to be judged now; empty when all is settled."""
        return [sample for _, trials in self._going for sample in trials]

    def probing(self, options: RunOptions) -> RunOptions:
        """The options of this round: it keeps nothing, asks anew, and a trial may take a quarter of
        the deadline.
        """
        seconds = options.deadline or self.reward.deadline
        deadline = None if seconds is None else DEADLINE_SHARE * seconds
        self._round += 1
        # the cache would give the same unreadable reply again
        repeat = in_round(options.repeat, self._round)
        return detached_options(
            options,
            control=RunControl(quiet=True),
            deadline=deadline,
            blame="off",
            total=None,
            repeat=repeat,
        )

    def take(self, judged: Sequence[Said], progress: Progress | None = None) -> None:
        """Go on with what was said of what was `asked`; after the last round samples are counted by what
        they have then.
        """
        results, going = iter(judged), []
        for trials, asked in self._going:
            try:
                going.append((trials, trials.send([next(results) for _ in asked])))
            except StopIteration:
                continue
        self._going = going = [] if going and self._in_trouble() else going
        if not going:
            for sample, before in zip(self._about, self._before, strict=True):
                if (after := self._scores_of(sample)) != before:
                    self.changed.append(sample)
                    if progress is not None:
                        progress.count(before, -1)
                        progress.count(after)


class _Batch:
    """What all trials of a batch share: its reward, how often that loses a score at random, and
    the answers it has scored.
    """

    def __init__(
        self,
        reward: AnyReward,
        losses: Losses,
        scored: Sequence[Control],
        earlier: Sequence[Control],
    ) -> None:
        self.reward, self.losses, self._earlier = reward, losses, earlier
        self._scored = scored
        self.is_outage_likely = False
        """Whether many answers broke code of the user in one and the same way."""
        self._smallest: list[Control] | None = None
        self._by_question: dict[str, list[Control]] | None = None

    def controls(self, sample: DataSample) -> list[Control]:
        """Scored answers to the same question, then to others, then of earlier batches.

        Those of the smallest hash: the same in whatever order the batch was judged.
        """
        if self._by_question is None:
            self._by_question = {}
            for control in self._scored:
                self._by_question.setdefault(control.sample.query_text(), []).append(control)
            self._smallest = _of_smallest_hash(self._scored)
        own = _of_smallest_hash(self._by_question.get(sample.query_text(), ()))
        found = {id(one.output): one for one in (*own, *(self._smallest or ()), *self._earlier)}
        if all(self.is_settled(said_of(self.reward, one.output)) for one in found.values()):
            return []
        return _beside_the_reference(sample, list(found.values()))[:CONTROLS]

    def is_settled(self, score: Score[float]) -> bool:
        """Whether a score may have been given without asking whom the reward asks: a function that
        gives what has no format 0 seems to work while its service is down.
        """
        return self.is_outage_likely and score.value == self.reward.worst_score


def _of_smallest_hash(controls: Iterable[Control]) -> list[Control]:
    def hashed(control: Control) -> bytes:
        said = "\0".join([control.sample.query_text(), *(t.text for t in control.output.turns)])
        return hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).digest()

    return heapq.nsmallest(CONTROLS, controls, key=hashed)


def _beside_the_reference(sample: DataSample, controls: list[Control]) -> list[Control]:
    """Without those that are the reference to the letter: a function gives them their score before
    it asks anything, and seems to work while its own judge is down.
    """
    reference = str(sample.reference()).strip()
    return [one for one in controls if one.output.answer.text.strip() != reference]


def _scored(reward: AnyReward, output: DataOutput) -> bool:
    """Whether the reward could judge it, and has not said that it made itself impossible to."""
    written = output.answer.reward
    blamed = written.extra_data.get(reward.key_in(written), {}) if written.extra_data else {}
    return reward.score_of_output(output) is not None and blamed.get("caused_by") != "answer"


def _trials(batch: _Batch, sample: DataSample, places: Sequence[_Place]) -> Trials:
    reward = batch.reward
    if not reward.compares or len(sample.output) == 1:
        yield from _at_once([_one(batch, place) for place in places])
        return
    scored = [
        i for i, output in enumerate(sample.output) if reward.score_of_output(output) is not None
    ]
    if scored:
        yield from _at_once(
            [_one(batch, place._replace(others=_others(batch, place, scored))) for place in places]
        )
    else:
        yield from _group(batch, sample, places)


def _at_once(each: Sequence[Trials]) -> Trials:
    """Several at once: what they ask is judged together."""
    going = [(trials, asked) for trials in each if (asked := next(trials, None)) is not None]
    while going:
        results = iter((yield [sample for _, asked in going for sample in asked]))
        left = []
        for trials, asked in going:
            try:
                left.append((trials, trials.send([next(results) for _ in asked])))
            except StopIteration:
                continue
        going = left


class _Place(NamedTuple):
    """An answer, or a step, without a score, and the outputs that it is tried among."""

    sample: DataSample
    at: int
    why: Score[float]
    step: int | None = None
    others: dict[int, DataOutput] = {}

    @property
    def written_to(self) -> Step:
        output = self.sample.output[self.at]
        return output.answer if self.step is None else output.turns[self.step]

    def trial(self, control: Control | str | None = None) -> DataSample:
        """The sample to judge: the answer itself, or a control in its place, among the others. A
        step is tried with what came before it.
        """
        output, sample = self.sample.output[self.at], self.sample
        if self.step is not None:
            output = _until(output, self.step)
        if control is not None:
            sample, output = stand_in(control, sample, output)
        shown = {**self.others, self.at: output}
        return copy_with(sample, output=[shown[i] for i in sorted(shown)])

    def found(self, trial: Said) -> Score[Any]:
        """What became of the answer in a trial."""
        score = trial[sorted({*self.others, self.at}).index(self.at)]
        return score if self.step is None else score.steps[-1]

    def blame(self, reward: AnyReward) -> None:
        """Write that the answer caused it."""
        why = (
            f"The answer made it impossible to judge; another answer could be judged. "
            f"{self.why.reason}"
        )
        lost = replace(self.why.without_value(why), cause="answer")
        write_score(reward, self.written_to, settled(reward, lost))


def _until(output: DataOutput, turn: int) -> DataOutput:
    """The output as it was when this turn had been taken."""
    place = output.turn_places[turn]
    steps = list(output.steps or ())
    if steps and not output.is_trajectory:
        return copy_with(output, steps=steps[: place + 1])
    last = [*steps, output.answer][place]
    known = {**(output.answer.label or {}), **(last.label or {})}
    marked = {**last.additional_kwargs, CONVERSATION: True} if place else last.additional_kwargs
    answer = copy_with(last, label=known, additional_kwargs=marked)
    return DataOutput(answer=answer, steps=steps[:place] or None)


def suspected(reward: AnyReward, sample: DataSample) -> Iterable[_Place]:
    """The places without a score that may be their answers' own doing."""
    if reward.finds_blame_in_parts:
        return
    judged = asks_a_model(reward)
    for at, output in enumerate(sample.output):
        if reward.kind == "stepwise":
            for number, step in enumerate(output.turns):
                if step.reward.issues and may_be_the_answers_doing(
                    judged, why := said_of_step(reward, step)
                ):
                    yield _Place(sample, at, why, number)
        elif output.answer.reward.issues and may_be_the_answers_doing(
            judged, why := said_of(reward, output)
        ):
            yield _Place(sample, at, why)


def _others(batch: _Batch, place: _Place, scored: Sequence[int]) -> dict[int, DataOutput]:
    """What an answer is tried among whose neighbours have scores: the best of them for pairs, else
    the whole group.

    The best, since an answer may break its judge just where it would lose.
    """
    outputs, reward = place.sample.output, batch.reward
    if reward.kind.trial_size is not None:
        sign = 1.0 if reward.higher_is_better else -1.0
        ranked = sorted(
            scored, key=lambda i: sign * (reward.score_of_output(outputs[i]) or 0.0), reverse=True
        )
        return {i: outputs[i] for i in ranked[: reward.kind.trial_size - 1]}
    text = _texts(reward, place)[0]
    return {
        i: output if i in scored else stand_in(text, place.sample, output)[1]
        for i, output in enumerate(outputs)
        if i != place.at
    }


def _texts(reward: AnyReward, place: _Place) -> list[str]:
    """The neutral texts of which one has to get a score in the answer's place."""
    reference = copy_with(place.sample, output=[place.sample.output[place.at]]).reference()
    judged = asks_a_model(reward)
    texts = neutral(judged, reference)
    # a composition with a judge may hold rules as well, which read numbers alone
    return (
        list(dict.fromkeys([*texts, *neutral(False, reference)]))
        if judged and reward.made_of_parts
        else texts
    )


def attempts(
    judged: bool,
    why: Score[Any],
    texts: Sequence[str],
    times: int = TRIALS,
    losses: Losses | None = None,
    controls: Sequence[T] = (),
) -> Attempts[T]:
    """What is tried to find out about an answer of which there is no score for this reason; rewards
    and graders take it alike.

    Yields None for the same answer, a control or a text for that in its place, and is sent what
    became of it. Returns "answer" where the answer is to blame, "again" where what came of it when
    it was tried again first counts, None where nobody knows.
    """
    slow = why.code == "deadline"  # what ran out of time would do so again
    if not slow:
        verdict = yield from _same_again(judged, losses)
        if verdict != "answer":
            return verdict
    if controls:
        found = yield from _controlled(controls, times, losses.losses if losses else 0)
        # an outage may have lasted as long as the trials
        return "again" if found and not slow and not judged and (yield None).ok else found
    if not judged and len(texts) == 1:  # the reference
        if not (yield texts[0]).ok:
            return None
        texts = not_the_reference(texts[0])
    for text in texts:
        if (yield text).ok:
            for _ in range((1 if slow else times) - 1):
                if not (yield text).ok:
                    return None
            return "answer"
    return None


def _same_again(judged: bool, losses: Losses | None) -> Attempts[T]:
    """What comes of the same answer, tried until it failed too often for chance: then "answer"."""
    readable = tried = 0
    while tried < TRIALS - 1 or not readable:
        if tried >= TRIALS - 1:
            # what the whole batch lost is known now
            needed = losses.failures if losses else TRIALS
            if needed == math.inf:
                return None
            if tried + 1 >= needed:
                return "answer"
        outcome = yield None
        if not outcome.ok and not may_be_the_answers_doing(judged, outcome):
            return None
        if not tried and losses is not None:
            losses.lost += outcome.ok
        tried += 1
        readable += outcome.ok
        if readable and (not judged or (losses and losses.often_silent)):
            return "again"
    # A judge's verdict counts where it can be read every time: else an answer that silences a judge
    # who would give it a low score is asked about until one pleases.
    return "again" if readable == TRIALS - 1 else None


def _controlled(controls: Sequence[T], times: int, losses: int) -> Attempts[T]:
    """Whether so many controls get a score, and no more are lost than is chance."""
    scored = lost = 0
    for control in cycle(controls):
        ok = (yield control).ok
        scored, lost = scored + ok, lost + (not ok)
        if scored == times:
            return "answer"
        if lost > losses:
            return None
    return None


def _one(batch: _Batch, place: _Place) -> Trials:
    """Try one answer: the same again, then controls."""
    reward = batch.reward
    # neighbours with scores are controls themselves
    times = 1 if place.others else TRIALS
    texts, controls = _texts(reward, place), batch.controls(place.sample)
    judged = asks_a_model(reward)
    trying = attempts(judged, place.why, texts, times, batch.losses, controls)
    again: Said | None = None
    try:
        control = next(trying)
        while True:
            [trial] = yield [place.trial(control)]
            if control is None and (again is None or not judged):
                again = trial  # of code the first that could be judged, of a judge the first
            outcome = place.found(trial)
            # what has the form of the reference is judged as that is
            if isinstance(control, str) and control != of_its_form(texts[0]):
                outcome = place.why if batch.is_settled(outcome) else outcome
            control = trying.send(outcome)
    except StopIteration as end:
        verdict = end.value
    if verdict == "answer":
        place.blame(reward)
    elif verdict == "again" and again is not None and place.step is None:
        # a pair, or a step by itself, is not judged as it is in its whole
        if not reward.compares or len(again) == len(place.sample.output):
            _adopt(reward, place.sample, [place.at], again, sorted({*place.others, place.at}))


def _adopt(
    reward: AnyReward,
    sample: DataSample,
    places: Iterable[int],
    said: Said,
    shown: Sequence[int],
) -> None:
    """Write to these outputs what was said of them among the outputs `shown`."""
    for place in places:
        write_score(reward, sample.output[place].answer, said[shown.index(place)])


def _group(batch: _Batch, sample: DataSample, places: Sequence[_Place]) -> Trials:
    """Find who breaks a group of which nobody has a score: each by itself among controls, and judge
    the rest without it.

    Where no answer but these is known that the reward can read, each is tried alone. A group of n
    costs n + 7 judgements where one breaks it always, 2n + 5 where one breaks it beside good answers
    alone, and two where it broke by chance.
    """
    reward = batch.reward
    slow = any(place.why.code == "deadline" for place in places)
    if not slow and not (yield from _fails_again(batch, sample)):
        return
    judged = asks_a_model(reward)
    others = yield from _controls(batch, places[0])
    if others is None and judged:
        return
    trials = [place._replace(others=_among(reward, place, others)) for place in places]
    done = yield [trial.trial() for trial in trials]
    outcomes = [trial.found(one) for trial, one in zip(trials, done, strict=True)]
    if not all(outcome.ok or may_be_the_answers_doing(judged, outcome) for outcome in outcomes):
        return
    breakers = [trial for trial, outcome in zip(trials, outcomes, strict=True) if not outcome.ok]
    if not breakers:
        if others is not None:
            yield from _leave_one_out(batch, sample, places, others)
        return
    # with none of the others as a control, or where each may equal the reference
    unsure = len(breakers) == len(places) or not judged
    if unsure and not (yield from _reads_others(reward, breakers, len(places), others)):
        return
    if not slow:
        breakers = yield from _fail_each_time(batch, breakers)
    if not breakers:
        return
    for place in breakers:
        place.blame(reward)
    broken = {place.at for place in breakers}
    rest = [place.at for place in places if place.at not in broken]
    if len(rest) > 1:
        [said] = yield [copy_with(sample, output=[sample.output[i] for i in rest])]
        _adopt(reward, sample, rest, said, rest)
    elif rest:
        last, said = next(
            (trial, one) for trial, one in zip(trials, done, strict=True) if trial.at == rest[0]
        )
        _adopt(reward, sample, rest, said, sorted({*last.others, last.at}))


def _fail_each_time(
    batch: _Batch, trials: Sequence[_Place]
) -> Generator[list[DataSample], list[Said], list[_Place]]:
    """Those that fail so often among controls that it is not chance."""
    if batch.losses.failures == math.inf:
        return []
    failing = list(trials)
    for _ in range(int(batch.losses.failures) - 2):
        if not failing:
            break
        again = yield [trial.trial() for trial in failing]
        both = zip(failing, again, strict=True)
        failing = [trial for trial, one in both if not trial.found(one).ok]
    return failing


def _reads_others(
    reward: AnyReward,
    breakers: Sequence[_Place],
    of: int,
    others: Sequence[Control | str] | None,
) -> Generator[list[DataSample], list[Said], bool]:
    """Whether any answer but these gets a score, and a neutral one as well where those are the
    controls: a judge that is shown equal answers may have nothing to tell apart.
    """
    if others is None:
        return len(breakers) < of
    if not isinstance(others[0], str):
        return True
    texts = [PLAIN[0]] if asks_a_model(reward) else not_the_reference(others[0])
    return (yield from _gets_scores(breakers[0], texts))


def _gets_scores(
    place: _Place, texts: Sequence[str]
) -> Generator[list[DataSample], list[Said], bool]:
    """Whether one of these texts gets a score in the answer's place, as often as it is tried."""
    for text in texts:
        for trial in range(TRIALS):
            if not place.found((yield [place.trial(text)])[0]).ok:
                break
            if trial == TRIALS - 1:
                return True
    return False


def _fails_again(
    batch: _Batch, sample: DataSample
) -> Generator[list[DataSample], list[Said], bool]:
    """Whether nobody of the group gets a score when it is judged again either; what chance broke is
    mended, as in `_one`.
    """
    reward = batch.reward
    judged, everyone = asks_a_model(reward), list(range(len(sample.output)))

    again = yield [copy_with(sample)]
    if not _any_ok(again[0]):
        return any(may_be_the_answers_doing(judged, score) for score in again[0])
    batch.losses.lost += 1
    if judged:
        again = [*again, *(yield [copy_with(sample)])]
    if all(map(_any_ok, again)):
        _adopt(reward, sample, everyone, again[0], everyone)
    return False


def _any_ok(said: Said) -> bool:
    return any(score.ok for score in said)


def _controls(
    batch: _Batch, place: _Place
) -> Generator[list[DataSample], list[Said], Sequence[Control | str] | None]:
    """Controls that get a score in a group of their like: answers that the reward has scored, else
    a neutral text, which for a judge, who can read any, need not be tried.
    """
    reward = batch.reward
    found = batch.controls(place.sample)
    texts = _texts(reward, place)
    choices: list[Sequence[Control | str]] = [found] if found else [[text] for text in texts]
    if not found and len(texts) == 1:
        return choices[0]
    for choice in choices:
        for _ in range(1 + batch.losses.losses):
            trial = place._replace(others=_among(reward, place, choice))
            if trial.found((yield [trial.trial(choice[0])])[0]).ok:
                return choice
    return None


def _among(
    reward: AnyReward, place: _Place, controls: Sequence[Control | str] | None
) -> dict[int, DataOutput]:
    """Controls in the places of as many others as a trial takes; of none where there are none."""
    others = [i for i in range(len(place.sample.output)) if i != place.at]
    chosen = others if reward.kind.trial_size is None else others[: reward.kind.trial_size - 1]
    return {
        i: stand_in(control, place.sample, place.sample.output[i])[1]
        for i, control in zip(chosen, cycle(controls or ()), strict=False)
    }


def _leave_one_out(
    batch: _Batch, sample: DataSample, places: Sequence[_Place], controls: Sequence[Control | str]
) -> Trials:
    """Find who breaks its group only beside the others: without it the group can be judged, and
    without any other it cannot, as often as that is tried.
    """
    reward = batch.reward
    if reward.kind.trial_size is not None or len(places) < 3:
        return
    asked = []
    for place in places:
        shown = [
            stand_in(controls[0], sample, output)[1] if i == place.at else output
            for i, output in enumerate(sample.output)
        ]
        asked.append(copy_with(sample, output=shown))
    places_before: list[_Place] = []
    for again in range(2 if batch.losses.lost else 1):
        judged = yield asked
        able = [(place, one) for place, one in zip(places, judged, strict=True) if _any_ok(one)]
        if len(able) != 1 or (again and able[0][0] is not places_before[0]):
            return
        places_before = [able[0][0]]
    [(place, without)] = able
    place.blame(reward)
    everyone = list(range(len(sample.output)))
    _adopt(reward, sample, [i for i in everyone if i != place.at], without, everyone)
