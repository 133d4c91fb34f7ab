"""Stage 4: decide who may read and publish which events, and in which form.

Reads from: catalog, push topics and a user's grants. Feeds: delivery, with the topics that a channel shows and the
fields that its reader must not see; and the eventlog, with what users push to generic channels. Guarantee: no channel
that a user can open shows anything that they may not read. Never does: touch a subscriber's state.
"""
