"""The path under which the documents import it."""

from rm_gallery.core.runner.aggregator import WeightedSumAggregator as WeightedSumAggregator
