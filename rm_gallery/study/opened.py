"""Earlier name of `rm_gallery.study.runs`."""

from rm_gallery.study.runs import *  # noqa: F403
