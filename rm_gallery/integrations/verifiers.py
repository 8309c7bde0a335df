"""verifiers: a reward as a function of a v0 `Rubric` and as a `@vf.reward` of a v1 task; one object
is both.

Both versions inject arguments by name, and v1 asks for `task` and `trace`. v1 can say "no score":
what raises fails the rollout and scores nothing, so that is what a completion without a score does
by default (`on_error="none"`). v0 makes a 0.0 of every exception; there the rollout's
`state["error"]` is set as well, which is how v0 labels a rollout not to be used, and the flags
`unscored` and `failed` can be charted as metrics (`verifiers_rubric`). What the completion broke
itself is no missing score but the worst one of the range, or `worst=`.

A reward that compares is a group function of v0 (`verifiers_group_reward`), which gets a prompt's
rollouts together. v1 scores each trace by itself, and has none.

A reward that pays turns (a stepwise one, `TurnRewards`) leaves its vector where the trainer reads
it: `trace.info["turn_rewards"]` in v1, the `reward` of each step of `state["trajectory"]` in v0.

Nothing of verifiers is imported until `verifiers_rubric` is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rm_gallery.core.data.conversation import split_rollout
from rm_gallery.core.data.load.padding import fields_in, plain
from rm_gallery.core.data.load.rollouts import turns_of
from rm_gallery.core.reward.compose import TURNS
from rm_gallery.core.score import Score
from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.integrations.causes import NoScore, OnError, flags, no_score
from rm_gallery.integrations.scoring import TrainerReward, needed, pays_turns
from rm_gallery.train.live import LiveWatch, TrainingStopped, live_watch_of

KEPT = "rm_gallery"
"""Key of a v0 state that holds the numbers of this rollout, by reward."""
_DATA = (str, int, float, bool, type(None), list, tuple, dict)
_NO_COLUMNS = frozenset(
    ("parser", "client", "model", "resources", "runtime", "prompt", "completion", "state", "trace")
)
_OF_THE_TASK = ("task", "info", "answer", "example_id")
"""What v0 keeps beside the dataset's own columns, and hands over by itself."""


class _Labelling(TrainerReward):
    """What v0 is told of a score: a number, and beside it the numbers and the error of the state."""

    takes_none = True
    advice = "give it a negative weight"
    reported = ()

    def __init__(
        self,
        reward: object,
        *,
        components: Sequence[str] = (),
        name: str | None = None,
        on_error: OnError = "none",
        watch: LiveWatch | Mapping[str, Any] | None = None,
        **scoring: Any,
    ) -> None:
        """Build the reward; nothing is scored yet."""
        super().__init__(reward, components=components, on_error=on_error, name=name, **scoring)
        self.watch = live_watch_of(watch)

    def _v0_row(self, columns: Any, task: Any, info: Any, answer: Any) -> Any:
        """The columns of a v0 rollout: the dataset's, then those of its task and its info."""
        row = {
            key: value
            for key, value in columns.items()
            if key not in _NO_COLUMNS and isinstance(value, _DATA)
        }
        row |= {**fields_in(task), **fields_in(info), "answer": answer}
        if "reference" not in self.scorer.columns:
            row.setdefault("reference", answer if answer != "" else None)
        return plain(row)

    async def _show(
        self, reply: Any, score: Score[float], asked: Any, row: Any, states: Sequence[Any]
    ) -> None:
        """Let the watch see one rollout; TrainingStopped where it says so."""
        if self.watch is None:
            return
        beside = {"components": score.components, "prompt": asked, "row": row}
        await self.watch.anote(reply, score.value, **beside)
        try:
            self.watch.check()
        except TrainingStopped as stop:
            _label(states, stop)
            raise

    def _keep_in_state(self, state: Any, score: Score[float]) -> float:
        """The score of a v0 rollout; its numbers are kept for the metrics of `verifiers_rubric`."""
        value = self.scorer.value(score)
        numbers = self.scorer.numbers(score, self.components)
        if isinstance(state, dict):
            state.setdefault(KEPT, {})[self.__name__] = numbers
            turns, taken = score.extra.get(TURNS, ()), state.get("trajectory") or ()
            if len(turns) == len(taken):  # a trajectory that was cut has no turn for each
                for step, reward in zip(taken, turns, strict=True):
                    # v0 puts the rollout's reward where there is none; 0 moves nothing in a sum
                    step["reward"] = 0.0 if reward is None else reward
        if value is None:
            _label([state], no_score(self.__name__, score))
        return numbers["score"]


