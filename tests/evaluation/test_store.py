"""What a store keeps, in SQLite and in PostgreSQL: versions, the one that is served, and nothing of
a change that did not end or was killed.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rm_gallery import ConfigError
from rm_gallery.evaluation.bundle import Bundle, DamagedBundle, bundle_folders
from rm_gallery.evaluation.store import EvaluatorExists, Store, StoreError, UnknownEvaluator
from tests.support.children import run_python


def bundle(text: str = "1") -> Bundle:
    return bundle_folders(code=f"def evaluate(messages, **kwargs):\n    return {text}\n")


def test_versions_are_kept_and_one_is_served(store_url: str) -> None:
    with Store.open(store_url) as store:
        first = store.save("relevance", bundle("1"), display_name="相关性", description="how near")
        assert (first.version, first.is_current, first.name) == (
            1,
            True,
            "accounts/local/evaluators/relevance",
        )
        assert (first.display_name, first.description, first.metrics) == (
            "相关性",
            "how near",
            ("evaluator",),
        )
        with pytest.raises(EvaluatorExists, match="'relevance' .version 1.*--force"):
            store.save("relevance", bundle("2"))
        second = store.save("relevance", bundle("2"), force=True)
        assert second.version == 2 and second.hash != first.hash
        assert store.current("relevance").bundle == bundle("2")
        assert store.rollback("relevance").version == 1
        assert store.current("relevance").bundle == bundle("1")
        assert [(each.version, each.is_current) for each in store.versions("relevance")] == [
            (2, False),
            (1, True),
        ]
        assert store.save("relevance", bundle("3"), force=True).version == 3
        assert store.rollback("relevance", 2).hash == second.hash
        assert store.current("relevance", version=3).bundle == bundle("3")
        store.save("another", bundle())
        assert [each.id for each in store.list()] == ["another", "relevance"]
        assert store.delete("relevance") == 3
        assert [each.id for each in store.list()] == ["another"]


def test_a_rollback_goes_back_one_version_at_a_time(store_url: str) -> None:
    with Store.open(store_url) as store:
        for text in "123":
            store.save("a", bundle(text), force=True)
        assert [store.rollback("a").version for _ in range(2)] == [2, 1]
        with pytest.raises(UnknownEvaluator, match="no version before"):
            store.rollback("a")
        store.rollback("a", 3)
        with pytest.raises(EvaluatorExists, match="version 3"):
            store.check_free("a")
        store.check_free("a", force=True)


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE rm_gallery_store SET format = format + 1")
        connection.commit()
    with pytest.raises(ConfigError, match="made by a newer version of rm_gallery; update this one"):
        Store.open(path)


def test_what_is_not_there_is_named(store_url: str) -> None:
    with Store.open(store_url) as store:
        with pytest.raises(UnknownEvaluator, match="no evaluator 'x'.*none yet"):
            store.current("x")
        store.save("a", bundle())
        for act in (store.current, store.versions, store.rollback, store.delete):
            with pytest.raises(UnknownEvaluator, match="no evaluator 'x'.*there are: a"):
                act("x")
        for number in range(20):
            store.save(f"b{number}", bundle())
        with pytest.raises(UnknownEvaluator, match="there are: a, b0, b1, b10, .*, b7, b8$"):
            store.current("x")
        with pytest.raises(UnknownEvaluator, match="no version before the current one .1."):
            store.rollback("a")
        with pytest.raises(UnknownEvaluator, match="no version 7; it has 1"):
            store.rollback("a", 7)
        with pytest.raises(UnknownEvaluator, match="no version 2 of evaluator 'a'"):
            store.current("a", version=2)


def test_two_stores_on_one_database_see_each_other(store_url: str) -> None:
    with Store.open(store_url) as here, Store.open(store_url) as there:
        before = there.revision()
        here.save("a", bundle("1"))
        assert there.revision() > before
        assert there.current("a").version == 1
        there.save("a", bundle("2"), force=True)
        assert here.current("a").bundle == bundle("2")
        seen = here.revision()
        assert (here.revision(), there.revision()) == (seen, seen)
        there.rollback("a")
        assert here.revision() > seen and here.current("a").version == 1


@pytest.mark.parametrize("evaluator_id", ["", "-a", "a/b", "../a", "a b", "é", "a" * 64, None, 3])
def test_an_id_is_part_of_an_address(tmp_path: Path, evaluator_id: str) -> None:
    with (
        Store.open(tmp_path / "s.db") as store,
        pytest.raises(ConfigError, match="evaluator_id is"),
    ):
        store.save(evaluator_id, bundle())


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 6000])
def test_texts_that_a_database_refuses_are_refused_before(store_url: str, text: str) -> None:
    with Store.open(store_url) as store:
        with pytest.raises(ConfigError, match="description"):
            store.save("a", bundle(), description=text)
        assert store.list() == []


def test_damage_is_found_and_never_run(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        store.save("a", bundle("1"))
        other = bundle("2").pack()
        for data in (other, b"", b"x" * 100, store.current("a").bundle.pack()[:-9]):
            with sqlite3.connect(tmp_path / "s.db") as connection:
                connection.execute("UPDATE rm_gallery_versions SET files = ?", (data,))
            connection.close()
            with pytest.raises(DamagedBundle, match="deploy them again"):
                store.current("a")


@pytest.mark.parametrize(
    "change", ["facts = '{'", "facts = '[]'", "facts = '{\"metrics\": 3}'", "files = 'text'"]
)
def test_one_damaged_evaluator_hides_no_other(tmp_path: Path, change: str) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for name in ("a", "b"):
            store.save(name, bundle())
        with sqlite3.connect(tmp_path / "s.db") as connection:
            connection.execute(f"UPDATE rm_gallery_versions SET {change} WHERE id = 'a'")
        connection.close()
        assert [each.id for each in store.list()][-1] == "b"
        with pytest.raises(DamagedBundle, match="'a', version 1, is damaged; deploy it again"):
            store.current("a")
        assert store.current("b").id == "b"


@pytest.mark.parametrize(("url", "message"), [
    ("mysql://root:geheim@host/x", "PostgreSQL"),
    ("sqlite://", "in memory"),
    ("postgresql://user:geheim@127.0.0.1:1/x", "cannot be opened"),
    ("://", "no database URL"),
    ("/proc/none/store.db", "cannot be opened"),
])  # fmt: skip
def test_a_store_that_cannot_be_opened_says_why_and_shows_no_password(
    url: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Store.open(url)
    assert "geheim" not in str(caught.value)


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match="cannot be opened: file is not a database"):
        Store.open(tmp_path / "s.db")
    assert (tmp_path / "s.db").read_bytes().startswith(b"not a database")


def test_the_variable_names_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_GALLERY_STORE", str(tmp_path / "here" / "s.db"))
    with Store.open() as store:
        store.save("a", bundle())
    assert [(tmp_path / "here" / name).stat().st_mode & 0o777 for name in (".", "s.db")] == [
        0o700,
        0o600,
    ]
    monkeypatch.delenv("RM_GALLERY_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Store.open() as store:
        assert store.list() == []
    assert (tmp_path / "data" / "rm-gallery" / "evaluators.db").exists()


def test_a_database_that_goes_away_is_one_error(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        (tmp_path / "s.db").write_bytes(b"gone" * 1000)
        with pytest.raises(StoreError, match="nothing was changed"):
            store.list()


def run(url: str, what: str, folder: Path) -> Any:
    done = run_python("-m", "tests.evaluation.store_processes", url, what, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.long("several processes")
def test_a_deployment_killed_at_any_step_leaves_the_old_version(
    store_url: str, tmp_path: Path
) -> None:
    steps = run(store_url, "interrupted", tmp_path)
    assert len(steps) > 8 and [step["code"] for step in steps] == [-9] * (len(steps) - 1) + [0]
    for step in steps:
        (version, digest, versions), after = step["before"], step["after"]
        new = [version + 1, after[1], [version + 1, *versions]]
        assert after in ([version, digest, versions], new), step
    kept = [step["after"] == step["before"] for step in steps]
    # all of them until the transaction is committed, none after it
    assert kept == sorted(kept, reverse=True) and kept.count(True) >= 8


@pytest.mark.long("several processes")
def test_processes_that_deploy_at_once_lose_nothing(store_url: str, tmp_path: Path) -> None:
    found = run(store_url, "together", tmp_path)
    assert found == {"codes": [0] * 6, "versions": list(range(24, 0, -1)), "revision": 24}
