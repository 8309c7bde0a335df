"""Rows of named fields: what tells one from another, where its columns are, and what of it a grader
is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rm_gallery.core.data.schema import DataSample, is_absent, without_nan
from rm_gallery.core.reward.judge import UNSEEN
from rm_gallery.core.reward.reward import BaseReward
from rm_gallery.core.reward.view import unseen_in
from rm_gallery.core.utils.errors import Cause, ConfigError, DataError, RMGalleryError, Unscored
from rm_gallery.core.utils.identity import digest
from rm_gallery.core.utils.models import build
from rm_gallery.core.utils.names import check_known

Mapper = Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]] | None
"""What puts a row's columns under the names a grader asks for; see `mapped`."""


class MissingField(RMGalleryError):
    """A row lacks a field that a grader needs."""

    reason = "missing_field"
    cause: Cause = "data"


class TableRow(DataSample):
    """A row of named fields as a sample, for graders, which are shown fields by their names."""

    fields: Any
    """All that the row holds; in the sample of a job what its grader is shown, or the error that
    says why that is nothing."""
    grader: str
    """In the sample of a job, whose it is."""
    shown: dict[str, Any] | None
    """By grader, the `fields` of its job, once that is known."""
    of: Any
    """In the sample of an answer that is looked at once more, its row."""
    number: int | None
    """Its place in the data set, from 0; None of one that comes alone."""
    results: dict[str, Any]
    """By grader, what it gave."""

    @property
    def read_key(self) -> str:
        """The id and a hash of what graders read of it: another column makes it no other row."""
        read = {
            name: str(fields) if isinstance(fields, Exception) else fields
            for name, fields in (self.shown or {}).items()
        }
        return f"{self.given_id}:{digest(read, 'row')}"

    @property
    def given_id(self) -> str:
        """What it holds as `id`, `unique_id` or `row_id`; empty where it has none."""
        for name in ("id", "unique_id", "row_id"):
            given = self.fields.get(name)
            if isinstance(given, (str, int)) and not isinstance(given, bool) and str(given):
                return str(given)
        return ""

    @property
    def named(self) -> str:
        """What people find it by: its id, else its number."""
        return self.given_id or (self.sample_id if self.number is None else str(self.number))

    @property
    def sample_key(self) -> str:
        """Its id and a hash of all it holds."""
        return f"{self.sample_id}:{digest(dict(self.fields), 'row')}"

    @property
    def sample_id(self) -> str:
        """The given id, else a hash of its content."""
        return self.given_id or digest(dict(self.fields), "row")


_NO_SAMPLE = {**DataSample().__dict__, "grader": "", "shown": None, "of": None}


def row_of(fields: Mapping[str, Any], number: int | None = None) -> TableRow:
    """The row with these fields; nothing is copied or checked."""
    lists: dict[str, Any] = {"input": [], "output": [], "results": {}}
    return build(TableRow, {**_NO_SAMPLE, **lists, "fields": fields, "number": number})


_ABSENT = object()


