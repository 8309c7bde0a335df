"""The records everything else is about, a sample with its input, its outputs and what rewards said
about them; and how they are written: plain rows, parquet and JSON lines and back, lossless, whole
or not at all.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, overload

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rm_gallery.core.model.message import ChatMessage, MessageRole
from rm_gallery.core.text.canonical import OPENED, opened, opens_thought, turn_text
from rm_gallery.core.utils.errors import Cause, DataError, Unscored
from rm_gallery.core.utils.file import written_whole
from rm_gallery.core.utils.identity import digest, hashed, is_unicode

FiniteFloat = Annotated[float, Field(allow_inf_nan=False)]
IssueStatus = Literal["unscored", "failed"]


class RewardDimension(BaseModel):
    """A named aspect with the judge's reason, where it gave one."""

    name: str
    reason: str | None = None
    source: str | None = None
    """Key of the reward that said it, filled in when the result is written to the output."""


class RewardDimensionWithScore(RewardDimension):
    """One output's score on one dimension; finite, in the range its reward declares."""

    score: FiniteFloat


class RewardDimensionWithRank(RewardDimension):
    """Scores of all outputs of a sample, by position. Despite the name, higher is better: these are
    scores, not places.
    """

    rank: list[FiniteFloat] = Field(default_factory=list)

    def __getitem__(self, index: int) -> RewardDimensionWithScore:
        return RewardDimensionWithScore(name=self.name, reason=self.reason, score=self.rank[index])


class RewardIssue(BaseModel):
    """Why a reward gave no score: `unscored` (nothing to judge by) or `failed` (the judging broke)."""

    name: str
    """Key of the reward."""
    status: IssueStatus
    reason: str
    """A short code, such as parse, no_reference, deadline, rate_limit, fatal, truncated,
    content_filter, error.
    """
    message: str = ""
    cause: Cause | None = None
    """Who brought it about: endpoint, judge, answer, data, rule or caller; None in records of
    earlier versions.
    """


class Reward(BaseModel):
    """All scores of one output.

    `bool(reward)` is False until there is a score. `score` is the mean of `details`, None without
    any: an output nobody judged is never a 0. `issues` holds the reasons of rewards that gave no
    score.
    """

    score: FiniteFloat | None = None
    details: list[RewardDimensionWithScore] = Field(default_factory=list)
    issues: list[RewardIssue] = Field(default_factory=list)
    extra_data: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By reward key, what else it found out (parsed fields, orders, flip rate)."""
    sources: dict[str, str] = Field(default_factory=dict)
    """By reward key, the hash of the settings it judged with. A key is the reward's name, and
    `name#hash` where a reward of that name with other settings has judged this output before."""

    def __bool__(self) -> bool:
        return bool(self.details)

    def _repr_html_(self) -> str:
        head = f"<p>score {cell(self.score) or 'none'}</p>"
        return head + table(("", "score", "reason"), _said(self))


REFERENCE_KEYS = ("reference", "ground_truth")


class Step(ChatMessage):
    """An answer, or one step on the way to it, with its labels and its reward.

    `label` holds what is known about the truth: `preference` (chosen or rejected), `reference`,
    `correctness`, …
    """

    label: dict[str, Any] | None = Field(default_factory=dict)
    reward: Reward = Field(default_factory=Reward)

    @property
    def text(self) -> str:
        """What the turn says, without the tokens that end it, a BOM and Windows line ends;
        `content` is as it was written.
        """
        return turn_text(super().text)

    @property
    def written(self) -> str:
        """The text of `content` as it was written: what a trained model is shown."""
        return super().text


class DataOutput(BaseModel):
    """One response: the final answer and, where the benchmark has them, the steps that led to it."""

    model_config = ConfigDict(extra="forbid")

    answer: Step
    steps: list[Step] | None = None

    @model_validator(mode="after")
    def _of_the_policy(self) -> DataOutput:
        """An answer or step that does not say who speaks is the policy's own, and no user's."""
        for step in (self.answer, *(self.steps or ())):
            if "role" not in step.model_fields_set:
                step.role = MessageRole.ASSISTANT
        return self

    @property
    def turns(self) -> list[Step]:
        """The policy's own turns in order: what a stepwise reward judges.

        Steps of the policy alone are parts of the answer, as of a solution step by step, and are its
        turns. Where it calls tools, or others speak between its steps, the output is a trajectory: its
        turns are the policy's steps and the answer. An output without steps has one turn, the answer.
        """
        spoken = [*(self.steps or ()), self.answer]
        return [spoken[place] for place in self.turn_places]

    @property
    def turn_places(self) -> list[int]:
        """The places of `turns` among the steps and the answer, which comes after them."""
        steps = self.steps or ()
        if steps and not self.is_trajectory:
            return list(range(len(steps)))
        own = [at for at, step in enumerate(steps) if step.role is MessageRole.ASSISTANT]
        return [*own, len(steps)]

    @property
    def is_trajectory(self) -> bool:
        """Whether tools are called in its steps, or several speak there; else they are parts of the
        answer, whoever is said to speak them. Turns of a conversation are always a trajectory.
        """
        steps = self.steps or ()
        if steps and CONVERSATION in self.answer.additional_kwargs:
            return True
        roles = {step.role for step in steps}
        return len(roles) > 1 or not roles <= _WRITES or any(step.tool_calls for step in steps)


CONVERSATION = "(conversation)"
"""Key of an answer's `additional_kwargs`: its steps are turns of a conversation, which only says so
where roles and tool calls do not.
"""
TURN = "(turn)"
"""Key of an answer's `additional_kwargs`: the number of the one turn that step rewards judge."""
_WRITES = frozenset((MessageRole.ASSISTANT, MessageRole.USER))
"""Who may be said to write the steps of a solution: `Step(content=…)` is a user's by default."""


