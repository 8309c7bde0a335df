"""What every sandboxed process begins with: messages, confinement, the texts of a program; the
probe that tries the walls, and the process that stays and answers message by message.
"""

from __future__ import annotations

import builtins
import os
import sys

from rm_gallery.core.sandbox.inside.codec import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from types import CodeType
    from typing import Any


MAX_FRAME = 16 * 1024 * 1024


class PeerGone(BaseException):
    """The other side closed its end; not an Exception, so that tested code cannot swallow it by
    accident.
    """


class FrameTooLarge(PeerGone):
    """The other side announced a message beyond the bound."""


class Channel:
    """Whole messages in and out; `kind` is one byte that names the message for the relay in the
    middle.
    """

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink

    def read(self) -> bytes:
        """Return the next message; raises PeerGone at the end of the stream."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > MAX_FRAME:
            raise FrameTooLarge(f"message of {size} bytes")
        return self._exactly(size)

    def write(self, payload: bytes, kind: bytes = b"") -> None:
        """Send one message; raises PeerGone when nobody reads any more."""
        try:
            self.write_all(self._sink, kind + len(payload).to_bytes(4, "big") + payload)
        except BrokenPipeError as error:
            raise PeerGone("nobody reads") from error

    def _exactly(self, size: int) -> bytes:
        data = self.read_at_most(self._source, size)
        if len(data) < size:
            raise PeerGone("end of stream")
        return data

    @staticmethod
    def write_all(descriptor: int, data: bytes) -> None:
        """Write every byte; raises BrokenPipeError when nobody reads any more."""
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    @staticmethod
    def read_at_most(descriptor: int, size: int) -> bytes:
        """Read until the end, but no more than `size` bytes."""
        parts = bytearray()
        while len(parts) < size:
            chunk = os.read(descriptor, min(size - len(parts), 1 << 20))
            if not chunk:
                break
            parts += chunk
        return bytes(parts)


def take_standard_streams() -> Channel:
    """Move the message channel off descriptors 0 and 1: input becomes empty, prints join stderr,
    which the parent counts.
    """
    channel = Channel(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return channel


def confine(settings: Mapping[str, int]) -> None:
    """Give up the user id where asked, then set hard limits that cannot be raised again.

    Raises OSError or ValueError when a limit cannot be set and `strict` asks for all of them.
    """
    import resource  # absent on Windows, where the parent still imports this module

    user = settings.get("user")
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    cpu = settings["cpu_seconds"]
    wanted: list[tuple[Any, ...]] = [
        ("RLIMIT_CORE", 0),
        ("RLIMIT_CPU", cpu, cpu + 1),
        ("RLIMIT_FSIZE", settings["file_bytes"]),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_STACK", 64 << 20, resource.RLIM_INFINITY),
        ("RLIMIT_NPROC", settings["processes"]),
        ("RLIMIT_AS", settings["memory_bytes"]),
    ]
    for name, soft, *other in wanted:
        try:
            kind = getattr(resource, name)
            bounds = {*(other or [soft]), resource.getrlimit(kind)[1]} - {resource.RLIM_INFINITY}
            ceiling = min(bounds, default=resource.RLIM_INFINITY)
            resource.setrlimit(kind, (min({soft, *bounds}), ceiling))
        except (OSError, ValueError, AttributeError):
            if settings.get("strict") and name != "RLIMIT_STACK":
                raise
    sys.path[:] = [entry for entry in sys.path if entry]
    # large numbers are what some problems are about, and time is bounded
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)


_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the cost of importing ast


def prelude(prompt: str, entry_point: str) -> str:
    """Return what the prompt holds before the definition of `entry_point`: its imports and helper
    functions.

    A prompt that does not define it is prose, not code to continue: '' then.
    """
    lines = prompt.splitlines(keepends=True)
    for number, line in enumerate(lines):
        words = line.replace("[", "(").split("(")[0].split()
        if words[-2:] == ["def", entry_point] and not line[0].isspace():
            while number and lines[number - 1].startswith("@"):
                number -= 1
            return "".join(lines[:number])
    return ""


def candidate_sources(prompt: str, code: str, entry_point: str) -> list[str]:
    """Return the texts to execute one after the other in the same namespace.

    A completion that defines the entry point itself runs after the prompt's imports and helpers.
    Any other completion continues the prompt, as it stands or, when only that compiles, indented by
    four columns.
    """
    if not prompt or not entry_point:
        return [code]
    helpers = prelude(prompt, entry_point)
    if defines(code, entry_point):
        return [helpers, code]
    indented = "".join(
        "    " + line if line.strip() else line for line in code.splitlines(keepends=True)
    )
    for joined in (prompt + code, prompt + "\n" + indented):
        if _compiled(joined):
            return [joined]
    return [helpers, code]


def defines(code: str, name: str) -> bool:
    """Tell whether `code` parses and binds `name` at its top level."""
    return any(
        name in {getattr(each, "name", None), getattr(each, "id", None)}
        for node in getattr(_compiled(code, _ONLY_AST), "body", [])
        for each in (node, *getattr(node, "targets", []))
    )


def _compiled(code: str, flags: int = 0) -> Any:
    """The code object, or with a flag the syntax tree; None where it is no program."""
    try:
        return compile(code, "<candidate>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None


def run_answer(job: Mapping[str, Any], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute the answer; return what was provided of the standard library beside it."""
    texts = candidate_sources(job["prompt"], job["code"], job["entry_point"])
    trees = [parsed(text, "<candidate>") for text in texts]
    provided = provide(trees, namespace, without=[job["entry_point"]])
    for code in compiled(trees, "<candidate>"):
        # the whole point of this process: it is confined, and what is worth stealing is out of reach
        exec(code, namespace)
    return provided


