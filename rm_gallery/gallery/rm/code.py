"""Rewards for code: tests passed, SQL result equality, patch similarity, syntax and style."""

from __future__ import annotations

import ast
import re
import textwrap
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import Field, PositiveFloat, PositiveInt, field_serializer
from rapidfuzz.distance import Indel

from rm_gallery.core.data.schema import DataSample
from rm_gallery.core.engine.context import within_deadline
from rm_gallery.core.reward.registry import RewardRegistry
from rm_gallery.core.reward.rule import (
    KillableRule,
    RuleReward,
    final_answer,
    known,
    references_of,
    rule,
    shown,
)
from rm_gallery.core.reward.schema import Example, sample_of
from rm_gallery.core.sandbox.code_test_spec import (
    CodeTestReport,
    CodeTests,
    names_wanted,
    parse_code_tests,
)
from rm_gallery.core.sandbox.code_tests import VacuousTests, extract_code, run_code_tests
from rm_gallery.core.sandbox.process import SandboxLimits
from rm_gallery.core.sandbox.select import get_runner, shown_sandbox
from rm_gallery.core.sandbox.sql import QueryResult, run_query_in_worker, same_results
from rm_gallery.core.score import Score
from rm_gallery.core.text.blocks import Block, compile_problem, parse_python, split_fences
from rm_gallery.core.text.canonical import split_reasoning, turn_text
from rm_gallery.core.utils.errors import (
    Cause,
    DataError,
    RMGalleryError,
    SandboxUnavailable,
    Unscored,
)

_TESTS = ("inputs_outputs", "input_output", "inputs", "test", "tests")
_PROBLEM_KEYS = ("prompt", "entry_point", "setup")
_SHOWN = 5
_MOST_PRINTED_KB = 8192
"""Some problems ask for a million lines."""
_DOUBLE = sample_of(
    "Write a Python function double(x) that doubles a number.",
    "~~~python\ndef double(x):\n    return 2 * x\n~~~",
    "~~~python\ndef double(x):\n    return x * x\n~~~",
    tests=["assert double(2) == 4", "assert double(3) == 6", "assert double(-1) == -2"],
)


class SandboxFailed(RMGalleryError):
    """The sandbox did not start for one answer, although it did before; only that sample fails."""

    reason = "sandbox"
    cause: Cause = "caller"