_TRUTH = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def no_reference(reward: str) -> Unscored:
    """What a reward says of a sample without the reference that it needs, with where one is named."""
    return Unscored(
        f"{reward} needs a reference: set answer.label['reference'], or metadata 'reference' or "
        "'ground_truth'; of a table or data set, name the column with --reference (reference=).",
        reason="no_reference",
    )


class DataSample(BaseModel):
    """A conversation and the responses to be judged."""

    model_config = ConfigDict(extra="forbid")

    unique_id: str = ""
    """Given identity; without one `sample_id` is a hash of the content."""
    input: list[ChatMessage] = Field(default_factory=list)
    output: list[DataOutput] = Field(default_factory=list)
    task_category: str | None = None
    source: str | None = None
    created_at: datetime | None = None
    metadata: dict[str, Any] | None = None

    @property
    def sample_id(self) -> str:
        """The given id, else the content hash: stable over runs, orders and processes."""
        return self.unique_id or self.content_hash()

    @property
    def sample_key(self) -> str:
        """The id and a hash of everything a reward may read: what makes two samples the same
        question.

        Texts, roles, tool calls, names, labels, steps, metadata, category and source count; rewards
        and `created_at` do not. Raises ConfigError for a value whose content cannot be told, such
        as a function in the metadata.
        """
        body = {
            "input": [_message_parts(message) for message in self.input],
            "output": [
                [
                    _message_parts(output.answer),
                    *([_message_parts(step) for step in output.steps] if output.steps else ()),
                ]
                for output in self.output
            ],
            "metadata": self._keyed_metadata() or 0,
            "task_category": self.task_category or 0,
            "source": self.source or 0,
        }
        return f"{self.sample_id}:{digest(body, f'sample {self.unique_id[:80]!r}')}"

    def _keyed_metadata(self) -> dict[str, Any] | None:
        """The metadata as the key has them."""
        return self.metadata

    def content_hash(self) -> str:
        """Sha256 (first 32 hex digits) of input, answers and steps; labels, rewards and metadata do
        not count.
        """
        parts = [_spoken(message) for message in self.input]
        for output in self.output:
            parts += "", _spoken(output.answer)  # a turn of the input is not an answer
            if output.steps:
                parts += [_spoken(step) for step in output.steps]
        # lengths keep texts apart whatever they contain; lone surrogates are no valid Unicode, and
        # still content
        text = "".join([f"{len(part)}:{part}" for part in parts])
        return hashed(hashlib.sha256(), text.encode("utf-8", "surrogatepass"))[:32]

    def reference(self, index: int = 0) -> Any:
        """The reference answer for output `index`: its label's `reference`, else the metadata's,
        else None.
        """
        label = self.output[index].answer.label if index < len(self.output) else None
        if label and not is_absent(given := label.get("reference")):
            return given
        for key in REFERENCE_KEYS:
            if self.metadata and not is_absent(given := self.metadata.get(key)):
                return given
        return None

    def thought_opened(self, index: int = 0) -> bool:
        """Whether the prompt opened the thought of output `index`: `thought_opened` of its answer,
        its label or the metadata says so, else the end of a prompt that a chat template wrote.

        Never where the thought came apart from the answer, as its `reasoning_content`.
        """
        answer = self.output[index].answer
        if answer.reasoning_content:
            return False
        for known in (answer.additional_kwargs, answer.label, self.metadata):
            if known and not is_absent(given := known.get(OPENED)):
                word = str(given).strip().lower()
                if word not in _TRUTH:
                    raise DataError(f"{OPENED} is {given!r}; give true or false.")
                return _TRUTH[word]
        if not self.input:
            return False
        last = self.input[-1]
        return opens_thought(last.text, prefill=last.role.value == "assistant")

    def answer_text(self, index: int = 0) -> str:
        """The text of output `index` as readers of answers are given it: with the opening tag of a
        thought that the prompt opened.
        """
        text = self.output[index].answer.text
        return opened(text) if self.thought_opened(index) else text

    def query_text(self) -> str:
        """Text of the last user turn, or of the last turn when no user speaks; empty without input."""
        for message in reversed(self.input):
            if message.role.value == "user":
                return message.text
        return self.input[-1].text if self.input else ""

    def _repr_html_(self) -> str:
        spoken = "".join(
            f"<p><b>{cell(turn.role.value)}</b> {cell(turn.text)}</p>" for turn in self.input
        )
        rows = []
        for place, output in enumerate(self.output, 1):
            answer, reward = output.answer, output.answer.reward
            label = ", ".join(f"{name}: {value}" for name, value in (answer.label or {}).items())
            said = "\n".join(
                f"{name} {cell(score)}" + (f": {reason}" if reason else "")
                for name, score, reason in _said(reward)
            )
            rows.append((place, answer.text, label, reward.score, said))
        answers = table(("", "answer", "label", "score", "reason"), rows)
        return f"<p><code>{cell(self.sample_id)}</code></p>{spoken}{answers}"


