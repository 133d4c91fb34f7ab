"""Stage 1: the rules of standard objects, such as accounts, leads and activities, on top of the record
engine.

Reads from: `records`, which calls these rules at the points that it names. Feeds: the same transactions, with
plans of further writes. Guarantee: a rule checks everything before anything is written. Never does: write by
itself, or decide who may write.
"""
