"""Samples, data sets and results as a notebook shows them: small tables, every text escaped and cut to what one reads."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rm_gallery.core.data.schema import BaseDataSet, DataSample, Reward

_LONGEST = 600
_MOST_ROWS = 20


def cell(value: object) -> str:
    """A value as the content of a table's cell: escaped, line ends kept, long texts cut; nothing for None."""
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
    body = "".join("<tr>" + "".join(f"<td{style}>{cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def sample_html(sample: DataSample) -> str:
    """The conversation, and every answer with its label, score and reasons."""
    spoken = "".join(f"<p><b>{cell(turn.role.value)}</b> {cell(turn.text)}</p>" for turn in sample.input)
    rows = []
    for place, output in enumerate(sample.output, 1):
        label = ", ".join(f"{name}: {value}" for name, value in (output.answer.label or {}).items())
        reward = output.answer.reward
        rows.append((place, output.answer.text, label, reward.score, said(reward)))
    return f"<p><code>{cell(sample.sample_id)}</code></p>{spoken}{table(('', 'answer', 'label', 'score', 'reason'), rows)}"


def reward_html(reward: Reward) -> str:
    """The score, each dimension with its reason, and why there is no score."""
    rows: list[tuple[str, object, str | None]] = [(d.name, d.score, d.reason) for d in reward.details]
    rows += [(issue.name, issue.status, f"{issue.reason} {issue.message}".rstrip()) for issue in reward.issues]
    return f"<p>score {cell(reward.score) or 'none'}</p>" + table(("", "score", "reason"), rows)


def said(reward: Reward) -> str:
    """The scores and reasons of a reward, and why there is none, a line each."""
    shown = [f"{d.name} {d.score:.4g}" + (f": {d.reason}" if d.reason else "") for d in reward.details]
    shown += [f"{issue.name} {issue.status}: {issue.reason} {issue.message}".rstrip() for issue in reward.issues]
    return "\n".join(shown)


def dataset_html(dataset: BaseDataSet) -> str:
    """Name, number of samples and the first of them."""
    rows = [
        (sample.sample_id, sample.query_text(), len(sample.output), *_best(sample))
        for sample in dataset.datasamples[:_MOST_ROWS]
    ]
    more = len(dataset.datasamples) - len(rows)
    tail = f"<p>… and {more:,} more</p>" if more > 0 else ""
    head = f"<p><b>{cell(dataset.name)}</b>: {len(dataset.datasamples):,} samples</p>"
    return head + table(("id", "prompt", "answers", "first answer", "score"), rows) + tail


def _best(sample: DataSample) -> tuple[str | None, float | None]:
    if not sample.output:
        return None, None
    answer = sample.output[0].answer
    return answer.text, answer.reward.score