@RewardRegistry.register("code_execution")
class CodeExecutionReward(RuleReward):
    """Share of all tests that the answer's code passes: tests passed / tests.

    The code is, after a thought, the last fenced Python block that defines what the tests call,
    else the last Python block, the last block, the whole answer. Tests come from answer.label, else
    metadata: `test` + `entry_point` (HumanEval; one test, with `prompt` or the query's code before
    the answer), `tests` (assert lines, with `setup`), a test file as `test` or `tests` (pytest
    functions, `unittest` cases; each one test), or `inputs_outputs` (APPS: `inputs`, `outputs`, and
    `fn_name` for functions; without it programs that read stdin and print). Names of the standard
    library that the code uses need no import. Answer and tests run in two sandboxed processes, so
    that the answer sees neither tests nor expected values, and the reason names the first failures
    without them. The answer returns plain data: methods of its own objects are not trusted, except
    those of a class that the tests construct. A test that needs the answer's own objects and fails
    in separate processes runs again in one process with the answer; it counts as passed if it
    passes there and copies of it with a wrong expectation fail. Integers are exact, other numbers
    of `outputs` agree within 1e-6 of their size.

    Range [0, 1], higher is better; an error, a test past `timeout` seconds, or a limit is a test
    failed. Unscored without tests (`no_tests`), when the tests themselves cannot run (`bad_tests`)
    and when they assert nothing, so that an always-wrong stub passes (`vacuous_tests`). Raises
    SandboxUnavailable before anything runs where bubblewrap is missing; `sandbox="subprocess"`
    accepts limits alone, `"fusion:URL"` asks a SandboxFusion service, which never runs a test in
    the answer's process. Sources: HumanEval (arXiv 2107.03374), MBPP (2108.07732), APPS
    (2105.09938).
    """

    needs = frozenset({"tests", "sandbox"})
    touches = {"programs": ()}
    looks_at = frozenset({"characters"})
    name = "code_execution"
    sandbox: str = "auto"
    """Where the code runs: auto or bwrap, subprocess, or fusion:URL."""
    timeout: PositiveFloat = 10.0
    """Seconds one test may take."""
    total_timeout: PositiveFloat = 60.0
    """Seconds all tests of one answer may take, from when they start; those not reached count as
    failed.
    """
    memory_mb: int = Field(default=512, ge=64)
    """Megabytes the code may use."""
    packages: list[str] = Field(default_factory=list)
    """Folders with packages that the code may import."""
    all_or_nothing: bool = False
    """Whether an answer gets 1 for passing every test and 0 otherwise."""

    example = Example(
        _DOUBLE,
        environment="bubblewrap, see `rm-gallery doctor`",
        recorded=(
            "1.0 3 of 3 tests passed.",
            "0.3333 1 of 3 tests passed: test 2: wrong answer; test 3: wrong answer.",
        ),
    )

    @field_serializer("sandbox")
    def _shown_sandbox(self, sandbox: str) -> str:
        return shown_sandbox(sandbox)

    def describe(self) -> dict[str, Any]:
        """The settings, an address without its password."""
        return {**super().describe(), "sandbox": shown_sandbox(self.sandbox)}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return [
            (key, shown_sandbox(v) if key == "sandbox" else v) for key, v in super().__repr_args__()
        ]

    def check(self) -> None:
        """Raise SandboxUnavailable when there is no sandbox, ConfigError for an unknown one."""
        get_runner(self.sandbox, packages=self.packages)

    async def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        tests = tests_of(sample, self.name)
        code = extract_code(split_reasoning(sample.answer_text()).final, names_wanted(tests))
        if not code.strip():
            return Score(0.0, "The answer holds no code.")
        deadline = within_deadline(self.total_timeout)
        limits = SandboxLimits(
            wall_seconds=self.timeout,
            cpu_seconds=self.timeout,
            memory_mb=self.memory_mb,
            output_kb=_MOST_PRINTED_KB,
        )
        runner = get_runner(self.sandbox, packages=self.packages)
        try:
            report = await run_code_tests(
                code, tests, runner=runner, limits=limits, deadline=deadline
            )
        except SandboxUnavailable as error:
            # the sandbox worked when the run began: one answer fails, and the run goes on
            raise SandboxFailed(str(error)) from error
        except (VacuousTests, DataError) as error:
            vacuous = isinstance(error, VacuousTests)
            raise Unscored(
                f"{self.name}: {error}", reason="vacuous_tests" if vacuous else "bad_tests"
            ) from error
        score = float(report.passed == report.total) if self.all_or_nothing else report.score
        counts = {"passed": report.passed, "total": report.total, "outcomes": report.reasons}
        return Score(score, reason_of(report), extra=counts)


@RewardRegistry.register("code_unit_tests")
class CodeUnitTestsReward(CodeExecutionReward):
    """1 when the answer's code passes all of its tests, else 0: functional correctness, as pass@1
    counts it.

    Range {0, 1}, higher is better. Tests, sandbox and everything else are those of
    `code_execution`, which scores the share.
    """

    name = "code_unit_tests"
    all_or_nothing = True
    example = Example(
        _DOUBLE,
        environment="bubblewrap, see `rm-gallery doctor`",
        recorded=(
            "1.0 3 of 3 tests passed.",
            "0.0 1 of 3 tests passed: test 2: wrong answer; test 3: wrong answer.",
        ),
    )


def tests_of(sample: DataSample, reward: str) -> CodeTests:
    """The tests of the sample's one output; Unscored when there are none (`no_tests`) or they are
    malformed (`bad_tests`).
    """
    metadata = sample.metadata or {}
    sources = (sample.output[0].answer.label or {}, metadata)
    tests = next(
        (source for source in sources if any(_is_given(source.get(key)) for key in _TESTS)), None
    )
    if tests is None:
        raise Unscored(
            f"{reward} needs tests: set 'test' with 'entry_point', 'tests' or 'inputs_outputs' in "
            f"answer.label or metadata.",
            reason="no_tests",
        )
    problem = {key: metadata[key] for key in _PROBLEM_KEYS if key in metadata}
    record = {key: value for key, value in {**problem, **tests}.items() if _is_given(value)}
    if "test" in record and "prompt" not in record:
        record["prompt"] = _prompt_code(sample.query_text(), str(record.get("entry_point", "")))
    try:
        return parse_code_tests({key: _without_turn_ends(value) for key, value in record.items()})
    except DataError as error:
        raise Unscored(f"{reward}: {error}", reason="bad_tests") from error


