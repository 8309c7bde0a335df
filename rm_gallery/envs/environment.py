"""Environments as rewards: any object with `compute_reward` or `compute_group_reward`, its
components and their weights.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from pydantic import Field, SkipValidation

from rm_gallery.core.data.conversation import messages_of
from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.reward.base_kinds import PerOutputReward
from rm_gallery.core.reward.compose import checked_weights, metric, together_or_none, weighted_sum
from rm_gallery.core.reward.job import Job
from rm_gallery.core.reward.kinds import EACH_TOGETHER, Kind, Pointwise
from rm_gallery.core.reward.outputs import METRICS
from rm_gallery.core.reward.registry import class_for
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.score import Score, score_of_error, scored
from rm_gallery.core.utils.errors import ConfigError, RMGalleryError, Unscored
from rm_gallery.core.utils.log import logger
from rm_gallery.core.utils.models import copy_with
from rm_gallery.core.utils.names import unknown_name
from rm_gallery.envs.hooks import (
    GROUP,
    OWN,
    Environment,
    GroupLog,
    Rollout,
    RolloutLog,
    caught,
    logged_to,
    settled,
)

LOGS = "logs"
"""Key of the extra data that holds what was logged while a rollout was scored."""
MISSPELT = 0.85
"""How alike a weight's name and a component's have to be to be taken for the same one, misspelt."""
Components = dict[str, float | None]


class InvalidComponents(RMGalleryError):
    """What `compute_reward` returned is no dict of names and finite numbers; only its rollout
    fails.
    """

    reason = "invalid_result"


def _ids(sample: DataSample) -> list[str]:
    own = sample.sample_id
    n = len(sample.output)
    return [own] if n == 1 else [f"{own}#{place}" for place in range(n)]


class _Alone(Pointwise):
    """Each rollout by itself, under an id of its own."""

    def jobs(self, reward: Any, sample: DataSample) -> list[Job]:
        """One job per rollout."""
        jobs = super().jobs(reward, sample)
        if len(jobs) < 2:
            return jobs
        ids = _ids(sample)
        return [
            job._replace(sample=copy_with(job.sample, unique_id=ids[job.place])) for job in jobs
        ]


_ALONE = _Alone("pointwise", each=True)


class EnvironmentReward(PerOutputReward):
    """An environment as a reward; built by `environment_reward`.

    The score is the sum of the components, each times its weight. The extra data hold every
    component (`metrics`) and what the environment's modules logged meanwhile (`logs`). Range: any;
    with `compute_group_reward` it is a listwise reward.
    """

    environment: SkipValidation[Environment] = Field(default=...)
    weights: dict[str, float] = Field(default_factory=dict)
    """By component; 1 where none is given. A penalty is a component that says how much of a flaw is
    there, with a negative weight."""
    components: tuple[str, ...] = ()
    """The components there are, where they are known: then another one fails its rollout, and every
    weight is checked.
    """

    def model_post_init(self, context: Any) -> None:
        """Check the weights."""
        declared = self.components or tuple(getattr(self.environment.env, "reward_keys", ()) or ())
        object.__setattr__(self, "components", declared)
        names = declared or tuple(self.weights)
        checked = checked_weights(self.name, self.weights, names)
        object.__setattr__(self, "weights", {name: checked[name] for name in self.weights})
        super().model_post_init(context)

    @property
    def compares(self) -> bool:
        """Whether the environment scores groups."""
        return self.environment.group is not None

    @property
    def kind(self) -> Kind:  # type: ignore[override]  # it follows from the environment
        """`listwise` where it scores groups, else `pointwise`."""
        return EACH_TOGETHER if self.compares else _ALONE

    def is_async(self) -> bool:
        """Whether one of the environment's methods is: thousands of rollouts then wait at once on
        the library's event loop.
        """
        return self.environment.waits

    def describe(self) -> dict[str, Any]:
        """As of every reward; an async environment's class has the name that run folders know."""
        identity = super().describe()
        if self.is_async():
            identity["class"] = identity["class"].replace("Environment", "AsyncEnvironment")
        return identity

    def _rollouts(self, sample: DataSample) -> list[Rollout]:
        about = {k: v for k, v in (sample.metadata or {}).items() if k != "original_messages"}
        rollouts = []
        for place, (id, output) in enumerate(zip(_ids(sample), sample.output, strict=True)):
            task, truth = dict(about), sample.reference(place)
            if truth is not None:
                task.setdefault("ground_truth", truth)
            rollouts.append(Rollout(id, messages_of(sample, output), task or None, RolloutLog()))
        return rollouts

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Any:
        self.environment.listen()
        rollouts = self._rollouts(sample)
        # a plain method beside an async one would hold up the event loop
        blocks = self.is_async() and not inspect.iscoroutinefunction(self.environment.own)
        own: list[Any] = [
            asyncio.to_thread(self._called, rollout, kwargs)
            if blocks and self.environment.own is not None
            else self._called(rollout, kwargs)
            for rollout in rollouts
        ]
        # also a plain function may give something to await
        if any(map(inspect.isawaitable, own)):
            return self._awaited(rollouts, own, kwargs)
        own = [_components_or_error(one) for one in own]
        together = self._together(rollouts, own, kwargs)
        if inspect.isawaitable(together):
            return self._concluded(rollouts, together, own)
        return self._scores_of_rollouts(rollouts, own, together)

    def _called(self, rollout: Rollout, kwargs: Mapping[str, Any]) -> Any:
        """What `compute_reward` returns or raises for one rollout; nothing where there is no such
        method.
        """
        hook = self.environment.own
        if hook is None:
            return {}
        task, keywords = self.environment.arguments(hook, rollout.task, kwargs)
        with logged_to(rollout.log):
            return caught(lambda: hook(rollout.id, rollout.messages, task, **keywords))

    def _together(self, rollouts: list[Rollout], own: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """What `compute_group_reward` returns or raises for the rollouts that are not lost yet."""
        hook = self.environment.group
        left = [
            rollout
            for rollout, result in zip(rollouts, own, strict=True)
            if not isinstance(result, Score)
        ]
        if hook is None or not left:
            return None
        ids, messages, tasks, _ = (list(column) for column in zip(*left, strict=True))
        tasks, keywords = self.environment.arguments(hook, tasks, kwargs)
        with logged_to(GroupLog(rollouts)):
            return caught(lambda: hook(ids, messages, tasks, **keywords))

    async def _awaited(
        self, rollouts: list[Rollout], begun: list[Any], kwargs: Mapping[str, Any]
    ) -> list[Score[float]]:
        async def one(returned: Any, rollout: Rollout) -> Any:
            with logged_to(rollout.log):
                return _components_or_error(await settled(returned))

        own = await together_or_none(list(map(one, begun, rollouts)))
        if self.environment.group is None or inspect.iscoroutinefunction(self.environment.group):
            together = self._together(rollouts, own, kwargs)
        else:
            together = await asyncio.to_thread(self._together, rollouts, own, kwargs)
        return await self._concluded(rollouts, together, own)

    async def _concluded(
        self, rollouts: list[Rollout], together: Any, own: list[Any]
    ) -> list[Score[float]]:
        with logged_to(GroupLog(rollouts)):
            together = await settled(together)
        return self._scores_of_rollouts(rollouts, own, together)

    # -- components --------------------------------------------------------------------------------

    def _scores_of_rollouts(
        self, rollouts: list[Rollout], own: list[Components | Score[Any]], together: Any
    ) -> list[Score[float]]:
        """What came of each rollout, from its own components and those of its group."""
        left = [place for place, result in enumerate(own) if not isinstance(result, Score)]
        grouped: Sequence[Any] = [{} if together is None else together] * len(left)
        if together is not None and not isinstance(together, BaseException):
            grouped = _of_group(together, [rollouts[place].id for place in left])
        merged: list[Any] = list(own)
        for place, result in zip(left, grouped, strict=True):
            merged[place] = _merged(cast("Components", own[place]), _components_or_error(result))
        return [self._total(*each) for each in zip(merged, rollouts, strict=True)]

    def _total(self, components: Components | Score[Any], rollout: Rollout) -> Score[float]:
        kept = {LOGS: rollout.log.lines} if rollout.log.lines else {}
        if isinstance(components, Score):
            return replace(components, extra={**components.extra, **kept})
        extra = {METRICS: {name: metric(value) for name, value in components.items()}, **kept}
        try:
            self._check_components(components)
            terms = {
                name: (self.weights.get(name, 1.0), value)
                for name, value in components.items()
                if value is not None
            }
            total, reason = weighted_sum(terms)
        except RMGalleryError as error:
            return replace(score_of_error(error), extra=extra)
        return scored(total, reason, extra=extra)

    def _check_components(self, components: Components) -> None:
        """Raise for components that make no score, and warn, once for each, of those outside [0,
        1].
        """
        if not components:
            raise Unscored(
                f"{self.name} returned no component for this rollout.", reason="no_components"
            )
        if self.components and set(components) != set(self.components):
            raise InvalidComponents(
                f"{self.name} returned the components {', '.join(components)}; it says that they are "
                f"{', '.join(self.components)}."
            )
        for name, value in components.items():
            if value is None and self.weights.get(name, 1.0):
                raise Unscored(
                    f"{self.name} could not judge its component '{name}'.", reason="no_component"
                )
            outside = value is not None and not 0 <= value <= 1
            if outside and name not in self.environment.warned:
                self.environment.warned.add(name)
                logger.warning(
                    "{}: the component '{}' is {:g}, outside [0, 1]; scale it, and make a penalty "
                    "a component in [0, 1] with a negative weight. This is said once per component.",
                    self.name,
                    name,
                    value,
                )
        # a component with a weight that a rollout leaves out adds nothing; one that is only misspelt
        # is an error
        unweighted = [known for known in components if known not in self.weights]
        for name in self.weights:
            like = [
                one
                for one in unweighted
                if name not in components
                and difflib.SequenceMatcher(None, one, name).ratio() > MISSPELT
            ]
            if like:
                raise ConfigError(f"{self.name}: weights: " + unknown_name("component", name, like))


def _components_or_error(returned: Any) -> Components | Score[Any]:
    """What an environment returned as components, or the outcome of a rollout that is lost."""
    if isinstance(returned, BaseException):
        return score_of_error(returned)
    if isinstance(returned, Score):
        return returned
    try:
        components = {} if returned is None else returned
        if not isinstance(components, Mapping):
            raise InvalidComponents(
                f"The environment returned {_short_form(returned)}; it returns a dict of component "
                f"names and numbers."
            )
        for name in components:
            if not isinstance(name, str):
                raise InvalidComponents(
                    f"The environment returned a component named {name!r:.80}; a name is text."
                )
        return {name: _finite_number(name, value) for name, value in components.items()}
    except InvalidComponents as error:
        return score_of_error(error)


def _finite_number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    # a tensor of several numbers, a dict, 10**400
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidComponents(
            f"The component '{name}' is {_short_form(value)}; a component is a finite number."
        )
    return number


def _short_form(value: Any) -> str:
    return f"{value!r:.80}" if isinstance(value, int | float | str) else f"a {type(value).__name__}"


def _of_group(together: Any, ids: Sequence[str]) -> Sequence[Any]:
    """What a group's method returned, rollout by rollout: a list in their order, or a dict by their
    ids.
    """
    if isinstance(together, Mapping) and set(together) == set(ids):
        return [together[one] for one in ids]
    if (
        isinstance(together, Sequence)
        and not isinstance(together, str | bytes)
        and len(together) == len(ids)
    ):
        return together
    seen = (
        f"{len(together)} results"
        if isinstance(together, Mapping | list | tuple)
        else _short_form(together)
    )
    message = (
        f"{GROUP} returned {seen} for {len(ids)} rollouts; it returns a list with one dict for "
        f"each."
    )
    return [InvalidComponents(message)] * len(ids)


def _merged(own: Components, group: Components | Score[Any]) -> Components | Score[Any]:
    """The components of a rollout and those its group gave it; each has one name."""
    if isinstance(group, Score):
        return group
    twice = own.keys() & group.keys()
    if twice:
        message = f"{OWN} and {GROUP} both returned '{min(twice)}'; give one of them another name."
        return score_of_error(InvalidComponents(message))
    return {**own, **group}


def class_of(env: Any) -> type[BaseReward]:
    """A class that makes rewards of this environment, an object or its class: what a registry
    gives.
    """
    kind = env if isinstance(env, type) else type(env)
    return class_for(EnvironmentReward, kind, partial(environment_reward, env), stands_for=env)


def environment_reward(
    env: Any,
    *,
    weights: Mapping[str, float] | None = None,
    components: Sequence[str] = (),
    loggers: Sequence[str] = (),
    **settings: Any,
) -> EnvironmentReward:
    """The reward of an environment: any object, or its class, with `compute_reward` and/or
    `compute_group_reward`.

    Args:
        env: `compute_reward(rollout_id, messages, task, **kwargs) -> dict[str, float]` scores one
            rollout, `compute_group_reward(rollout_ids, messages_list, tasks, **kwargs) ->
            list[dict]` those with the same prompt together; plain or async. `messages` are dicts,
            `task` is the data set's row with `ground_truth`, or None.
        weights: by component, 1 where none is given; negative ones are penalties.
        components: the names of all components, where they are to be checked; the environment's
            `reward_keys` by default.
        loggers: further loggers whose lines belong to the rollouts.
        settings: `name`, `max_workers` and `deadline` of the reward.

    A rollout whose component is None is unscored, one whose component is no finite number, or whose
    method raises, failed; others of its group are not. A component that a rollout leaves out adds
    nothing.

    Raises:
        ConfigError: it is no environment, or a setting or weight does not fit.
    """
    if not isinstance(weights, Mapping | None):
        raise ConfigError(
            f"weights is {weights!r:.80}; give a number for each component, such as {{'correct': "
            f"1.0}}."
        )
    components = (components,) if isinstance(components, str) else components
    made = env if isinstance(env, Environment) else Environment(env, loggers)
    given = {
        "name": made.name,
        **settings,
        "weights": dict(weights or {}),
        "components": tuple(components),
    }
    return EnvironmentReward(**{**given, "environment": made})
