"""Published figures, digit for digit, out of the files of benchmark data that stand beside the
checkout.
"""
