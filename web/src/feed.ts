// The stream of change events that the overview shows.
//
// CometD itself retries lost connections and shakes hands again when the server has forgotten it. What it leaves to
// its user is done here: subscribing after every handshake, from the last event seen, and noticing the two ends that
// a retry cannot mend (a login that no longer counts, a replay id that the log no longer has).

import type { Message } from "cometd";
import { isFinal, isPassing, isReplayInvalid, newClient, REPLAY_ALL } from "./client";

export const FEED_CHANNEL = "/data/ChangeEvents";

export interface ChangeEvent {
  replayId: number;
  changeType: string;
  entity: string;
  recordIds: string[];
  fields: string[];
  committedMs: number;
}

export type FeedState = "connecting" | "connected" | "broken";

export interface FeedListener {
  onEvent(event: ChangeEvent): void;
  onState(state: FeedState): void;
  /** The login no longer counts. The feed has stopped; make a new one with a new token. */
  onSignedOut(): void;
  /** The server rejected the channel. The feed has stopped. */
  onRefused(reason: string): void;
}

interface WireChange {
  payload: {
    ChangeEventHeader: {
      changeType: string;
      entityName: string;
      recordIds: string[];
      changedFields?: string[];
      commitTimestamp: number;
    };
    [field: string]: unknown;
  };
  event: { replayId: number };
}

/** Where to go on after a break. Shared by successive feeds, so that a new login does not repeat what was shown. */
export interface Bookmark {
  replayId: number;
}

export function newBookmark(): Bookmark {
  return { replayId: REPLAY_ALL };
}

/** Begin; returns the way to stop without a report. */
export function startFeed(token: string, bookmark: Bookmark, listener: FeedListener): () => void {
  const cometd = newClient(token, () => bookmark.replayId);
  let isOver = false;
  let isSubscribed = false;
  const finish = (report: () => void): void => {
    if (!isOver) {
      isOver = true;
      cometd.clearListeners();
      cometd.clearSubscriptions();
      cometd.disconnect();
      report();
    }
  };
  const onChange = (message: Message): void => {
    const event = parseChange(message.data as WireChange);
    bookmark.replayId = event.replayId;
    listener.onEvent(event);
  };
  const onSubscribed = (reply: Message): void => {
    if (reply.successful) {
      return;
    }
    isSubscribed = false;
    const reason = reply.error ?? "";
    if (isPassing(reason)) {
      return; // the next connect decides how to continue
    }
    if (isReplayInvalid(reason) && bookmark.replayId !== REPLAY_ALL) {
      // Older than what the log keeps, or from a log that has been replaced: show what there is now.
      bookmark.replayId = REPLAY_ALL;
      subscribe();
    } else {
      finish(() => listener.onRefused(reason));
    }
  };
  const subscribe = (): void => {
    isSubscribed = true;
    cometd.clearSubscriptions();
    cometd.subscribe(FEED_CHANNEL, onChange, onSubscribed);
  };

  cometd.addListener("/meta/handshake", (reply) => {
    if (reply.successful) {
      subscribe();
    } else if (isFinal(reply)) {
      finish(listener.onSignedOut);
    } else {
      listener.onState("broken");
    }
  });
  cometd.addListener("/meta/connect", (reply) => {
    if (reply.successful) {
      listener.onState("connected");
      if (!isSubscribed) {
        subscribe();
      }
    } else if (isFinal(reply)) {
      finish(listener.onSignedOut);
    } else {
      listener.onState("broken");
    }
  });
  listener.onState("connecting");
  cometd.handshake();
  return () => finish(() => undefined);
}

export function parseChange(wire: WireChange): ChangeEvent {
  const { ChangeEventHeader: header, ...values } = wire.payload;
  const named = header.changedFields ?? [];
  return {
    replayId: wire.event.replayId,
    changeType: header.changeType,
    entity: header.entityName,
    recordIds: header.recordIds,
    // Only updates name their fields in the header; a create shows what it set.
    fields: named.length > 0 ? named : Object.keys(values),
    committedMs: header.commitTimestamp,
  };
}
