"""A process that stays: it loads one entry of a visible package and answers message by message until nobody asks any more."""

from __future__ import annotations

import os
import sys

from rm_gallery.core.sandbox.inside.base import PeerGone, confine, take_standard_streams
from rm_gallery.core.sandbox.inside.codec import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def serve_service(settings: Mapping[str, Any]) -> None:
    """Confine this process, open the entry that the first message names, and answer every further message with its bytes.

    The first message is `{"module", "function", "job"}`: `function(job)` gives what answers. Sent back are an empty message
    when that begins, then ("ok", "") or ("error", what was raised), then one answer for each message.
    """
    confine(settings)
    os.nice(5)  # whoever serves others must not wait for the code it serves
    sys.path += settings["paths"]
    channel = take_standard_streams()
    try:
        first: Any = decode(channel.read())
        channel.write(b"")
        try:
            module = __import__(first["module"], fromlist=[first["function"]])
            answer: Callable[[bytes], bytes] = getattr(module, first["function"])(first["job"])
            said = ("ok", "")
        except BaseException as error:  # noqa: BLE001 - told to the parent, which gives this process up
            said = ("error", f"{type(error).__name__}: {error}"[:1000])
        channel.write(encode(said))
        own = os.getpid()
        while said[0] == "ok":
            said_now = answer(channel.read())
            if os.getpid() != own:
                os._exit(0)  # a fork of the code under test that came back here: only its parent answers
            channel.write(said_now)
    except PeerGone:
        return
