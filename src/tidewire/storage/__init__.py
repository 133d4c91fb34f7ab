"""Where an org's rows live: connections, migrations, transactions and the one writer.

Reads from: the stages above, as work to run inside a transaction. Feeds: the disk, and after each commit the
edge. Guarantee: what `GroupWriter` acknowledges is on the disk, whole; what fails left no trace. Never does:
know what a record or an event is.
"""