class TableSample(DataSample):
    """A row of a table: where it stands is apart from the metadata, which are its other columns."""

    place: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """`row`, its place among the rows read, from 0; its `number` in the file, as messages and ids
    have it; `columns`, which of the named columns hold its answers; its `cluster`."""
    names: tuple[str, ...] = Field(default=(), exclude=True)
    """Of each answer the column that holds it."""

    def _keyed_metadata(self) -> dict[str, Any]:
        """The place and the reference, as earlier runs have it; other columns below a key of their
        own.
        """
        others = dict(self.metadata or {})
        keyed = {**self.place}
        if "reference" in others:
            keyed["reference"] = others.pop("reference")
        return {**keyed, "others": others} if others else keyed


def is_absent(value: object) -> bool:
    """Whether a cell holds no value: None, NaN of any make, pandas' NA and NaT. A text is a value,
    also "nan".
    """
    if value is None:
        return True
    if isinstance(value, str | list | dict | bool | int):
        return False
    if isinstance(value, float | Real | Decimal | datetime):
        return bool(value != value)
    return type(value).__name__ == "NAType"


def blank_is_none(cell: Any) -> Any:
    """The cell, or None for one that holds nothing but white space or NaN."""
    blank = is_absent(cell) or (isinstance(cell, str) and not cell.strip())
    return None if blank else cell


