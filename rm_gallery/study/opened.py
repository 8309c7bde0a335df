"""Earlier names of `rm_gallery.study.runs`."""

from rm_gallery.study.runs import *  # noqa: F403
from rm_gallery.study.runs import StepScore as StepSaid  # noqa: F401