def reason_of(report: CodeTestReport) -> str:
    """How many tests passed and how the first failures ended, without expected values."""
    failed = failed_tests(report)
    if len(failed) > _SHOWN:
        failed[_SHOWN:] = [f"{len(failed) - _SHOWN} more"]
    listed = f": {'; '.join(failed)}" if failed else ""
    return f"{report.passed} of {report.total} tests passed{listed}."


def failed_tests(report: CodeTestReport) -> list[str]:
    """Each test that failed, by its number, and how it ended."""
    return [f"test {unit.index + 1}: {unit.reason}" for unit in report.outcomes if not unit.passed]


def _without_turn_ends(value: Any) -> Any:
    """The tests without a BOM, Windows line ends and end-of-turn marks."""
    if isinstance(value, str):
        return turn_text(value)
    return [_without_turn_ends(item) for item in value] if isinstance(value, list) else value


def _is_given(value: Any) -> bool:
    return value is not None and not (isinstance(value, str | list | tuple | dict) and not value)


def _prompt_code(query: str, entry_point: str) -> str:
    """The code a query asks to be continued; empty when it is prose."""
    code = extract_code(query)
    return code if f"def {entry_point}" in code and not isinstance(parse_python(code), str) else ""


_DIALECTS = frozenset({"sql", "sqlite", "sqlite3"})
_TOKEN = re.compile(
    r"'(?:[^']|'')*'?|\"[^\"]*\"?|`[^`]*`?|\[[^\]]*\]?|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|\w+"
    r"|[()]",
    re.DOTALL,
)


_REFERENCES_KEPT, _ROWS_KEPT = 32, 1000
_REFERENCES: dict[tuple[str, str, float, int], QueryResult] = {}
"""Cache of reference results, shared by all answers to one question."""


@rule(
    "sql_result_equality",
    needs=("reference", "schema"),
    looks_at="characters",
    example=Example(
        sample_of(
            "Which towns have more than a million people? List them by size, largest first.",
            "SELECT name FROM town WHERE people > 1000000 ORDER BY people DESC",
            "SELECT name FROM town ORDER BY people DESC",
            "SELECT town FROM people",
            schema="CREATE TABLE town (name TEXT, people INTEGER);\n"
            "INSERT INTO town VALUES ('Lyon', 520000), ('Paris', 2100000), ('Berlin', 3700000);",
            reference="SELECT name FROM town WHERE people > 1e6 ORDER BY people DESC",
        ),
        inputs={
            "schema": (
                "`schema` in `answer.label` or `metadata`: the SQL script that builds and fills "
                "the database"
            )
        },
    ),
)
async def sql_result_equality(
    sample: DataSample, *, timeout: PositiveFloat = 5.0, max_rows: PositiveInt = 10_000
) -> Score[float]:
    """1 when the answer's query returns the same rows as the reference query on a small SQLite
    database, else 0.

    The reference query is the sample's reference (a list: any of them); `schema` in answer.label or
    metadata is the script that builds the database, its rows included. The answer's query is its
    last block marked sql, else its last block, else the whole answer after a thought. Rows compare
    as a multiset, and in order when the reference has an ORDER BY of its own; integers are exact,
    other numbers agree within 1e-6; column names do not matter, their number and order do. A query
    that fails, writes, takes longer than `timeout`, needs too much memory or returns too many rows
    is 0.

    Range {0, 1}, higher is better. Unscored without a reference (`no_reference`) or a schema
    (`no_schema`), and when one of these does not run (`bad_reference`, `bad_schema`). Every query
    gets a database of its own, in memory, and may only read; it runs in a worker process of bounded
    memory that is killed at its timeout. Source: execution accuracy of Spider and BIRD (arXiv
    2305.03111), duplicates counted.

    Args:
        timeout: Seconds one query may run.
        max_rows: Rows a query may return.
    """
    references = references_of(sample, "sql_result_equality", turn_text)
    schema = _schema_script(sample)
    expected = [await _reference_result(schema, query, timeout, max_rows) for query in references]
    query = sql_of(sample.answer_text())
    if not query:
        return Score(0.0, "The answer holds no query.")
    result = await run_query_in_worker(
        schema,
        query,
        deadline=within_deadline(timeout),
        max_rows=max_rows,
        schema_seconds=max(rows.schema_seconds for rows in expected),
    )
    if result.error:
        return Score(0.0, f"The query does not run: {result.error}")
    equal = False
    for text, rows in zip(references, expected, strict=True):
        equal = equal or await same_results(result, rows, ordered=ordered(text))
    size = f"{len(result.rows)} rows of {len(result.columns)} columns"
    said = "The results are equal" if equal else "The result is another one"
    return Score(float(equal), f"{said}: {size}.")


