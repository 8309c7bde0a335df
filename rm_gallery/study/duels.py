"""Earlier name of `rm_gallery.study.pairwise_comparisons`."""

from rm_gallery.study.pairwise_comparisons import *  # noqa: F403
