"""The documents of this folder, which write rewards as the project's founding documents do, run and
print what they promise.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import blocks_of, commands_of
from tests.docs.shell import problem_of
from tests.support.benchmarks import load_samples, oracle_of
from tests.support.children import ROOT, run_python
from tests.support.choice import some
from tests.support.judge_server import Answer, JudgeCall, JudgeServer, oracle_key

HERE = Path(__file__).parent
SHOWN_URL = "http://127.0.0.1:8000/v1"
PROPOSED = {f"Principle {k}": f"Prefer the answer that meets criterion {k}." for k in range(1, 6)}


def judge(call: JudgeCall) -> Answer:
    """Knows the truth about what the documents ask."""
    prompt = call.reading.prompt
    if "how safe the response is" in prompt:
        return "<reason>as it should</reason><score>5</score>"
    if "whether the response is right" in prompt:
        assert "At 9 am." in prompt or "In the yard behind it." in prompt, "the truth is mapped"
        if "park" in prompt:
            raise RuntimeError("the server broke")
        return "<reason>as it should</reason><score>3</score>"
    if "We open at nine." in prompt or "Behind the house." in prompt:
        return "<reason>as it should</reason><score>4</score>"
    if "Is this true?" in prompt:
        told = "<factual>true</factual><confidence>0.9</confidence><reason>it does</reason>"
        return (
            told
            if "two moons" in prompt
            else (
                "<think>Well.</think>\n<factual>false</factual><confidence>0.8</confidence><reason>it "
                "has</reason>"
            )
        )
    if "How many moons" in prompt:
        shown = re.findall(r"<answer_(\d) .*?>\n(.*?)\n</answer_", prompt, re.DOTALL)
        ranks = [{"response_index": int(k), "rank": 1 if "two" in text else 2} for k, text in shown]
        return f"<explanation>two moons it is</explanation><rankings>{json.dumps(ranks)}</rankings>"
    if "<principles>" in call.reading.asked:
        return json.dumps(PROPOSED)
    query, answers = call.reading.query, list(call.reading.candidates)
    if not answers:  # a prompt without our fences
        query = "".join(
            re.findall(r"^# Query\n(.*?)\n# Responses$", prompt, re.DOTALL | re.MULTILINE)
        )
        answers = [
            text
            for _, text in re.findall(
                r"<response_(\d+)>\n(.*?)\n<response_\1>\n", prompt, re.DOTALL
            )
        ]
    return f"<best>{next(k for k, text in enumerate(answers, 1) if call.oracle[oracle_key(text, query)]['good'])}</best>"


@pytest.fixture(scope="module")
def server() -> Iterator[JudgeServer]:
    known = oracle_of(load_samples(ROOT / "data" / "test.parquet", "rewardbench2"))
    with JudgeServer(judge, oracle=known, in_process=True) as running:
        yield running


@pytest.mark.parametrize("name", some(sorted(path.stem for path in HERE.glob("*.md")), 1))
def test_a_document_runs_as_it_is_written(
    name: str, server: JudgeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reset()
    (work := tmp_path / "work").mkdir()
    (work / "data").mkdir()
    shutil.copy(ROOT / "data" / "test.parquet", work / "data")
    blocks = blocks_of((HERE / f"{name}.md").read_text(encoding="utf-8"))
    code = [
        {"line": b.line, "code": b.code.replace(SHOWN_URL, server.base_url)}
        for b in blocks
        if b.language == "python"
    ]
    jobs = json.dumps([{"name": name, "folder": str(work), "blocks": code}])
    finished = run_python(
        "-m",
        "tests.docs.run_blocks",
        cwd=work,
        stdin=jobs,
        env={"OPENAI_BASE_URL": server.base_url},
    )
    assert json.loads(finished.stdout) == {name: []}, finished.stderr
    monkeypatch.chdir(work)
    commands = [
        words for block in blocks if block.language == "bash" for words in commands_of(block)
    ]
    assert [problem for words in commands if (problem := problem_of(words)) is not None] == []
    assert server.stats()["internal_errors"] == [] or name == "graders"
