"""Result files of other tools give rows with the usual column names, so that everything here reads them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rm_gallery.core.data.load.readers import file_sources
from rm_gallery.core.utils.errors import DataError
from tests.data.loading import answers, load, spoken

HARNESS = {
    "doc_id": 7,
    "doc": {"question": "2+2?"},
    "target": "4",
    "arguments": {"gen_args_0": {"arg_0": "Q: 2+2?\nA:", "arg_1": {"until": ["\n"]}}},
    "resps": [["  4 "]],
    "filtered_resps": ["4"],
    "filter": "strict-match",
    "doc_hash": "x",
    "prompt_hash": "y",
    "target_hash": "z",
    "exact_match": 1.0,
}
OLDER = {**HARNESS, "doc_id": 8, "arguments": [["Q: 2+2?\nA:", {"until": []}]], "filtered_resps": [["4"]]}
SAMPLE = {
    "id": "s1",
    "epoch": 1,
    "input": [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}],
    "target": "4",
    "output": {"model": "m", "choices": [{"message": {"role": "assistant", "content": "It is 4."}}]},
    "scores": {"match": {"value": "C", "answer": "4", "explanation": "fits"}},
}
LOG = {"version": 2, "status": "success", "eval": {"task": "t"}, "samples": [SAMPLE]}


def promptfoo(provider: str, test: int, output: str, prompt: int = 0) -> dict[str, Any]:
    return {
        "testIdx": test,
        "promptIdx": prompt,
        "provider": {"id": f"openai:{provider}", "label": provider},
        "prompt": {"raw": f"say {test}" + " please" * prompt, "label": f"p{prompt}"},
        "vars": {"n": test},
        "response": {"output": output},
        "success": True,
        "score": 1,
        "gradingResult": {"reason": "fine"},
    }


DEEPEVAL = {
    "testCases": [
        {
            "name": "case",
            "input": "2+2?",
            "actualOutput": "4",
            "expectedOutput": "four",
            "success": True,
            "metricsData": [{"name": "Relevancy", "score": 0.9, "reason": "good"}],
        }
    ],
    "metricsScores": [],
}


def written(path: Path, *documents: Any) -> Path:
    path.write_text("\n".join(map(json.dumps, documents)), encoding="utf-8")
    return path


def first(path: Path) -> tuple[str, dict[str, Any]]:
    (source,) = file_sources(path)
    (_, row) = next(source.rows())
    assert isinstance(row, dict)
    return source.understood(), row


@pytest.mark.parametrize(
    ("name", "documents", "tool", "expected"),
    [
        (
            "samples_t.jsonl",
            [HARNESS, OLDER],
            "lm-evaluation-harness samples",
            {"id": 7, "prompt": "Q: 2+2?\nA:", "answer": "4", "reference": "4", "exact_match": 1.0},
        ),
        (
            "samples_t.jsonl",
            [OLDER],
            "lm-evaluation-harness samples",
            {"id": 8, "prompt": "Q: 2+2?\nA:", "answer": "4", "reference": "4"},
        ),
        (
            "log.json",
            [LOG],
            "Inspect log",
            {"id": "s1", "prompt": "2+2?", "answer": "It is 4.", "reference": "4", "score.match": "C"},
        ),
        (
            "results.json",
            [{"results": {"version": 3, "results": [promptfoo("m", 0, "zero"), promptfoo("m", 1, "one")]}}],
            "promptfoo results",
            {"id": "0", "prompt": "say 0", "answer": "zero", "provider": "m", "vars.n": 0, "reason": "fine"},
        ),
        (
            "results.json",
            [{"results": {"results": [promptfoo("m", 0, "zero"), promptfoo("n", 0, "null")]}}],
            "promptfoo results",
            {"id": "0", "prompt": "say 0", "m": "zero", "n": "null", "n.score": 1},
        ),
        (
            "results.json",
            [{"results": {"results": [promptfoo("m", 0, "zero"), promptfoo("m", 0, "Zero.", 1)]}}],
            "promptfoo results",
            {"id": "0", "prompt": "say 0", "m prompt 0": "zero", "m prompt 1": "Zero."},
        ),
        (
            "run.json",
            [DEEPEVAL],
            "DeepEval test run",
            {"id": "case", "prompt": "2+2?", "answer": "4", "reference": "four", "score.Relevancy": 0.9},
        ),
        (
            "run.json",
            [{"test_results": [{"name": "n", "input": "q", "actual_output": "a", "expected_output": "r"}]}],
            "DeepEval test run",
            {"id": "n", "prompt": "q", "answer": "a", "reference": "r"},
        ),
    ],
)
def test_the_tool_is_known_by_its_layout(
    tmp_path: Path, name: str, documents: list[Any], tool: str, expected: dict[str, Any]
) -> None:
    path = written(tmp_path / name, *documents)
    understood, row = first(path)
    assert understood == tool
    assert {key: row[key] for key in expected} == expected


def test_the_loader_makes_samples_of_them(tmp_path: Path) -> None:
    found = load(written(tmp_path / "samples_t.jsonl", HARNESS, OLDER))
    assert [spoken(sample) for sample in found] == [[("user", "Q: 2+2?\nA:")]] * 2
    assert [answers(sample) for sample in found] == [[("4", None)]] * 2
    assert [sample.reference() for sample in found] == ["4", "4"]


def test_an_inspect_archive_is_read_sample_by_sample(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {}}))
        archive.writestr("samples/s1_epoch_1.json", json.dumps(SAMPLE))
        archive.writestr("samples/s2_epoch_1.json", json.dumps({**SAMPLE, "id": "s2"}))
        archive.writestr("samples/s3_epoch_1.json", "{torn")
    (source,) = file_sources(path)
    found = [row for _, row in source.rows()]
    assert (source.count(), source.understood()) == (3, "Inspect log")
    assert [row["id"] for row in found if isinstance(row, dict)] == ["s1", "s2"]
    assert isinstance(found[2], DataError)


def test_rows_of_nobody_stay_as_they_are(tmp_path: Path) -> None:
    row = {"doc": "text", "doc_id": 3, "prompt": "q", "answer": "a"}
    assert first(written(tmp_path / "a.jsonl", row)) == ("JSON lines", row)
    document = {"results": [{"prompt": "q", "answer": "a"}]}
    assert first(written(tmp_path / "a.json", document)) == ("JSON", document)