def compiled(texts: Iterable[Any], file: str) -> Iterator[CodeType]:
    """The code objects of these texts or syntax trees, one after the other."""
    return (compile(text, file, "exec", dont_inherit=True) for text in texts)


def serve_probe(settings: Mapping[str, Any]) -> None:
    """Confine this process and report the facts a caller checks before trusting the sandbox."""
    confine(settings)
    channel = take_standard_streams()
    secret: Any = decode(channel.read())
    facts = {
        "sees_outside_file": os.path.exists(secret),
        "can_write_root": _can_write("/probe"),
        "can_write_temp": _can_write("/tmp/probe"),
        "interfaces": _interfaces(),
        "can_fork": _can_fork(1),
        "processes_bounded": not _can_fork(settings["processes"] + 8),
    }
    channel.write(encode(facts))


def _interfaces() -> list[str]:
    import _socket  # the C module: the wrapper would cost ten times as much to load

    try:
        return [name for _, name in _socket.if_nameindex()]
    except OSError:  # sockets are forbidden altogether
        return []


def _can_write(path: str) -> bool:
    try:
        with open(path, "w"):
            return True
    except OSError:
        return False


def _can_fork(count: int) -> bool:
    """Tell whether `count` children can exist at once."""
    reader, writer = os.pipe()
    children = []
    try:
        for _ in range(count):
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            children.append(child)
        return True
    except OSError:
        return False
    finally:
        os.close(writer)
        for child in children:
            os.waitpid(child, 0)
        os.close(reader)


def own_stdout() -> int:
    """Keep stdout for messages and send prints to stderr: a replayed program has no channel."""
    out = os.dup(1)
    os.dup2(2, 1)
    return out


def write_line(out: int, kind: str, payload: bytes) -> None:
    """Write one message of a replayed program as a line: its kind, and its bytes in base64."""
    import binascii

    Channel.write_all(out, kind.encode() + b" " + binascii.b2a_base64(payload))


