"""Benchmarks, one file each: layout, detection, conversion, how it is judged, official rule, chance
and source.
"""
