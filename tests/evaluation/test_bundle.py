"""What of a folder becomes part of an evaluator, what never does, and what is refused before
anything is stored.
"""

from __future__ import annotations

import os
import re
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rm_gallery import ConfigError
from rm_gallery.evaluation import bundle as bundles
from rm_gallery.evaluation.bundle import Bundle, bundle_folders, is_inside
from tests.golden.golden import Line, check

MakeFolder = Callable[..., Path]
PLAIN = "def evaluate(messages, **kwargs):\n    return 1.0\n"


def test_files_below_a_folder_are_in_it_and_secrets_are_not(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    kept = {
        "helper.py": "X = 1\n", "data/words.txt": "a\r\nb\n", "词.txt": "词", "tokenizer.json": "{}", "secrets.py": "X = 1\n",
    }  # fmt: skip
    left = (
        ".env prod.env server.pem id.key id_rsa id_ed25519 credentials.json gcp-credentials.json "
        "Secrets.YAML token.json service_account.json client_secret_1.json cert.p12 "
        "data/api_keys.txt kubeconfig .git/config old.pyc main.py~ __pycache__/main.cpython-311.pyc"
    ).split()
    folder = make_folder("relevance", PLAIN, **kept, **dict.fromkeys(left, "KEY"))
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "more.txt").write_text("secret")
    (folder / "linked.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "linked").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    found = bundle_folders([f"relevance={folder}"])
    assert set(found.files) == {f"relevance/{name}" for name in ("main.py", *kept)}
    assert found.files["relevance/data/words.txt"] == b"a\r\nb\n"
    assert b"secret" not in found.pack()
    for name in (
        "linked.txt (symbolic link)",
        "linked (symbolic link)",
        ".env (hidden)",
        "prod.env",
        "pipe (no plain",
    ):
        assert any(name in skipped for skipped in found.skipped), name
    assert Bundle.unpack(found.pack(), found.hash) == found


def test_equal_folders_have_equal_hashes_wherever_they_lie(make_folder: MakeFolder) -> None:
    first, second = make_folder("one/relevance"), make_folder("two/relevance")
    assert bundle_folders([f"m={first}"]).hash == bundle_folders([f"m={second}"]).hash
    assert bundle_folders([f"m={first}"]).hash == bundle_folders(code=PLAIN, code_name="m").hash
    others = [
        bundle_folders([f"n={first}"]),
        bundle_folders(code=PLAIN + "\n", code_name="m"),
        bundle_folders(code=PLAIN, code_name="m", mode="batch"),
    ]
    assert len({found.hash for found in others} | {bundle_folders([f"m={first}"]).hash}) == 4


def test_one_folder_or_the_folders_in_it(make_folder: MakeFolder, tmp_path: Path) -> None:
    one = make_folder("one")
    assert bundle_folders(folder=one).metrics == ("one",)
    make_folder("two")
    (tmp_path / "metrics" / "notes.txt").write_text("x")
    (tmp_path / "metrics" / "linked").symlink_to(one, target_is_directory=True)
    assert bundle_folders(folder=tmp_path / "metrics").metrics == ("one", "two"), (
        "a link is no metric"
    )


def test_what_main_says_of_itself_is_read_not_run_and_what_cannot_be_an_evaluator_refused() -> None:
    def read(line: Line) -> Line:
        try:
            found = bundle_folders(code=line["main"])
        except ConfigError as error:
            return {"error": re.search(line["says"], str(error)) is not None}
        return {"requirements": found.requirements, "mode": found.mode}

    check(
        Path(__file__).parents[1] / "golden" / "evaluation" / "bundles.jsonl",
        read,
        ("requirements", "mode", "error"),
    )
    for text, message in (
        ("def evaluate(m): ...\nx = '\ud800'", "no valid Unicode"),
        ("(" * 5000, "no valid Python"),
    ):
        with pytest.raises(ConfigError, match=message):
            bundle_folders(code=text)


def test_a_requirements_file_counts_too(make_folder: MakeFolder) -> None:
    text = "# a comment\r\nnumpy>=1.24  # why\n-r other.txt\n--index-url https://x\n\njieba\n"
    found = bundle_folders([f"m={make_folder('m', PLAIN, **{'requirements.txt': text})}"])
    assert found.requirements == ("jieba", "numpy>=1.24")


def test_folders_that_do_not_fit_are_refused(make_folder: MakeFolder, tmp_path: Path) -> None:
    folder = make_folder()
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "main.py").symlink_to(folder / "main.py")
    (tmp_path / "main.py" / "inner").mkdir(parents=True)
    for folders, message in [
        ([str(folder)], "the form is 'name=path'"),
        (["=x"], "the form is 'name=path'"),
        (["m="], "the form is 'name=path'"),
        ([f"../m={folder}"], "no name of a metric"),
        ([f".m={folder}"], "no name of a metric"),
        ([f"m={folder}", f"m={folder}"], "two folders are named 'm'"),
        ([f"m={tmp_path / 'none'}"], "there is no such folder"),
        ([f"m={folder / 'main.py'}"], "is no folder"),
        ([f"m={tmp_path / 'empty'}"], "there is no 'main.py' in it"),
        ([f"m={tmp_path / 'linked'}"], "a symbolic link is not followed"),
        ([f"m={tmp_path}"], "there is no 'main.py' in it"),
        ([], "is empty"),
        (f"m={folder}", "put it into a list"),
    ]:
        with pytest.raises(ConfigError, match=message):
            bundle_folders(folders)
    with pytest.raises(ConfigError, match="neither it nor a folder in it"):
        bundle_folders(folder=tmp_path / "empty")
    for given in ({}, {"folder": folder, "code": PLAIN}):
        with pytest.raises(ConfigError, match="in one way"):
            bundle_folders(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "value"), [("MAX_FILES", 3), ("MAX_BYTES", 100), ("MAX_DEPTH", 1)]
)
def test_bounds(
    bound: str, value: int, make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = {"a/b/c.txt": "", "d.txt": "x" * 100, "e.txt": "", "f.txt": ""}
    folder = make_folder("m", PLAIN, **deep)
    assert len(bundle_folders([f"m={folder}"]).files) == 5
    monkeypatch.setattr(bundles, bound, value)
    with pytest.raises(ConfigError, match="more than|deeper than"):
        bundle_folders([f"m={folder}"])


def test_bounds_hold_for_all_folders_together(
    make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [f"{name}={make_folder(name, PLAIN)}" for name in ("a", "b")]
    monkeypatch.setattr(bundles, "MAX_FILES", 2)
    monkeypatch.setattr(bundles, "MAX_BYTES", 2 * len(PLAIN))
    assert len(bundle_folders(small).files) == 2
    for bound, value in (("MAX_FILES", 1), ("MAX_BYTES", 2 * len(PLAIN) - 1)):
        with monkeypatch.context() as less, pytest.raises(ConfigError, match="more than"):
            less.setattr(bundles, bound, value)
            bundle_folders(small)


@pytest.mark.skipif(os.name == "nt", reason="links and pipes as POSIX has them")
def test_what_becomes_a_link_or_a_pipe_after_it_was_listed_is_refused(tmp_path: Path) -> None:
    """The folder may change while it is read: a link is not followed, and nobody waits for a pipe's
    writer.
    """
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    assert bundles._read_plain_file(tmp_path / "plain", 10) == b"x"
    for name, message in (("link", "cannot be read"), ("pipe", "is no plain file")):
        with pytest.raises(ConfigError, match=message):
            bundles._read_plain_file(tmp_path / name, 10)


@pytest.mark.parametrize(
    "path", ["a", "/a/b", "a/../b", "a/./b", "a//b", "a\\b/c", "a/b\0", "", "../a/b", "a/"]
)
def test_paths_that_lead_elsewhere_are_never_written(path: str) -> None:
    assert not is_inside(path)
    bad = Bundle({path: b""}, ("a",))
    with pytest.raises(bundles.DamagedBundle):
        Bundle.unpack(bad.pack(), bad.hash)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(b" " * 100_000_000, 1)
    tracemalloc.start()
    try:
        with pytest.raises(bundles.DamagedBundle):
            Bundle.unpack(bomb, "x")
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_whatever_changes_what_is_run_changes_the_hash() -> None:
    plain = Bundle({"a/main.py": b"x", "b/main.py": b"y"}, ("a", "b"))
    others = [
        replace(plain, files={"a/main.py": b"y", "b/main.py": b"x"}),
        replace(plain, metrics=("b", "a")),
        replace(plain, requirements=("numpy",)),
        replace(plain, mode="batch"),
    ]
    assert len({bundle.hash for bundle in (plain, *others)}) == 5
    assert (
        replace(plain, skipped=("x",), files=dict(reversed(list(plain.files.items())))).hash
        == plain.hash
    )
    with pytest.raises(bundles.DamagedBundle, match="not those that were deployed"):
        Bundle.unpack(plain.pack(), others[0].hash)


def test_metrics_of_one_evaluator_have_one_mode(make_folder: MakeFolder) -> None:
    batch = "@reward_function(mode='batch')\ndef evaluate(rollouts_messages, **kwargs): ...\n"
    single = batch.replace("batch", "pointwise").replace("rollouts_", "")
    folders = [f"{name}={make_folder(name, main)}" for name, main in (("a", batch), ("b", single))]
    with pytest.raises(ConfigError, match="for all metrics; found .'batch', 'pointwise'."):
        bundle_folders(folders)
    with pytest.raises(ConfigError, match="for all metrics"):
        bundle_folders(folders[:1], mode="pointwise")