ALWAYS_VALUES = frozenset((str, int, bool, list, dict, type(None)))
"""Types that never hold NaN, so that rows of these alone need not be looked through."""


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose absent cells are None."""
    return {name: None if is_absent(value) else value for name, value in row.items()}


def preference_of(output: DataOutput) -> str | None:
    """`chosen`, `rejected`, or None when the output carries no preference label."""
    value = (output.answer.label or {}).get("preference")
    return value if value in ("chosen", "rejected") else None


_DETAILS = ("label", "name", "tool_calls", "tool_call_id", "reasoning_content", "additional_kwargs")


def _message_parts(message: ChatMessage) -> list[Any]:
    """The parts of a message that a reward may read: role, content, and the details it has."""
    fields = message.__dict__
    parts = [fields["role"], fields["content"]]
    if type(message) in (Step, ChatMessage):
        for name in _DETAILS:
            value = fields.get(name)
            if value:
                parts += (name, value)
    else:
        parts.append({name: value for name, value in fields.items() if name != "reward"})
    return parts


def _spoken(message: ChatMessage) -> str:
    """A message as one text; any difference between messages shows in it."""
    content = message.content
    if isinstance(content, str) and not (
        message.tool_calls or message.reasoning_content or message.tool_call_id
    ):
        return f"{message.role.value}\x1f{message.name or ''}\x1f{content}"
    body = {**message.to_openai(), "reasoning_content": message.reasoning_content}
    return json.dumps(body, sort_keys=True, default=str)


class BaseDataSet(BaseModel):
    """A named list of samples with metadata about their origin."""

    name: str
    datasamples: list[DataSample] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.datasamples)

    @overload
    def __getitem__(self, index: int) -> DataSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[DataSample]: ...
    def __getitem__(self, index: int | slice) -> DataSample | list[DataSample]:
        return self.datasamples[index]

    def __iter__(self) -> Iterator[DataSample]:  # type: ignore[override]  # a data set iterates over samples, not fields
        return iter(self.datasamples)

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = []
        for sample in self.datasamples[:_MOST_ROWS]:
            answers = [output.answer for output in sample.output]
            first = (answers[0].text, answers[0].reward.score) if answers else (None, None)
            rows.append((sample.sample_id, sample.query_text(), len(answers), *first))
        more = len(self.datasamples) - len(rows)
        tail = f"<p>… and {more:,} more</p>" if more > 0 else ""
        head = f"<p><b>{cell(self.name)}</b>: {len(self.datasamples):,} samples</p>"
        return head + table(("id", "prompt", "answers", "first answer", "score"), rows) + tail


_LONGEST = 600
_MOST_ROWS = 20


def cell(value: object) -> str:
    """A value as the content of a table's cell: escaped, line ends kept, long texts cut; nothing
    for None.
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value).encode("utf-8", "replace").decode()
    shown = html.escape(text[:_LONGEST]).replace("\n", "<br/>")
    return f"{shown} <em>… {len(text):,} characters</em>" if len(text) > _LONGEST else shown


def table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with these columns."""
    head = "".join(f"<th>{cell(name)}</th>" for name in names)
    style = ' style="text-align:left;vertical-align:top"'
    body = "".join(
        "<tr>" + "".join(f"<td{style}>{cell(value)}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _said(reward: Reward) -> list[tuple[str, float | str, str | None]]:
    """Name, score (or status) and reason of each dimension, then of each issue."""
    issues = [(i.name, i.status, f"{i.reason} {i.message}".rstrip()) for i in reward.issues]
    return [*((d.name, d.score, d.reason) for d in reward.details), *issues]


RECORD_FIELDS = (
    "unique_id",
    "input",
    "output",
    "task_category",
    "source",
    "created_at",
    "metadata",
)
NESTED_FIELDS = ("input", "output", "metadata")

_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


def to_record(sample: DataSample) -> dict[str, Any]:
    """The sample as a dict of JSON values (`created_at` as ISO text); `from_record` gives back an
    equal sample.

    Raises DataError naming the sample and the field for a value that JSON cannot hold exactly: NaN
    and infinities, integers beyond 64 bits, tuples, dates in metadata, keys that are no text, half
    surrogate pairs.
    """
    record = sample.model_dump()
    created = record["created_at"]
    record["created_at"] = None if created is None else created.isoformat()
    fault = _fault(record, "")
    if fault is not None:
        name = ascii(sample.unique_id[:80]) if sample.unique_id else "without id"
        raise DataError(f"sample {name}, {fault}; it cannot be written without loss")
    return record


def is_record(row: Mapping[str, Any]) -> bool:
    """Whether a row was made by `to_record`, nested parts as values or as JSON text."""
    return (
        "output" in row
        and "input" in row
        and all(key in RECORD_FIELDS for key in row)
        and isinstance(_parsed(row["input"]), list)
        and isinstance(_parsed(row["output"]), list)
    )


def from_record(row: Mapping[str, Any]) -> DataSample:
    """The sample a record was made from; nested parts may be JSON text. Raises DataError for
    anything else.
    """
    record = {key: _parsed(value) if key in NESTED_FIELDS else value for key, value in row.items()}
    try:
        return DataSample.model_validate(record)
    except ValidationError as error:
        raise DataError(f"not a sample written by this library, at {misfit(error)}") from error


def misfit(error: ValidationError, *within: str) -> str:
    """The place of the first value that does not fit, and why."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join([*within, *map(str, first['loc'])])}: {first['msg']}"


