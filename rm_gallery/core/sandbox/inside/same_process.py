"""Answer and tests in one process, for tests that need the answer's objects themselves.

What shares a process can reach far, so the way to a forged verdict is closed piece by piece: a
verdict counts only with a word that the answer is never told; reading frames, tracebacks' frames,
the collector's lists or raw memory ends the process (an audit hook cannot be removed); signal
handlers, which are handed frames, cannot be set; tests keep the built-in functions of before the
answer was loaded. What is left, such as an object equal to everything or a patched assertion,
passes the changed tests as well that the caller runs beside the given ones, and is found by that.
"""

from __future__ import annotations

import _thread
import builtins
import os
import sys

from rm_gallery.core.sandbox.inside.base import (
    Channel,
    compiled,
    confine,
    names_in,
    prelude,
    run_answer,
    take_standard_streams,
)
from rm_gallery.core.sandbox.inside.codec import decode
from rm_gallery.core.sandbox.inside.suite import (
    OTHER,
    SOLUTION_MODULES,
    NotProvided,
    other_value,
    provide_tools,
    run_case,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType
    from typing import Any


TAMPERED = 86
"""Exit code of a process whose answer reached for the tests."""
_NEVER = frozenset(
    "sys._current_frames sys._current_exceptions sys.settrace sys.setprofile "
    "sys.monitoring.register_callback sys.addaudithook gc.get_objects gc.get_referrers gc.get_referents cpython.PyInterpreterState_New".split()
)
_FRAMES = frozenset("tb_frame gi_frame cr_frame ag_frame".split())
_MEMORY = frozenset(
    "ctypes _ctypes _ctypes_test _testcapi _testinternalcapi _testmultiphase _xxsubinterpreters "
    "_interpreters cffi _cffi_backend".split()
)
# who of the standard library may look at a frame: (end of its file, function, function that has to
# have called it), * for any
_MAY_LOOK = [
    tuple(line.split())
    for line in """
/collections/__init__.py    namedtuple                  *
/typing.py                  _caller                     *
/typing.py                  NamedTuple                  *
/typing.py                  __init__                    *
/enum.py                    *                           *
/dataclasses.py             make_dataclass              *
/logging/__init__.py        currentframe                findCaller
/logging/__init__.py        <lambda>                    findCaller
/traceback.py               clear_frames                *
/traceback.py               walk_tb                     _extract_from_extended_frame_gen
/traceback.py               walk_tb                     extended_frame_gen
/traceback.py               walk_tb                     extract
/traceback.py               _walk_tb_with_full_positions _extract_from_extended_frame_gen
/traceback.py               _get_code_position          _walk_tb_with_full_positions
""".strip().splitlines()
]


def _may_look(frame: Any) -> bool:
    caller = frame.f_back.f_code if frame.f_back else frame.f_code
    place = frame.f_code
    for file, name, above in _MAY_LOOK:
        if place.co_filename.endswith(file) and name in ("*", place.co_name):
            if above == "*" or (
                caller.co_filename.endswith(file) and caller.co_name.split(".")[-1] == above
            ):
                return True
    return False


def watch() -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that ends the process when somebody reaches for frames, code of the tests, or
    memory.
    """
    look, leave, who, code_of = (
        sys._getframe,
        os._exit,
        _thread.get_ident,
        type(watch).__dict__["__code__"].__get__,
    )
    function_type, own = type(watch), ("<sandbox", "<test", "<setup")
    busy: set[int] = set()

    def checked(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sys._getframe" or arguments[1] in _FRAMES:
            if not _may_look(look(2)):
                leave(TAMPERED)
        elif arguments[1] == "__code__" and type(arguments[0]) is function_type:
            # the tests' constants are in their code
            if code_of(arguments[0]).co_filename.startswith(own) and not look(
                2
            ).f_code.co_filename.startswith(own):
                leave(TAMPERED)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        thread = who()
        if thread in busy:
            return
        if event in _NEVER or (
            event == "open" and isinstance(arguments[0], str) and arguments[0].startswith("/proc")
        ):
            leave(TAMPERED)
        elif event in ("sys._getframe", "object.__getattr__", "object.__setattr__"):
            busy.add(thread)
            checked(event, arguments)
            busy.discard(thread)
        elif event == "import" and arguments[0] in _MEMORY:
            raise ImportError(f"{arguments[0]} is not provided beside tests")

    return hook


def _refused(*_: Any) -> None:
    raise ValueError("not provided beside tests")


def close_ways() -> None:
    """Forget this program's own modules, refuse signal handlers and raw memory, load what is built
    in while that is allowed.
    """
    for name in sys.builtin_module_names:
        if not name.startswith("_xx") and name not in _MEMORY:
            __import__(name)
    for name, function in (("signal", "signal"), ("_signal", "signal"), ("_imp", "create_builtin")):
        __import__(name).__dict__[function] = _refused
    for name in [name for name in sys.modules if name.startswith("rm_gallery.")]:
        del sys.modules[name]
    main = sys.modules["__main__"].__dict__
    for name in [name for name in main if not name.startswith("__")]:
        del main[name]
    for name in _MEMORY - sys.modules.keys():
        sys.modules[name] = None  # type: ignore[assignment]


def _load_answer(job: Mapping[str, Any], module: Any) -> dict[str, Any]:
    """Execute the answer; return what it defines itself."""
    given = run_answer(job, module.__dict__)
    return {
        k: v
        for k, v in module.__dict__.items()
        if not k.startswith("__") and (k not in given or v is not given[k])
    }


def _bind(
    own: dict[str, Any],
    names: dict[str, Any],
    used: set[str],
    defined: set[str],
    entry: str,
    module: Any,
) -> None:
    solution = own.get("Solution")
    for name in used | {entry}:
        if name in own and name not in defined and not hasattr(builtins, name):
            names[name] = own[name]
        elif name not in own and isinstance(solution, type) and name in vars(solution):
            names[name] = getattr(solution(), name)
    for name in SOLUTION_MODULES - sys.modules.keys():
        sys.modules[name] = module


def serve_same_process(settings: Mapping[str, Any]) -> None:
    """Confine this process, load the answer, run one unit of the tests and write the word of the
    verdict and its reason.

    The unit is a text with a `check`, a case of a suite, or an assert line after those before it.
    """
    confine(settings)
    sys.path[:0] = settings["paths"]
    channel: Channel = take_standard_streams()
    job: Any = decode(channel.read())
    channel.write(b"")
    out, write, leave, pid, own_pid = channel._sink, os.write, os._exit, os.getpid, os.getpid()
    run, missing = run_case, NotProvided
    word = job.pop("word")

    def tell(reason: str) -> None:
        if pid() == own_pid:  # a fork of the answer that came back here has no say
            write(out, word + reason.encode("utf-8", "replace")[:200])
        leave(0)

    entry, style = job["entry_point"], job["style"]
    try:
        setup, codes = _prepared(job)
    except BaseException as error:  # noqa: BLE001 - the tests' own fault, told as such
        tell(f"broken {type(error).__name__}: {str(error)[:150]}")
        return
    kept = {**builtins.__dict__, OTHER: other_value}
    kept["exit"] = kept["quit"] = builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    close_ways()
    module = sys.modules["candidate"] = type(sys)("candidate")
    names: dict[str, Any] = {"__builtins__": kept, "__name__": "tests"}
    used = names_in([*setup, *codes])
    job.pop("before")
    sys.addaudithook(watch())
    reason = "passed"
    try:
        own = _load_answer(job, module)
        _bind(own, names, used, set(job["defined"]), entry, module)
        _execute([*setup, *codes[:-1]], names, len(setup))
        exec(codes[-1], names)
        if style == "check":
            names["check"](names[entry])
        elif style == "suite":
            run(names, job["case"])
    except AssertionError:
        reason = "wrong answer"
    except missing as error:
        reason = f"broken {error}"
    except MemoryError:
        reason = "memory"
    except BaseException as error:  # noqa: BLE001 - becomes the outcome of the unit
        reason = f"error: {type(error).__name__}"
    tell(reason)


def _prepared(job: Mapping[str, Any]) -> tuple[list[CodeType], list[CodeType]]:
    """Compile the set-up and the tests, and load what the tests import, before anything of the
    answer runs.
    """
    codes = list(compiled([*job["before"], job["text"]], "<test>"))
    texts = (prelude(job["prompt"], job["entry_point"]), job["setup"])
    setup = list(compiled(texts, "<setup>"))
    provide_tools(names_in([*setup, *codes]))
    for name in job["imports"]:
        __import__(name)
    return setup, codes


def _execute(codes: list[CodeType], names: dict[str, Any], strictly: int) -> None:
    for number, code in enumerate(codes):
        try:
            exec(code, names)
        except BaseException:  # earlier lines have verdicts of their own
            if number < strictly:
                raise
