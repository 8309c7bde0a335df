"""What is said of a sample's outputs: written to them, kept in a run's folder, and whether it may
be their own doing.

Who caused a missing score that may be an answer's own doing is tried out in `blame`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

from pydantic import ValidationError

from rm_gallery.core.data.schema import (
    CONVERSATION,
    DataOutput,
    DataSample,
    Reward,
    Step,
)
from rm_gallery.core.engine.context import LIMIT_SHARE, current_deadline
from rm_gallery.core.engine.engine import Plan
from rm_gallery.core.engine.folder import REUSED, Again, RunFolder
from rm_gallery.core.model.message import MessageRole
from rm_gallery.core.reward.founding import no_reward, write, write_scores
from rm_gallery.core.reward.job import AnyReward
from rm_gallery.core.reward.judges import asks_a_model
from rm_gallery.core.score import (
    NOT_BEGUN,
    UNDECLARED,
    Detail,
    Score,
    about_code,
    deciding,
    out_of_range,
    scored,
    scored_by,
    unscored,
)
from rm_gallery.core.utils.errors import ConfigError, DeadlineExceeded, Unscored
from rm_gallery.core.utils.identity import plain_form, shortened
from rm_gallery.core.utils.models import build, copy_with, remake

# -- written to outputs ----------------------------------------------------------------------------


def writable_copy(sample: DataSample) -> DataSample:
    """A copy whose outputs, answers and steps can be written to; texts and metadata are shared with
    the original.
    """
    outputs = []
    for output in sample.output:
        answer = remake(output.answer, output.answer.__dict__.copy())
        steps = (
            None
            if output.steps is None
            else [remake(step, step.__dict__.copy()) for step in output.steps]
        )
        outputs.append(remake(output, {"answer": answer, "steps": steps}))
    fields = sample.__dict__.copy()
    fields["output"] = outputs
    return remake(sample, fields)


def said_of(reward: AnyReward, output: DataOutput) -> Score[float]:
    """What a reward said of an output it has judged: its score, or why there is none."""
    kind = reward.kind
    said: Score[float] = kind.whole(
        reward, [said_of_step(reward, place) for place in kind.places(output)]
    )
    return said


def said_of_step(reward: AnyReward, step: Step) -> Score[float]:
    """What a reward said of one answer or step it has judged."""
    written = step.reward
    key = reward.key_in(written)
    extra = written.extra_data.get(key, {})
    own = [Detail(d.name, d.score, d.reason) for d in written.details if d.source == key]
    if len(own) == 1 and own[0].name == reward.name:
        return scored(own[0].value, own[0].reason or "", extra=extra)
    if own:
        return scored_by(own, extra)
    issues: list[Score[Any]] = [
        Score(None, issue.message, {}, issue.status, issue.cause, issue.reason, extra)
        for issue in written.issues
        if issue.name == key
    ]
    none = unscored("no_score", f"{reward.name} gave no score.", "rule")
    return deciding(issues or [none])


# -- kept in a run's folder ------------------------------------------------------------------------


@dataclass(eq=False)
class SampleForm:
    """How what a reward says of an item is written to it, looked at once more, and kept in the folder
    of a run: of samples here, of rows in a form of theirs.

    Scores are written to answers and steps. Scored and unscored samples are restored from a folder,
    failed ones judged again.
    """

    reward: AnyReward
    hooks: dict[str, Any]
    """What the reward's hooks are given."""
    what: ClassVar[str] = "samples"
    """What the records are, for people."""
    reuse: ClassVar[Collection[str]] = REUSED
    """The statuses of records that are taken over."""

    def plan(self, data: Any, folder: RunFolder | Again | None = None) -> Plan:
        """The plan of an item, which gives a copy to which its scores are written; its folder keeps
        them, or has them already.
        """
        done = self.copy(data)
        if folder is None or not folder.restore(done):
            done = self.write(done, (yield from self.reward.plan(done)))
            if folder is not None:
                folder.append(done)
        return done

    def second_looks(self, results: Sequence[Any]) -> Iterator[tuple[AnyReward, Sequence[Any]]]:
        """The rewards that may find out whose doing it is that there is no score, each with the samples
        that it is shown.
        """
        yield self.reward, results

    def found_out(self, reward: AnyReward, shown: Any) -> Any:
        """The item of such a sample, to which it is written what was found out."""
        return shown

    def keys_of(self, data: Any) -> tuple[str, str]:
        """What tells an item from others, its id and a hash of all that is read of it; and what equal
        items have in common, and others seldom do.
        """
        return data.sample_key, data.sample_id

    def manifest(self) -> dict[str, Any]:
        """What makes another run of it; ConfigError for what cannot be told from another one."""
        hooks = {
            key: shortened(plain_form(value, f"keyword '{key}'"))
            for key, value in sorted(self.hooks.items())
        }
        return {"reward": self.reward.describe(), "hooks": hooks}

    copy = staticmethod(writable_copy)

    def write(self, data: Any, scores: Sequence[Score[Any]]) -> Any:
        """Give an item the scores that its plan came to; what is handed out of it."""
        write_scores(self.reward, data, scores)
        return data

    def restore(self, data: Any, kept: Any) -> bool:
        """Give an item what was `read` of it; whether that is the whole of it."""
        for step, written in kept:
            issue, extra = next(iter(written.issues), None), written.extra_data.get("")
            write(step, self.reward, written.details, issue, extra)
        return True

    def asking(self, data: Any, record: Mapping[str, Any]) -> Iterator[Callable[[], Any]]:
        """What asks the judges that were asked when the record was made."""
        for reward, shown in [*self._parts_of(data, record)] or [(self.reward, data)]:
            if asks_a_model(reward) and reward.is_async() and not reward.made_of_parts:
                evaluate = reward._evaluate  # checked when the reward was built
                yield from (
                    partial(evaluate, job.sample, **self.hooks)
                    for job in reward.kind.jobs(reward, shown)
                )

    def _parts_of(
        self, sample: DataSample, record: Mapping[str, Any]
    ) -> Iterator[tuple[AnyReward, DataSample]]:
        """The parts of a composition that a record tells of, and to each the sample with the outputs
        that reached it.
        """
        extras, at = {}, 0
        for number, output in enumerate(sample.output):
            extras[number] = inside(record["rewards"][at], "extra_data", "")
            at += 1 + len(output.steps or ())
        for part, places in self.reward.kept_parts(extras):
            yield part, copy_with(sample, output=[sample.output[number] for number in places])

    def read(self, record: Mapping[str, Any], data: Any) -> Any:
        """What a record says of this item; None where it cannot be one of it."""
        rewards, places = record.get("rewards"), list(_places(data))
        if not isinstance(rewards, list) or len(rewards) != len(places):
            return None
        kept = []
        for step, own in zip(places, rewards, strict=True):
            if own is None:
                continue
            try:
                written = Reward.model_validate(own, strict=True)
            except ValidationError:
                return None
            bounds = self.reward.score_range
            if any(out_of_range("", detail.score, bounds) for detail in written.details):
                return None
            if not written.issues and not written.details:
                return None
            kept.append((step, written))
        return kept if kept or not places else None

    def record_of(self, data: Any) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """What is kept of a finished item, which is nothing where the run did not get to it, and of
        what is missing in it each status and code.
        """
        record = {"rewards": [_own(self.reward, step.reward) for step in _places(data)]}
        missing = [
            (issue["status"], issue["reason"])
            for reward in record["rewards"]
            if reward
            for issue in reward.get("issues", ())
        ]
        return {} if any(code in NOT_BEGUN for _, code in missing) else record, missing

    def scores_in(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The scores in what is kept, or why there is none, by place; without what says nothing about
        the code. Of a composition also the scores of its parts.
        """
        by_answer: dict[str, Any] = {}
        for number, reward in enumerate(record.get("rewards", ())):
            noted = inside(reward, "extra_data", "")
            if self.reward.made_of_parts:
                for name, score in _scores_of_parts(noted):
                    by_answer[f"'{name}' of answer {number + 1}"] = score
            issues = reward.get("issues") or () if reward else ()
            # what a second look found is not what the code says of the answer
            if (
                reward
                and not _is_blamed(noted)
                and all(
                    about_code(issue["status"], issue["reason"], issue.get("cause"))
                    for issue in issues
                )
            ):
                scores = [detail["score"] for detail in reward["details"]]
                by_answer[f"answer {number + 1}"] = scores or [
                    f"no score ({issue['reason']})" for issue in issues
                ]
        return by_answer


class ScoresAlone(SampleForm):
    """Nothing is written, and nothing copied: the scores are what comes of a sample."""

    @staticmethod
    def copy(sample: DataSample) -> DataSample:
        """The sample."""
        return sample

    def write(self, data: Any, scores: Sequence[Score[Any]]) -> Any:
        """The scores."""
        return scores


METRICS, PARTS = "metrics", "parts"
"""Keys of a composition's extra data: its parts' scores, and the parts' own extra data."""


def inside(extra: Any, *names: str) -> dict[str, Any]:
    """What stands under these names, one inside the other; empty where nothing does, as in a record
    of another hand.
    """
    for name in names:
        extra = extra.get(name) if isinstance(extra, dict) else None
    return extra if isinstance(extra, dict) else {}


def _scores_of_parts(noted: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The scores that a composition's extra data tell of, of parts at any depth."""
    for name in inside(noted, METRICS):
        said, inner = inside(noted, METRICS, name), inside(noted, PARTS, name)
        if said.get("is_score_valid") and not _is_blamed(inner):
            yield name, said["score"]
        yield from ((f"{name}, {each}", score) for each, score in _scores_of_parts(inner))


def _is_blamed(noted: Mapping[str, Any]) -> bool:
    """Whether a score, or that of a part or a turn it is made of, is the worst one because the answer
    itself could not be judged.
    """
    parts = inside(noted, PARTS)
    return "caused_by" in noted or any(_is_blamed(inside(parts, name)) for name in parts)


def _own(by: AnyReward, reward: Reward) -> dict[str, Any] | None:
    key = by.key_in(reward)
    details = [
        {"name": d.name, "reason": d.reason, "score": d.score}
        for d in reward.details
        if d.source == key
    ]
    own: dict[str, Any] = {"details": details}
    if reward.issues:
        own["issues"] = [i.model_dump() for i in reward.issues if i.name == key]
    if not details and not own.get("issues"):
        return None
    extra = reward.extra_data.get(key)
    if extra:
        own["extra_data"] = {"": extra}
    return own


def _places(sample: DataSample) -> Iterator[Step]:
    """Every answer and step of a sample, in a fixed order."""
    for output in sample.output:
        yield output.answer
        yield from output.steps or ()


# -- whose doing it is -----------------------------------------------------------------------------

NEUTRAL = "I am not sure; it depends on what exactly is meant."
PLAIN = ("0", "{}")
"""For functions that read a number or JSON."""
DEADLINE_SHARE = 0.25
"""Of a sample's deadline, what finding out may take on top."""


def may_be_the_answers_doing(judged: bool, outcome: Score[Any]) -> bool:
    """Whether an answer may have brought this outcome about, for rewards and graders alike.

    An endpoint, the data and the caller do not become the answer's fault. A deadline is the
    caller's where a judge was waited for, but a rule that found no end may have been led there.
    """
    slow = outcome.code == "deadline" and not judged
    return (
        not outcome.ok
        and outcome.code not in (UNDECLARED, *NOT_BEGUN)
        and (slow or outcome.cause in ("judge", "rule"))
    )


def neutral(judged: bool, reference: object) -> list[str]:
    """What is put in the place of an answer: for a rule its own reference, which a working rule can
    read, else the plainest texts.
    """
    if judged:
        return [NEUTRAL]
    return [reference] if isinstance(reference, str) and reference.strip() else [NEUTRAL, *PLAIN]


def not_the_reference(reference: str) -> list[str]:
    """Texts beside a rule's reference of which one has to get a score, too.

    Functions answer an exact match before they ask anything, and seem to work on the reference
    while their own judge is down.
    """
    return [
        text
        for text in (of_its_form(reference), NEUTRAL, *PLAIN)
        if text.strip() != reference.strip()
    ]


_LAST_SIGN = re.compile(r"[^\W_](?=[\W_]*\Z)")


def of_its_form(reference: str) -> str:
    """A text of the same form that is not the reference: 42 is 43, Paris is Parit, {"a": [1, 9]} is
    {"a": [1, 8]}.
    """
    last = _LAST_SIGN.search(reference)
    if last is None:
        return reference + "0"
    sign = last[0]
    other = chr(ord(sign) + (1 if sign not in "9zZ" else -1))
    return reference[: last.start()] + other + reference[last.end() :]


MADE = frozenset({"workspace"})
"""Keys of labels and metadata under which stands what the candidate made; all others belong to the
question.
"""


class Control(NamedTuple):
    """An output that takes another's place, and the sample it is from."""

    sample: DataSample
    output: DataOutput


def _made(values: Mapping[str, Any] | None, made: bool) -> dict[str, Any]:
    return {key: value for key, value in (values or {}).items() if (key in MADE) is made}


def _unjudged(step: Step) -> Step:
    return copy_with(step, reward=build(Reward, no_reward()))


def stand_in(
    control: Control | str, sample: DataSample, output: DataOutput
) -> tuple[DataSample, DataOutput]:
    """A control, or a neutral text, in the place of all that the candidate made: its answer and
    turns, what its tools said and its workspace. The question's labels, and what users say between
    turns, stay.
    """
    if isinstance(control, str):
        said = Step(role=MessageRole.ASSISTANT, content=control)
        control = Control(DataSample(), DataOutput(answer=said))
    label = _made(output.answer.label, False) | _made(control.output.answer.label, True)
    answer = _unjudged(copy_with(control.output.answer, label=label))
    steps = [step for step in output.steps or () if output.is_trajectory and _of_others(step)]
    if steps:  # else users' turns would be taken for steps of a solution
        marked = {**answer.additional_kwargs, CONVERSATION: True}
        answer = copy_with(answer, additional_kwargs=marked)
    steps += [
        _unjudged(step)
        for step in control.output.steps or ()
        if not (control.output.is_trajectory and _of_others(step))
    ]
    if (sample.metadata or {}).keys() & MADE:
        metadata = _made(sample.metadata, False) | _made(control.sample.metadata, True)
        sample = copy_with(sample, metadata=metadata)
    return sample, DataOutput(answer=answer, steps=steps or None)


def _of_others(step: Step) -> bool:
    return step.role in (MessageRole.USER, MessageRole.SYSTEM)


def stand_ins(reward: AnyReward, sample: DataSample, output: DataOutput) -> list[DataSample]:
    """The sample with a neutral answer."""
    texts = neutral(asks_a_model(reward), copy_with(sample, output=[output]).reference())
    placed = [stand_in(text, sample, output) for text in texts]
    return [copy_with(asked, output=[other]) for asked, other in placed]


def killable(
    reward: AnyReward, deadline: float | None, processes: int | None = None
) -> Callable[..., Awaitable[Any]]:
    """`_evaluate` of a `cpu_bound` reward in a worker process; where it is killed, a neutral answer
    tells who broke it.
    """
    from rm_gallery.core.engine.pool import WorkerCrashed, get_pool

    async def evaluate(sample: DataSample, **hooks: Any) -> Any:
        outer = current_deadline.get()
        # the pool's clock runs from the start of a job in its process: waiting behind one that
        # hangs costs nobody else
        given = _least(deadline, None if outer is None else max(0.001, outer.left))
        limit = _least(reward.kill_after, None if given is None else LIMIT_SHARE * given)
        pool = (
            get_pool()
            if processes is None
            else get_pool(f"rewards in {processes}", max_workers=processes)
        )
        ask = partial(pool.asubmit, evaluate_here, reward)
        try:
            return await ask(sample, hooks, deadline=limit)
        except (DeadlineExceeded, MemoryError, WorkerCrashed) as error:
            if reward.compares or reward.kind == "stepwise":
                raise
            instead = stand_ins(reward, sample, sample.output[0])
            left = None if given is None else (1 - LIMIT_SHARE) * given / len(instead)
            for other in instead:
                try:
                    await ask(other, hooks, deadline=_least(limit, left), urgent=True)
                except Exception:  # noqa: BLE001, S112 - that it breaks with any answer is no news of this one
                    continue
                # another answer is no trouble: this one must gain nothing by it
                raise Unscored(
                    f"The answer made it impossible to judge: {error}",
                    reason="deadline",
                    cause="answer",
                ) from error
            raise

    return evaluate


def _least(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)


def evaluate_here(reward: AnyReward, sample: DataSample, hooks: dict[str, Any]) -> Any:
    """What a worker process runs for a `cpu_bound` reward."""
    result = reward._evaluate(sample, **hooks)
    if hasattr(result, "__await__"):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise ConfigError(
            f"{reward.name} is cpu_bound and its _evaluate is async; make it a plain function."
        )
    return result
