"""Questions asked of rewards: benchmarks, tables, win rates, comparisons, audits, drift, checks
before a launch.
"""
