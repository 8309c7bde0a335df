"""The formats of the benchmarks under the name notebooks import; loaders find them without it."""

from rm_gallery.gallery.benchmarks.base import benchmarks, get_benchmark

__all__ = ["benchmarks", "get_benchmark"]