def _parsed(value: Any) -> Any:
    if not isinstance(value, (str, bytes)):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _fault(value: Any, path: str) -> str | None:
    """The place of a value that JSON cannot hold, and why; None without one."""
    why = ""
    if isinstance(value, str):
        if not (value.isascii() or is_unicode(value)):
            why = "half a surrogate pair is no valid Unicode text"
    elif isinstance(value, int):
        why = "" if _LOWEST <= value <= _HIGHEST else "an integer beyond 64 bits"
    elif isinstance(value, float):
        why = "" if math.isfinite(value) else f"{value} is no JSON number"
    elif isinstance(value, list):
        places = ((f"{path}[{at}]", item) for at, item in enumerate(value))
        return next((fault for at, item in places if (fault := _fault(item, at))), None)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{path}: a key of type {type(key).__name__}"
            if fault := _fault(item, f"{path}.{key}" if path else key):
                return fault
            if not is_unicode(key):
                return f"{path}: a key with half a surrogate pair"
    elif value is not None:
        why = f"a value of type {type(value).__name__}"
    return f"{path}: {why}" if why else None


_FOOTER_KEY = b"rm_gallery.dataset"
_GROUP_ROWS = 2_000


def to_parquet(dataset: BaseDataSet, path: str | Path) -> Path:
    """Write the data set: one row per sample, nested parts as JSON text, name and metadata in the
    footer.

    Columns: unique_id, input, output, task_category, source, created_at, metadata (all text).
    Raises DataError for a value that cannot be written without loss, and when the file cannot be
    written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {"name": dataset.name, "metadata": dataset.metadata}
    if _fault(about, "") is not None:
        raise DataError(
            "the data set's metadata holds values that JSON cannot hold exactly (NaN, dates, "
            "tuples, …)"
        )
    schema = pa.schema(
        [(name, pa.string()) for name in RECORD_FIELDS], metadata={_FOOTER_KEY: orjson.dumps(about)}
    )
    records = (_flat(sample) for sample in dataset.datasamples)
    with written_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while rows := list(islice(records, _GROUP_ROWS)):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    return Path(path)


def from_parquet(path: str | Path) -> BaseDataSet:
    """Read what `to_parquet` wrote. Raises DataError for any other file; `create_loader` reads
    those.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            footer = (file.schema_arrow.metadata or {}).get(_FOOTER_KEY)
            if footer is None:
                raise DataError(
                    f"{path}: not a data set written by to_parquet; read it with create_loader"
                )
            samples = [
                from_record(row)
                for batch in file.iter_batches(_GROUP_ROWS)
                for row in batch.to_pylist()
            ]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error
    about = orjson.loads(footer)
    return BaseDataSet(name=about["name"], datasamples=samples, metadata=about["metadata"])


def to_jsonl(dataset: BaseDataSet, path: str | Path) -> Path:
    """Write the samples as JSON lines, one object each; the data set's name and metadata are not
    part of them. `create_loader` reads them back as they were.

    Raises DataError as `to_parquet` does.
    """
    with written_whole(path) as file:
        for sample in dataset.datasamples:
            file.write(orjson.dumps(to_record(sample), option=orjson.OPT_APPEND_NEWLINE))
    return Path(path)


def _flat(sample: DataSample) -> dict[str, Any]:
    record = to_record(sample)
    for key in NESTED_FIELDS:
        if record[key] is not None:
            record[key] = orjson.dumps(record[key]).decode()
    return record
