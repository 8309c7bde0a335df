"""The candidate's process: serves calls to what the answer defines, or runs it as a program. It
knows no test and no expected value.
"""

from __future__ import annotations

import builtins
import os
import struct
import sys

from rm_gallery.core.sandbox.inside.base import (
    Channel,
    own_stdout,
    parsed,
    provide,
    run_answer,
    serve,
    write_line,
)
from rm_gallery.core.sandbox.inside.codec import CodecError, TooLarge, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType
    from typing import Any


_MAX_REFERENCES = 100_000


class CandidateNamespace:
    """The answer's namespace and the objects it handed out by reference."""

    def __init__(self) -> None:
        module = type(sys)("candidate")
        sys.modules["candidate"] = module
        self._names: dict[str, Any] = module.__dict__
        self._provided: dict[str, Any] = {}
        self._kept: list[object] = []
        self._operations: dict[str, Callable[..., object]] = {
            "call": self._call,
            "find": self._find,
            "get": getattr,
            "set": setattr,
            "item": lambda target, key: target[key],
            "len": len,
            "str": str,
            "iter": iter,  # the iterator stays here
            "next": lambda target: next(((item,) for item in target), ()),
        }
        """What can be asked for; the last gives (item,), or () at the end."""

    def load(self, job: Mapping[str, Any]) -> bytes:
        """Execute the answer; the reply lists the names that can be called, or the error."""
        try:
            self._provided = run_answer(job, self._names)
            names = [
                name
                for name in self._names
                if not name.startswith("__") and callable(self._own(name))
            ]
            return encode(("ok", names))
        except BaseException as error:  # noqa: BLE001 - reported to the test process as a typed record
            return encode(("error", *_describe(error)))

    def handle(self, request: bytes) -> bytes:
        """Answer one request with an encoded (number, status, …)."""
        message: Any = decode(request, resolve=self._kept.__getitem__)
        operation, number, arguments = message[0], message[1], message[2:]
        try:
            result = self._operations[operation](*arguments)
            return encode((number, "ok", result), keep=self._keep)
        except TooLarge:
            return encode((number, "too large"))
        except CodecError as error:
            return encode((number, "error", ["CodecError"], str(error)))
        except BaseException as error:  # noqa: BLE001 - reported to the test process as a typed record
            return encode((number, "error", *_describe(error)))

    def _keep(self, value: object) -> int:
        if len(self._kept) >= _MAX_REFERENCES:
            raise TooLarge("too many references")
        self._kept.append(value)
        return len(self._kept) - 1

    def _call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> object:
        """Call a function by its name, or a kept object."""
        function = self._find(target) if type(target) is str else target
        return function(*arguments, **keywords)

    def _own(self, name: str) -> Any:
        """What the answer itself calls by a name, None for what was provided."""
        value = self._names.get(name)
        return None if name in self._provided and value is self._provided[name] else value

    def _find(self, name: str) -> Any:
        """A function itself, so that it can be passed as an argument."""
        own = self._own(name)
        if own is not None or (name in self._names and name not in self._provided):
            return own
        if "Solution" in self._names and hasattr(self._names["Solution"], name):
            return getattr(self._names["Solution"](), name)
        raise NameError(f"name '{name}' is not defined")


def _describe(error: BaseException) -> tuple[list[str], str]:
    names = [
        kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException)
    ] or ["BaseException"]
    try:
        return names, str(error)[:300]
    except BaseException:  # noqa: BLE001 - an answer's exception may fail while it is printed
        return names, ""


def add_site_names() -> None:
    """Provide `exit` and `quit`, which an interpreter without the site module lacks."""
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]


def replay_functions(job: Mapping[str, Any], requests: list[bytes]) -> None:
    """Load the answer, handle a fixed list of requests, print the replies: one whole program
    without a live channel.
    """
    add_site_names()
    out = own_stdout()
    candidate = CandidateNamespace()
    for reply in [candidate.load(job), *map(candidate.handle, requests)]:
        write_line(out, "A", reply)
    os._exit(0)


