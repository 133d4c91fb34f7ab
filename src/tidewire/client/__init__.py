"""Small clients of our own protocols, for the command line, the pipeline and users.

Reads from: a server's public endpoints. Feeds: whoever calls. Guarantee: failures are the errors of `tidewire.errors`,
whichever protocol reported them. Never does: load server code, so that Spark executors can use it.
"""
