"""Stage 4: who wants an event, and in which form.

Reads from: catalog, push topics and a user's grants. Feeds: delivery, with the topics a channel shows and the
fields its reader must not see; and the eventlog, with what users push to generic channels.
Guarantee: what a user may not read is not on any channel they can open. Never does: touch a subscriber's
state.
"""
