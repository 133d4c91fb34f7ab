"""The lake: every change kept, and one replica table per object, written by Spark.

Reads from: the public Pub/Sub API of a server, through `tidewire.client`. Feeds: plain Delta tables under
one directory (bronze, schemas, history/<Entity>, replica/<Entity>, dead_letter, manifest). Guarantee: every
event of the channel is in every table exactly once whatever dies when, replicas move by whole transactions,
and what cannot be applied is in dead_letter with its reason. Never does: import server code, or touch the
server's own store.

The flow, one module a step:

    bus -> source -> archive -> bronze -> bronze_source -> decode -> fold -> apply -> replica
                                            (transactions cut it)            (manifest last)
"""