def _schema_script(sample: DataSample) -> str:
    value = known(sample, "schema")
    script = ";\n".join(map(str, value)) if isinstance(value, list | tuple) else value
    script = turn_text(script) if isinstance(script, str) else ""
    if not script.strip():
        raise Unscored(
            "sql_result_equality needs the script that builds the database: set "
            f"answer.label['schema'] or metadata['schema']; found {shown(value)}.",
            reason="no_schema",
        )
    return script


async def _reference_result(schema: str, query: str, timeout: float, max_rows: int) -> QueryResult:
    key = (schema, query, timeout, max_rows)
    result = _REFERENCES.get(key)
    if result is None:
        try:
            limit = within_deadline(timeout)
            result = await run_query_in_worker(schema, query, deadline=limit, max_rows=max_rows)
        except DataError as error:
            raise Unscored(str(error), reason="bad_schema") from error
        if result.error != "deadline" and len(result.rows) <= _ROWS_KEPT:
            if len(_REFERENCES) >= _REFERENCES_KEPT:
                _REFERENCES.clear()
            _REFERENCES[key] = result
    if result.error:
        raise Unscored(f"the reference query does not run: {result.error}", reason="bad_reference")
    return result


def sql_of(text: str) -> str:
    """The query of an answer: the last block marked sql, else the last block, else all of it after
    a thought.
    """
    text = split_reasoning(text).final
    blocks = [block for block in split_fences(text)[0] if block.body.strip()]
    return _last_body(blocks, _DIALECTS, text).strip()


def _last_body(blocks: list[Block], languages: frozenset[str], text: str) -> str:
    """The last block marked with a language, else the last block, else the text."""
    marked = [block.body for block in blocks if block.language in languages]
    return (marked or [block.body for block in blocks] or [text])[-1]


def ordered(query: str) -> bool:
    """Whether a query orders its result: an ORDER BY outside of all parentheses, quotes and
    comments.
    """
    depth, before = 0, ""
    for token in _TOKEN.finditer(query):
        if token["comment"] is not None:
            continue
        word = token[0].upper()
        if word in "()":
            depth += 1 if word == "(" else -1
        elif depth == 0 and (before, word) == ("ORDER", "BY"):
            return True
        before = word
    return False


_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_NOISE = (
    "index ",
    "similarity index ",
    "diff --git ",
    "new file mode ",
    "old mode ",
    "new mode ",
    "\\ No newline",
)
_EXACT, _WINDOW = 1 << 30, 16_384
_PATCH_LANGUAGES = frozenset({"diff", "patch", "udiff"})