class VerifiersReward(_Labelling):
    """A reward for `vf.Rubric(funcs=[…])` (v0), or for a v1 task:
    `correct = vf.reward(verifiers_reward(…))` in its class.

    v0: the columns are the dataset's, `info` and `answer`, which is the reference unless another is
    named. v1: the columns are the fields of the task's data; name the reference
    (`reference="answer"`) unless the field is `reference` or `ground_truth`. Components and flags
    of a v1 trace are metrics `NAME/…`.

    Args:
        reward: whatever `RowScorer` takes.
        watch: a `LiveWatch`, or its settings by name, with `batch`, the rollouts that make a step;
            it looks at this reward's scores while they come. Once it stops, every further call
            raises `TrainingStopped`: in v1 the rollout fails; v0 makes a 0.0 of every exception, so
            `state["error"]` is set as well, and a loop of one's own asks `watch.check()`.
        **scoring: `name`, what the reward is called in charts, which must differ within a rubric;
            `components`, names of the parts of the score that are charted; `on_error`, "none",
            "raise", "mean", "worst" or a number; and `reference`, `columns`, `llm`, `options`, … of
            `RowScorer`.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    one_by_one = "Take `verifiers_group_reward` in a rubric of v0; v1 scores each trace by itself."

    async def __call__(
        self,
        /,
        task: Any = None,
        trace: Any = None,
        prompt: Any = None,
        completion: Any = None,
        answer: Any = None,
        info: Any = None,
        state: Any = None,
        **columns: Any,
    ) -> float:
        """Score a v1 trace, or a v0 rollout.

        Raises:
            NoScore: there is no score, in v1 or with `on_error="raise"`.
            TrainingStopped: the watch ends the training.
        """
        if trace is not None:
            asked, reply = _split_trace(trace)
            row = _task_row(task)
        else:
            asked, reply = plain(prompt), plain(completion)
            row = self._v0_row(columns, task, info, answer)
        score = await self.scorer.ascore(asked, reply, row)
        await self._show(reply, score, asked, row, [state])
        if trace is not None:
            return self._record_in_trace(trace, score)
        return self._keep_in_state(state, score)

    def _record_in_trace(self, trace: Any, score: Score[float]) -> float:
        """The score of a v1 trace, with components and flags among its metrics."""
        parts = {
            name: score.components[name]
            for name in self.components or score.components
            if name in score.components
        }
        trace.record_metrics(
            {f"{self.__name__}/{name}": value for name, value in {**parts, **flags(score)}.items()}
        )
        if TURNS in score.extra:
            # prime-rl's word for a reward per turn of the policy
            trace.info["turn_rewards"] = list(score.extra[TURNS])
        value = self.scorer.value(score)
        if value is None:
            raise no_score(self.__name__, score)
        return value


class VerifiersGroupReward(_Labelling):
    """A reward for `vf.Rubric(funcs=[…])` of v0 that gets all rollouts of a prompt at once, so that
    it may compare them.

    v0 then scores by group (`score_group`). Columns are those of `verifiers_reward`, as is what
    becomes of a missing score; one that is left out of the comparison costs no other its score.

    Args:
        reward: whatever `RowScorer` takes; one that compares sees the rollouts as one group.
        watch: as that of `verifiers_reward`; a stop labels all states of the group.
        **scoring: as those of `verifiers_reward`. `on_error="raise"` labels all states of the
            group, since v0 makes a 0.0 for each of them of the exception.

    Raises:
        ConfigError: as `RowScorer` does.
    """

    async def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        answers: Sequence[Any] | None = None,
        states: Sequence[Any] | None = None,
        tasks: Sequence[Any] | None = None,
        infos: Sequence[Any] | None = None,
    ) -> list[float]:
        """Score the v0 rollouts of a prompt, in their order.

        Raises:
            NoScore: there is no score for one of them, and `on_error` is "raise".
            TrainingStopped: the watch ends the training.
        """
        nothing = [None] * len(completions)
        states = nothing if states is None else states
        beside = [nothing if each is None else each for each in (tasks, infos, answers)]
        rows = [
            self._v0_row(_dataset_row(state), *each)
            for state, *each in zip(states, *beside, strict=True)
        ]
        asked, replies = [plain(each) for each in prompts], [plain(each) for each in completions]
        scores = await self.scorer.ascore_rows(asked, replies, rows)
        for reply, score, prompt, row in zip(replies, scores, asked, rows, strict=True):
            await self._show(reply, score, prompt, row, states)
        try:
            return [self._keep_in_state(*each) for each in zip(states, scores, strict=True)]
        except NoScore as missing:
            _label(states, missing)
            raise


verifiers_reward = VerifiersReward
verifiers_group_reward = VerifiersGroupReward


def verifiers_rubric(
    rewards: Sequence[object],
    weights: Sequence[float] | None = None,
    *,
    parser: Any = None,
    **settings: Any,
) -> Any:
    """A v0 `vf.Rubric` of rewards, with their components, `unscored` and `failed` as metrics
    `NAME/…` of weight 0.

    Args:
        rewards: what `verifiers_reward` gives, or takes, and what `verifiers_group_reward` gives.
        weights: one per reward; 1.0 each by default.
        parser: the rubric's.
        **settings: of `verifiers_reward`, for those that are not made yet.

    Raises:
        ConfigError: verifiers v0 is not installed, two rewards have one name, or the weights do not
            fit.
    """
    with needed(
        "verifiers_rubric needs verifiers v0 ({}). Install it with: pip install 'verifiers<0.2'"
    ):
        from verifiers import Rubric
    made = [
        each if isinstance(each, _Labelling) else VerifiersReward(each, **settings)
        for each in rewards
    ]
    names = [each.__name__ for each in made]
    paying = [each.__name__ for each in made if pays_turns(each.scorer.reward)]
    if len(paying) > 1:
        raise ConfigError(
            f"{paying[0]} and {paying[1]} both pay turns, and a step has room for one reward; put "
            f"them into one reward."
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"Two rewards are called '{twice}', and their charts would be one; give them name=."
        )
    if weights is not None and len(weights) != len(made):
        raise ConfigError(
            f"There are {len(weights)} weights for {len(made)} rewards; give one each."
        )
    rubric = Rubric(
        funcs=list(made),
        weights=[float(each) for each in weights or [1.0] * len(made)],
        parser=parser,
    )
    for each in made:
        for part in (*each.components, "unscored", "failed"):
            rubric.add_metric(_Metric(each.__name__, part))
    return rubric


class _Metric:
    """One of the numbers that a reward kept in the state."""

    def __init__(self, reward: str, part: str) -> None:
        self._reward, self._part = reward, part
        self.__name__ = f"{reward}/{part}"

    def __call__(self, state: Any) -> float:
        return float(state.get(KEPT, {}).get(self._reward, {}).get(self._part, 0.0))


def _dataset_row(state: Any) -> Any:
    """The dataset's own columns, which v0 hands to no group function."""
    given = fields_in(fields_in(state).get("input"))
    return {key: value for key, value in given.items() if key not in _OF_THE_TASK}


def _label(states: Sequence[Any], missing: Exception) -> None:
    """Label v0 rollouts as not to be used, but those that have an error already, with verifiers' own
    kind of error, which its callers look for.
    """
    error = missing
    with suppress(ImportError):
        from verifiers import Error

        error = Error(str(missing))
    for state in states:
        if isinstance(state, dict) and state.get("error") is None:
            state["error"] = error


def _task_row(task: Any) -> dict[str, Any]:
    """The fields of a v1 task's data."""
    dump = getattr(task, "model_dump", None)
    return dict(dump(mode="python") if dump is not None else task or {})


def _split_trace(trace: Any) -> tuple[list[Any], list[Any]]:
    """Prompt and completion of a v1 trace; the completion begins with the first sampled message."""
    branches = trace.branches
    nodes = branches[-1].nodes if branches else []
    first = next((place for place, node in enumerate(nodes) if node.sampled), None)
    spoken = [turns_of([node.message.model_dump(exclude_none=True)]) for node in nodes]
    turns = [turn for each in spoken for turn in each]
    return split_rollout(turns, None if first is None else sum(spoken[:first], []))
