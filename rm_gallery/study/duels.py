"""Earlier names of `rm_gallery.study.pairwise_comparisons`."""

from rm_gallery.study.pairwise_comparisons import *  # noqa: F403
from rm_gallery.study.pairwise_comparisons import PairwiseComparison as Duel  # noqa: F401
from rm_gallery.study.pairwise_comparisons import mean_finding as found  # noqa: F401
