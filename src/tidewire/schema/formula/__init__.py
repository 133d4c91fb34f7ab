"""Formulas: from the text of a formula field to a value for each record.

Reads from: a formula's text, the object it stands on, and rows of stored values. Feeds: `records.derived`.
Guarantee: errors in a formula are raised when it is defined; one that was accepted gives a value or null for every
row and never fails. Never does: I/O, clocks; no part of a formula becomes source text.
"""