def at_path(row: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted and indexed path: `a.b`, `items.0`, `items[-1].text`; a column of that
    very name comes first.

    Raises:
        MissingField: there is nothing there; names how far the path leads and what is there.
    """
    if path in row:
        return row[path]
    reached: Any = row
    steps: list[str] = []
    for part in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(reached, Mapping):
            value = reached.get(part, _ABSENT)
            kind = "keys" if steps else "columns"
            there = f"the {kind} {_names(reached)}" if reached else f"no {kind}"
        elif isinstance(reached, (list, tuple)):
            index = int(part) if part.lstrip("-").isdigit() else len(reached)
            value = reached[index] if -len(reached) <= index < len(reached) else _ABSENT
            there = f"{len(reached)} items"
        else:
            value, there = _ABSENT, f"a {type(reached).__name__}"
        if value is _ABSENT:
            before = f"'{'.'.join(steps)}' holds" if steps else "the row has"
            raise MissingField(f"the path '{path}' leads nowhere at '{part}': {before} {there}")
        reached = value
        steps.append(part)
    return reached


def _names(mapping: Mapping[Any, Any]) -> str:
    names = sorted(map(str, mapping))
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def mapped(row: Mapping[str, Any], mapper: Mapper) -> Mapping[str, Any]:
    """The row with the mapper's fields laid over it: every other column still reaches the grader.

    A dict maps a grader's parameter to a path in the row, or to a function of the row; a function
    returns the fields.

    Raises:
        MissingField: a path leads nowhere; names the key, the path and the columns there are.
    """
    if mapper is None:
        return row
    if callable(mapper):
        try:
            made = mapper(row)
        except RMGalleryError:
            raise
        except Exception as error:
            raise MissingField(f"the mapper raised {type(error).__name__}: {error}") from error
        if not isinstance(made, Mapping):
            raise MissingField(
                f"the mapper returned {type(made).__name__}; it returns a dict of fields"
            )
        return {**row, **made}
    over = {}
    for name, path in mapper.items():
        try:
            over[name] = path(row) if callable(path) else at_path(row, str(path))
        except MissingField as error:
            raise MissingField(f"mapper '{name}': {error}") from error
    return {**row, **over}


def checked_mapper(grader: BaseReward, mapper: Mapper) -> Mapper:
    """The mapper; ConfigError where it is none, or names a field the grader does not take."""
    if mapper is not None and not (isinstance(mapper, Mapping) or callable(mapper)):
        raise ConfigError(
            f"{grader.name}: mapper is {mapper!r:.60}; give {{field: path}}, or a function of the row."
        )
    if isinstance(mapper, Mapping) and "*" not in (inputs := grader.inputs):
        check_known(f"field of {grader.name}", mapper, inputs, "mapper: ")
    return mapper


def bound(grader: BaseReward, row: Mapping[str, Any], mapper: Mapper = None) -> dict[str, Any]:
    """Of a row, the fields that the grader asks for.

    Raises:
        MissingField: a required one is absent; names it and the columns there are.
    """
    fields, inputs = without_nan(mapped(row, mapper)), grader.inputs
    for name, required in inputs.items():
        if required and name not in fields:
            raise MissingField(
                f"{grader.name} needs '{name}', and the row has the columns {_names(row)}; say "
                f"where it is with "
                f'mapper={{"{name}": "COLUMN"}}.'
            )
        # else the words "None" and "nan" would be graded
        if required and name in TEXTS and is_absent(fields[name]):
            raise Unscored(
                f"{grader.name} needs '{name}', which is blank in this row.",
                reason="blank",
                cause="data",
            )
    if grader.compares and "responses" in inputs and "responses" in fields:
        fields["responses"] = _responses_compared(grader, fields["responses"])
    if "*" in inputs:
        return {str(name): value for name, value in fields.items()}
    return {
        name: fields[name]
        for name in inputs
        if name in fields and not (name in TEXTS and is_absent(fields[name]))
    }


def _responses_compared(grader: BaseReward, given: Any) -> list[Any]:
    """The responses that are compared.

    Raises:
        DataError: it is no list: the letters of a text would be ranked, or the keys of a dict.
        Unscored: there is none, or one of them is blank.
    """
    given = given.tolist() if hasattr(given, "tolist") else given
    given = [] if is_absent(given) else given
    if not isinstance(given, (list, tuple)):
        raise DataError(
            f"{grader.name} compares 'responses', a list, and the row has a {type(given).__name__}."
        )
    blank = next((n for n, each in enumerate(given, 1) if is_absent(each)), None)
    if blank is not None or not given:
        what = f"response {blank} is blank" if blank else "there is none"
        raise Unscored(
            f"{grader.name} compares 'responses', and {what} in this row.",
            reason="blank",
            cause="data",
        )
    return list(given)


TEXTS = frozenset({"query", "response", "reference_response", "context"})
"""Fields that hold a text, so that None, and the NaN that tables have for it, hold none."""


def fields_of(grader: BaseReward, sample: DataSample) -> dict[str, Any]:
    """What a grader sees of a sample: query, messages (input, steps, answer), context, response(s),
    the tool_calls of steps and answer, reference_response, and of the metadata the fields it asks
    for by their names.
    """
    inputs = grader.inputs
    about = sample.metadata or {}
    answers = [output.answer for output in sample.output]
    texts = [
        answer.text if grader.judged else sample.answer_text(index)
        for index, answer in enumerate(answers)
    ]
    reference = sample.reference()
    sees = "vision" in grader.needs
    if grader.judged and not sees and unseen_in(sample):
        raise Unscored(
            f"{grader.name}: the grader is shown texts, and this sample holds parts that are none; "
            f"take a rubric reward, which "
            "is sent images, or a grader of images.",
            reason=UNSEEN,
            cause="rule",
        )
    # of several outputs the first: a grader of trajectories is asked about one at a time
    way = [
        turn.to_openai()
        for output in sample.output[:1]
        for turn in (*(output.steps or ()), output.answer)
    ]
    known: dict[str, Any] = {
        "query": sample.query_text(),
        "instruction": sample.query_text(),
        "messages": [*(message.to_openai() for message in sample.input), *way],
        "history": [message.to_openai() for message in sample.input[:-1]],
        "response": (answers[0].content if sees else texts[0]) if answers else "",
        "responses": texts,
        "context": sample.input[-1].additional_kwargs.get("context", "") if sample.input else "",
        "tool_calls": [call for turn in way for call in turn.get("tool_calls") or ()] or None,
        **({"reference_response": reference} if reference is not None else {}),
    }
    # metadata may say another context or reference, and no other answer or question
    own = {name: known[name] for name in ("response", "responses", "query")}
    seen = {**known, **about, **own}
    return {name: seen[name] for name in inputs if seen.get(name) is not None}
