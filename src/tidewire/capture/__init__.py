"""Stage 2: turn record changes into events.

Reads from: records, with the changes of one transaction, before it commits. Feeds: eventlog, in the same transaction.
Guarantee: the events of a transaction follow from its changes alone; the same changes give the same events, here or in
a batch job. Never does: ask who is listening, or touch a socket, a clock or, outside `stage.py`, a database.
"""
