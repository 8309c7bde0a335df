"""Splits written for this project, in the published benchmark schemas, and the script that makes
them.
"""
