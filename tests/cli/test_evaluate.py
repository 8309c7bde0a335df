"""`rm-gallery eval` as people run it: piped, interrupted, continued, and with names that no
terminal should be given.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.cli.rows import best_of_4
from tests.support.children import run_command
from tests.support.command import Done, command
from tests.support.judge_server import JudgeServer, judge_fixture

KEYS = (
    "worth reward judge endpoint benchmark version data rule n n_scored n_unscored n_failed n_stopped "
    "missing score bounds ci95 chance baselines extra by_subset duplicates id_collisions skipped "
    "calls cached usage reasons stopped notes n_clusters detectable lengths suspicion seconds"
).split()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return best_of_4(tmp_path / "data.jsonl", count=40)


server = judge_fixture("first", in_process=True)


def judged(server: JudgeServer, data: Path, *options: str) -> Done:
    endpoint = ["--llm", "judge-1", "--base-url", server.base_url, "--no-cache"]
    return command("eval", "safety_listwise_reward", str(data), *endpoint, "--json", *options)


@pytest.mark.long("several commands")
def test_stdout_holds_the_documented_object_and_nothing_is_left_behind(
    data: Path, tmp_path: Path
) -> None:
    (work := tmp_path / "work").mkdir()
    finished = run_command("eval", "length_baseline", str(data), "--json", cwd=work)
    assert (finished.returncode, list(json.loads(finished.stdout))) == (0, KEYS)
    assert "40/40 done" in finished.stderr, "progress goes to stderr"
    assert list(work.iterdir()) == []


def test_seed_decides_sample_and_the_order_a_judge_sees(server: JudgeServer, data: Path) -> None:
    """A judge that always names the first answer is right exactly where the seed put the right one
    first.
    """
    scores = [json.loads(judged(server, data, "--seed", seed).out)["score"] for seed in "0012"]
    assert scores[0] == scores[1] and len(set(scores)) > 1
    drawn = [
        json.loads(
            command("eval", "length_baseline", str(data), "--limit", "9", "--seed", s, "--json").out
        )["score"]
        for s in "01234"
    ]
    assert len(set(drawn)) > 1


def test_a_deadline_fails_its_sample_and_an_endpoint_that_is_away_stops_the_run(data: Path) -> None:
    with JudgeServer("first", in_process=True, latency=30) as slow:
        late = judged(slow, data, "--deadline", "0.2", "--limit", "2")
    assert late.code == 1 and "2 samples failed: deadline: " in late.err
    llm = json.dumps({"model": "judge-1", "base_url": "http://127.0.0.1:1/v1", "max_attempts": 1})
    away = command(
        "eval",
        "safety_listwise_reward",
        str(data),
        "--param",
        f"llm={llm}",
        "--max-workers",
        "4",
        "--json",
    )
    result = json.loads(away.out)
    assert (
        away.code == 1
        and result["n_stopped"] > 0
        and result["reasons"]["stopped: stopped"]["n"] == result["n_stopped"]
    )
    assert away.err.count("Cannot connect to") == 1 and "samples failed" not in away.err


def test_blame_is_settled_by_control_answers(tmp_path: Path) -> None:
    """A judge that gives no verdict whatever it is shown is asked three times more about each
    answer and once about a neutral one.
    """
    (data := tmp_path / "one.jsonl").write_text(
        json.dumps({"prompt": "q", "chosen": "one", "rejected": "two"}) + "\n"
    )
    own = ("--no-cache", "--param", "repair_attempts=0", "--param", "channel=text", "--json")
    with JudgeServer("fixed:nothing", in_process=True) as mute:
        asked = (
            "eval",
            "base_helpfulness_pointwise",
            str(data),
            "--llm",
            "judge-1",
            "--base-url",
            mute.base_url,
            *own,
        )
        requests = []
        for more in ((), ("--blame", "probe")):
            found = json.loads(command(*asked, *more).out)
            requests.append(found["calls"])
            assert found["missing"] == {"judge": 1} and mute.stats()["requests"] == sum(requests)
            assert found["usage"]["input_tokens"] > 10 * sum(requests[-1:]), (
                "the second look is on the bill"
            )
    assert requests == [2, 2 + 2 * (3 + 1)]
    refused = command(*asked, "--blame", "judge")
    assert refused.code == 2 and "blame is 'judge'; it is 'probe' or 'off'" in refused.err


def test_names_out_of_files_do_not_steer_the_terminal(tmp_path: Path) -> None:
    name = "q\x1b]0;owned\x07\x1b[2J\u202e"
    data = tmp_path / "a.csv"
    data.write_text(f'"{name}",a,b\nQ,one,two\nQ,one\n')
    choose = ["--a", "a", "--b", "b"]
    runs = [
        command("winrate", str(data), "--prompt", "nope", *choose),
        command("winrate", "length_baseline", str(data), "--prompt", name, *choose),
        command(
            "winrate",
            "length_baseline",
            str(data),
            "--prompt",
            name,
            "--on-bad-row",
            "skip",
            *choose,
            "--out",
            str(tmp_path / name),
        ),
        command("report", str(tmp_path / f"no {name}")),
        command("show", name),
    ]
    assert [run.code for run in runs] == [2, 2, 0, 2, 2]
    assert not {"\x1b", "\x07", "\u202e"} & set("".join(run.out + run.err for run in runs))


def test_a_table_has_80_columns_whatever_the_names(tmp_path: Path) -> None:
    names = [
        "[/foo]",
        "[bold]x",
        "a\x1b[2Jb",
        "\u4e2d\u6587" * 30,
        "very long " * 20,
        "x" * 100_000,
    ]
    row = {"chosen": "a", "rejected": "bb"}
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        "".join(
            json.dumps({**row, "prompt": f"q{k}", "subset": n}) + "\n" for k, n in enumerate(names)
        )
    )
    done = command("eval", "length_baseline", str(path))
    assert (
        done.code == 0 and "[/foo]" in done.out and "[bold]x" in done.out and "\x1b" not in done.out
    )
    assert max(cell_len(line) for line in done.out.splitlines()) <= 80
    assert len(done.out) < 5_000, "a name beyond measure is cut"