def steady_hashes() -> None:
    """Start this program again with a fixed hash seed: every repetition has to take the same path."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])


def serve(
    settings: Mapping[str, Any],
    opened: Callable[[Any], tuple[bytes | None, Callable[[bytes], bytes] | None]],
) -> None:
    """Confine this process, take its job and answer every further message, until nobody asks.

    `opened(job)` gives what is said first, if anything, and what answers.
    """
    confine(settings)
    channel = take_standard_streams()
    try:
        job = decode(channel.read())
        channel.write(b"")  # tells the parent that the clock may start
        first, answer = opened(job)
        if first:
            channel.write(first)
        while answer:
            channel.write(answer(channel.read()))
    except PeerGone:
        return


def serve_service(settings: Mapping[str, Any]) -> None:
    """Confine this process, open the entry that the first message names, and answer every further
    message with its bytes.

    The first message is `{"module", "function", "job"}`: `function(job)` gives what answers. Sent
    back are an empty message when that begins, then ("ok", "") or ("error", what was raised), then
    one answer for each message.
    """

    def opened(first: Any) -> tuple[bytes, Callable[[bytes], bytes] | None]:
        os.nice(5)  # whoever serves others must not wait for the code it serves
        sys.path.extend(settings["paths"])
        try:
            module = __import__(first["module"], fromlist=[first["function"]])
            answer: Callable[[bytes], bytes] = getattr(module, first["function"])(first["job"])
        except BaseException as error:  # noqa: BLE001 - told to the parent, which gives this process up
            return encode(("error", f"{type(error).__name__}: {error}"[:1000])), None
        own = os.getpid()

        def answered(message: bytes) -> bytes:
            reply = answer(message)
            if os.getpid() != own:
                # a fork of the code under test that came back here: only its parent answers
                os._exit(0)
            return reply

        return encode(("ok", "")), answered

    serve(settings, opened)


# -- names of the standard library that an answer uses without importing them, as harnesses of
# competition problems provide them --

_PROVIDED_MODULES = (
    "bisect collections copy datetime decimal fractions functools heapq io itertools json math "
    "operator os random re statistics string sys time typing"
)
_PROVIDED_MEMBERS = {
    "typing": "Any Callable DefaultDict Deque Dict FrozenSet Generator Generic Iterable Iterator List Literal Mapping NamedTuple "
    "Optional Sequence Set Tuple Type TypeVar Union",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "itertools": "accumulate chain combinations combinations_with_replacement count cycle dropwhile groupby islice pairwise "
    "permutations product repeat starmap takewhile zip_longest",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
    "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
    "math": "ceil comb factorial floor gcd inf isqrt lcm log log2 perm pi sqrt",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
    "operator": "itemgetter xor",
    "copy": "deepcopy",
    "dataclasses": "dataclass",
    "datetime": "timedelta",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "io": "StringIO",
}
_HOME = {name: module for module, names in _PROVIDED_MEMBERS.items() for name in names.split()}
_PROVIDED = frozenset((*_HOME, *_PROVIDED_MODULES.split()))


def names_in(codes: list[CodeType]) -> set[str]:
    """Every name that these pieces of code and the functions in them look up or import."""
    names: set[str] = set()
    pending = list(codes)
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending.extend(part for part in code.co_consts if isinstance(part, type(code)))
    return names


def parsed(text: str, file: str) -> Any:
    """The syntax tree of a text, without the cost of importing ast."""
    return compile(text, file, "exec", _ONLY_AST, dont_inherit=True)


def parts_of(node: Any) -> list[Any]:
    """The nodes of a syntax tree that are right below one."""
    values = [getattr(node, field, None) for field in node._fields]
    lists = [value if type(value) is list else [value] for value in values]
    return [part for parts in lists for part in parts if hasattr(part, "_fields")]


def names_read(trees: list[Any]) -> set[str]:
    """Every plain name in these syntax trees; attributes, imports and definitions are none."""
    names: set[str] = set()
    pending = list(trees)
    while pending:
        node = pending.pop()
        if type(node).__name__ == "Name":
            names.add(node.id)
        pending += parts_of(node)
    return names


def tools_in(trees: list[Any], own: set[str], entry: str, defined: set[str]) -> set[str]:
    """Names of the standard library that tests use as tools and never import, as test harnesses
    provide them.

    There are none where nothing else is tested: in `assert gcd(4, 6) == 2` it is what is asked for.
    One that the answer defines, too (`own`), is a tool only if it never stands in a statement
    without what only the answer can give: `Counter` in `assert Counter(f(2)) == Counter("bb")`.
    """
    used = names_read(trees) - defined
    tools = (used & _PROVIDED) - {entry}
    tested = {name for name in used - tools if not hasattr(builtins, name)} | {"candidate"}
    if not used & tested:
        return set()
    unsure = tools & own
    pending = list(trees)
    while pending and unsure:
        node = pending.pop()
        if isinstance(getattr(node, "body", None), list):
            for field in ("body", "orelse", "finalbody", "handlers"):
                pending.extend(getattr(node, field, None) or ())
        elif not (names := names_read([node])) & tested:
            unsure, tools = unsure - names, tools - (names & own)
    return tools


def provide(
    trees: list[Any], namespace: dict[str, Any], without: Collection[str] = ()
) -> dict[str, Any]:
    """Bind the names of the standard library that the code uses, `without` some and those bound
    already; return them.

    Only what the code itself names is bound, before it runs, so that what it defines or imports
    stays its own.
    """
    provided = {}
    for name in (names_read(trees) & _PROVIDED) - {*without} - namespace.keys():
        home = _HOME.get(name)
        module = None if hasattr(builtins, name) else __import__(home or name)
        if module is not None and (home is None or hasattr(module, name)):
            provided[name] = getattr(module, name) if home else module
    namespace.update(provided)
    return provided
