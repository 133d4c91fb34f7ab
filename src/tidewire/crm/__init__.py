"""Stage 1: the rules of standard objects, such as accounts, leads and activities.

Reads from: `records`, which calls these rules at the points that it names. Feeds: the same transactions, with
plans of further writes. Guarantee: a rule checks everything before anything is written. Never does: decide
who may write.
"""