def serve_functions(settings: Mapping[str, Any]) -> None:
    """Confine this process, load the answer and serve until the other side is gone."""
    sys.path[:0] = settings["paths"]
    add_site_names()
    candidate = CandidateNamespace()
    serve(settings, lambda job: (candidate.load(job), candidate.handle))


REPLY = struct.Struct(">BiH")
FINISHED, OUTPUT_LIMIT, FORK_FAILED = 0, 1, 2


def serve_programs(settings: Mapping[str, Any]) -> None:
    """Confine this process, compile the program and answer each input with a packed status and the
    bytes printed.
    """
    sys.path[:0] = settings["paths"]
    add_site_names()

    def opened(job: Mapping[str, Any]) -> tuple[None, Callable[[bytes], bytes]]:
        try:
            tree = parsed(job["code"], "<program>")
            program = compile(tree, "<program>", "exec", dont_inherit=True)
        except BaseException as error:  # noqa: BLE001 - becomes the outcome of every input
            failed = pack_reply(FINISHED, 1, type(error).__name__, b"")
            return None, lambda stdin: failed
        return None, lambda stdin: _run_program(program, tree, stdin, job["output_bytes"])

    serve(settings, opened)


def _run_program(program: CodeType, tree: Any, stdin: bytes, output_bytes: int) -> bytes:
    source = _file_with(stdin)
    out_read, out_write = os.pipe()
    report_read, report_write = os.pipe()
    inner = (source, out_write, report_write)
    try:
        child = os.fork()
    except OSError as error:
        for descriptor in (*inner, out_read, report_read):
            os.close(descriptor)
        return pack_reply(FORK_FAILED, 1, type(error).__name__, b"")
    if child == 0:
        _child(program, tree, *inner)
    for descriptor in inner:
        os.close(descriptor)
    output = Channel.read_at_most(out_read, output_bytes + 1)
    over = len(output) > output_bytes
    os.close(out_read)
    if over:
        os.kill(child, 9)
    status = os.waitpid(child, 0)[1]
    os.set_blocking(report_read, False)  # a grandchild may still hold the other end
    try:
        # children of the program may report as well; the first one counts
        name = os.read(report_read, 100).decode("utf-8", "replace").partition("\n")[0]
    except BlockingIOError:
        name = ""
    os.close(report_read)
    return pack_reply(
        OUTPUT_LIMIT if over else FINISHED,
        os.waitstatus_to_exitcode(status),
        name,
        output[:output_bytes],
    )


def pack_reply(state: int, exit_code: int, error: str, output: bytes) -> bytes:
    """Pack one answer: state, exit code (negative for a signal), name of the uncaught exception,
    printed bytes.
    """
    name = error.encode("utf-8", "replace")[:100]
    return REPLY.pack(state, exit_code, len(name)) + name + output


def _file_with(stdin: bytes) -> int:
    # a pipe would dead-lock on inputs above its capacity; fall back to it where the temp folder is
    # read-only
    path = f"stdin-{os.getpid()}"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    except OSError:
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            try:
                Channel.write_all(writer, stdin)
            finally:
                os._exit(0)
        os.close(writer)
        return reader
    os.unlink(path)
    Channel.write_all(descriptor, stdin)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _child(program: CodeType, tree: Any, source: int, out_write: int, report_write: int) -> None:
    os.dup2(source, 0)
    os.dup2(out_write, 1)
    os.closerange(3, report_write)
    os.closerange(report_write + 1, 256)
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.argv[:] = ["program.py"]
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    status = 1
    try:
        try:
            provide([tree], module.__dict__)
            exec(program, module.__dict__)
        finally:
            _finish()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - its name is the outcome of this input
        os.write(report_write, type(error).__name__.encode("utf-8", "replace")[:100] + b"\n")
    finally:
        os._exit(status & 255)


def _finish() -> None:
    """Do what the interpreter does at its end: join threads, run exit functions, flush."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit = sys.modules.get("atexit")
    if atexit is not None:
        atexit._run_exitfuncs()
    sys.stdout.flush()
