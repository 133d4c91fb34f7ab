"""Stage 1: store records, and report the changes of each transaction.

Reads from: the front ends, through access. Feeds: capture, with one Change per written record, inside the
same transaction. Guarantee: a transaction's rows are stored whole or not at all, and what is stored fits its
type. Never does: decide who may write, or create an event.
"""
