"""The first lines of every process that runs a program of an answer outside bubblewrap: what follows
cannot signal, trace or outlive whoever started it.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NEW_NAMESPACES = 0x10000000 | 0x20000000 | 0x00020000  # of users, of processes, of mounts
_DIE_WITH_PARENT, _DUMPABLE, _NO_NEW_PRIVILEGES = 1, 4, 38


def enter(way: str, user: int) -> None:
    """Go on as a process of a namespace of its own ("namespace"), as `user` ("user"), or with no more
    than an end when the parent ends ("none").

    Raises OSError where that cannot be had.
    """
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        prctl = libc.prctl
    except (ImportError, OSError, AttributeError) as error:
        if way != "none":
            raise OSError(f"the system's calls are out of reach: {error}") from error
        return
    if way == "namespace":
        _open_namespaces(libc, ctypes.get_errno)
        prctl(_DIE_WITH_PARENT, 9)
        _stand_by(os.fork())
        # Process 1 is ours: its end ends all, and a program that could trace it could undo that.
        prctl(_DIE_WITH_PARENT, 9)
        prctl(_DUMPABLE, 0)
        # Where that is forbidden (a container with masked files) the old /proc only shows others.
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
        _stand_by(os.fork())
        prctl(_DUMPABLE, 1)
    elif way == "user":
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        os.listdir(
            os.path.dirname(os.__file__)
        )  # an interpreter in root's home is closed to others
    prctl(_DIE_WITH_PARENT, 9)


def _open_namespaces(libc: Any, failed: Any) -> None:
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_NAMESPACES):
        raise OSError(failed(), os.strerror(failed()))
    # Without a user namespace root inside could trace root outside through an older /proc.
    for name, line in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(file, (line if isinstance(line, str) else f"{line} {line} 1").encode())
        os.close(file)


def _stand_by(child: int) -> None:
    """In the child go on; in its parent end as it ends, and collect what it leaves behind."""
    if child == 0:
        return
    os.closerange(0, 3)  # an open copy would hide that the program has closed its own
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