@RewardRegistry.register("code_patch_similarity")
class PatchSimilarityReward(RuleReward):
    """Similarity of the answer's patch to the reference patch: 2 x LCS / (characters of both).

    LCS is the length of the longest common subsequence of characters. Where both patches are long
    (their lengths multiply to more than 2^30) it is the sum over the pieces between lines that stand
    once in each patch, of at most 16,384 characters each: never more than the LCS, and found in
    linear time.
    The patch is the last block fenced as diff or patch, else the last fenced block, else the whole
    answer. Line numbers of hunks, git's index and mode lines, white space at line ends and Windows
    line ends do not count. Range [0, 1], higher is better; the best of several references counts;
    unscored without a reference.

    Source: the similarity reward of SWE-RL (arXiv 2502.18449), with the longest common subsequence
    in place of difflib's matching blocks, whose size it bounds from above and which takes minutes
    on long texts.
    """

    needs = frozenset({"reference"})
    name = "code_patch_similarity"

    example = Example(
        sample_of(
            "Mend the off-by-one error in the loop.",
            "-for i in range(n):\n+for i in range(n + 1):",
            "-for i in range(n):\n+for i in range(1, n):",
            reference="@@ -3 +3 @@\n-for i in range(n):\n+for i in range(n + 1):",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        answer = final_answer(sample)
        references = references_of(sample, self.name)
        return Score(max(patch_similarity(answer, reference) for reference in references))


def patch_similarity(answer: str, reference: str) -> float:
    """Similarity in [0, 1] of the patches two texts hold; 0 when one holds none."""
    given, wanted = patch_of(answer), patch_of(reference)
    if not given or not wanted:
        return 0.0
    if len(given) * len(wanted) <= _EXACT:
        return float(Indel.normalized_similarity(given, wanted))
    distance = sum(Indel.distance(*pair) for pair in _pieces(given, wanted))
    return 1 - distance / (len(given) + len(wanted))


def _pieces(given: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Pieces that make up both texts: cut at lines that stand once in each and in the same order (the
    most of them), then evenly where a piece is still long.
    """
    ours, theirs = given.splitlines(keepends=True), wanted.splitlines(keepends=True)
    once, counts = Counter(ours), Counter(theirs)
    places = {line: place for place, line in enumerate(theirs) if counts[line] == 1}
    ends: list[int] = []
    chain: list[tuple[int, int, Any]] = []
    for number, line in enumerate(ours):
        if once[line] == 1 and line in places:
            place = places[line]
            length = bisect_left(ends, place)
            before = chain[length - 1] if length else None
            ends[length : length + 1] = [place]
            chain[length : length + 1] = [(number, place, before)]
    cuts, link = [(len(ours), len(theirs))], chain[-1] if chain else None
    while link is not None:
        cuts.append(link[:2])
        link = link[2]
    here, there = 0, 0
    for number, place in reversed(cuts):
        one, other = "".join(ours[here:number]), "".join(theirs[there:place])
        parts = max(len(one), len(other)) // _WINDOW + 1
        for part in range(parts):
            yield _share(one, part, parts), _share(other, part, parts)
        here, there = number, place


def _share(text: str, part: int, parts: int) -> str:
    return text[len(text) * part // parts : len(text) * (part + 1) // parts]


def patch_of(text: str) -> str:
    """The patch in a text without its noise: its last diff block, else its last fenced block, else
    all of it.
    """
    patch = _last_body(split_fences(text)[0], _PATCH_LANGUAGES, text)
    lines = map(str.rstrip, patch.split("\n"))
    kept = (_HUNK.sub("@@", line) for line in lines if not line.startswith(_NOISE))
    return "\n".join(kept).strip("\n")


@RewardRegistry.register("code_syntax_check")
class SyntaxCheckReward(KillableRule):
    """Share of the answer's Python blocks that compile: valid blocks / all blocks.

    Nothing is executed. Blocks are fenced and marked python; without such a mark, blocks without a
    language are taken. The syntax is that of the running interpreter. Range [0, 1], higher is
    better; unscored (`no_code`) without a block.
    """

    looks_at = frozenset({"characters"})
    name = "code_syntax_check"

    example = Example(
        sample_of(
            "Write a Python function that doubles a number.",
            "~~~python\ndef double(x):\n    return 2 * x\n~~~",
            "~~~python\ndef double(x):\n    return 2 *\n~~~",
        )
    )

    def _evaluate(self, sample: DataSample, **kwargs: Any) -> Score[Any]:
        blocks = required_blocks(sample, self.name)
        problems = [
            f"block {number}, {problem}"
            for number, problem in enumerate(map(parse, blocks), start=1)
            if isinstance(problem, str)
        ]
        reason = "; ".join(problems[:5]) or f"{len(blocks)} of {len(blocks)} blocks compile."
        return Score(1 - len(problems) / len(blocks), reason)


_PYTHON = frozenset({"python", "py", "python3", "py3", "{python}", "{.python}"})


def python_blocks(text: str) -> list[str]:
    """Bodies of the fenced blocks marked as Python; when none is marked so, of those without a
    language.
    """
    blocks, _ = split_fences(text)
    marked = [b.body for b in blocks if b.language.split(" ")[0] in _PYTHON]
    bodies = marked or [b.body for b in blocks if not b.language]
    return [textwrap.dedent(body) for body in bodies if body.strip()]


def required_blocks(sample: DataSample, reward: str) -> list[str]:
    """The answer's Python blocks; Unscored (`no_code`) when it has none."""
    blocks = python_blocks(split_reasoning(sample.answer_text()).final)
    if not blocks:
        raise Unscored(
            f"{reward}: the answer has no fenced Python block.", reason="no_code", cause="answer"
        )
    return blocks


def parse(code: str) -> ast.AST | str:
    """The code's syntax tree, or one sentence on why it does not compile."""
    tree = parse_python(code)
    return tree if isinstance(tree, str) else compile_problem(code) or tree


@rule(
    "code_style",
    looks_at="characters",
    killable=True,
    example=Example(
        sample_of(
            "Write a Python function that doubles a number.",
            "~~~python\ndef double(x):\n    return 2 * x\n~~~",
            "~~~python\ndef doubleIt(X):\n  result = 2 * X\n  return result\n~~~",
        )
    ),
)
def code_style(sample: DataSample) -> Score[float]:
    """0.5 x share of indented blocks using the code's most common indentation + 0.5 x share of
    names following PEP 8.

    Names are those the code itself gives, from its syntax tree: functions, arguments and variables
    in snake_case (variables also in UPPER_CASE, module variables also in CapWords, as types are
    named), classes in CapWords. A part with nothing to look at counts 1. Range [0, 1], higher is
    better; unscored without a fenced Python block (`no_code`) or when none compiles
    (`syntax_error`); blocks that do not compile are left out. Source: PEP 8.
    """
    units, names = Counter[str](), list[tuple[str, bool]]()
    parsed = [(block, parse(block)) for block in required_blocks(sample, "code_style")]
    problems = [tree for _, tree in parsed if isinstance(tree, str)]
    if len(problems) == len(parsed):
        raise Unscored(f"no block compiles ({problems[0]}).", reason="syntax_error", cause="answer")
    for block, tree in parsed:
        if not isinstance(tree, str):
            units.update(_indents(block.split("\n"), tree))
            names += _names_with_fit(tree)
    bad = [name for name, fits in names if not fits]
    indentation = max(units.values()) / units.total() if units else 1.0
    naming = (len(names) - len(bad)) / len(names) if names else 1.0
    listed = f" (not PEP 8: {', '.join(map(shown, bad[:5]))})" if bad else ""
    return Score(
        (indentation + naming) / 2,
        f"Indentation {indentation:.2f}, names {naming:.2f}{listed}.",
        extra={"indentation": indentation, "naming": naming},
    )


def _indents(lines: list[str], tree: ast.AST) -> Iterator[str]:
    """White space that each indented block adds to the line that opens it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt | ast.excepthandler):
            continue
        for field in ("body", "orelse", "finalbody"):
            inner = getattr(node, field, None)
            if not inner or inner[0].lineno == node.lineno or inner[0].lineno > len(lines):
                continue
            outer, own = _margin(lines[node.lineno - 1]), _margin(lines[inner[0].lineno - 1])
            if len(own) > len(outer):  # an elif is a nested if that is not indented
                yield own[len(outer) :] if own.startswith(outer) else own


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _names_with_fit(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    assigned = (
        node for node in ast.iter_child_nodes(tree) if isinstance(node, ast.Assign | ast.AnnAssign)
    )
    top = {id(target) for node in assigned for target in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, _is_cap_words(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.name == node.name.lower()
        elif isinstance(node, ast.arg):
            yield node.arg, node.arg == node.arg.lower()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            fits = node.id in (node.id.lower(), node.id.upper()) or (
                id(node) in top and _is_cap_words(node.id)
            )
            yield node.id, fits


def _is_cap_words(name: str) -> bool:
    bare = name.strip("_")
    return "_" not in bare and bare[:1] == bare[:1].upper()
