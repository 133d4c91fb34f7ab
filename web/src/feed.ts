// The stream of change events, through the ordinary CometD client.
//
// CometD itself retries lost connections and shakes hands again when the server has forgotten it. What it leaves to
// its user is done here: subscribing after every handshake, from the last event seen, and noticing the two ends that
// a retry cannot mend (a login that no longer counts, a replay id that the log no longer has).

import { CometD, type Extension, type Message } from "cometd";

const API_VERSION = "67.0";
const CHANNEL = "/data/ChangeEvents";
const REPLAY_ALL = -2;

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
  /** The server refuses the channel itself. The feed has stopped. */
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

export function startFeed(token: string, bookmark: Bookmark, listener: FeedListener): void {
  const cometd = new CometD();
  // A browser's websocket cannot carry an Authorization header, and JSONP carries none at all.
  cometd.unregisterTransport("websocket");
  cometd.unregisterTransport("callback-polling");
  cometd.registerExtension("replay", replayExtension(bookmark));
  cometd.configure({
    url: `${location.origin}/cometd/${API_VERSION}`,
    requestHeaders: { Authorization: `Bearer ${token}` },
    maxBackoff: 5_000,
    appendMessageTypeToURL: false,
    // The scheduler would be a worker made from a blob, which the page's content security policy forbids.
    useWorkerScheduler: false,
  });

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
    if (reason === "" || reason.startsWith("401") || reason === "403::Unknown client") {
      // The network, or a server that has forgotten this session: the next connect tells how to go on.
      return;
    }
    if (/replayId .* was invalid/.test(reason) && bookmark.replayId !== REPLAY_ALL) {
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
    cometd.subscribe(CHANNEL, onChange, onSubscribed);
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
}

/** Whether the server itself, not the network, said that there is no going on with this login. */
function isFinal(reply: Message & { failure?: { httpCode?: number } }): boolean {
  if (reply.error === undefined) {
    return reply.failure?.httpCode === 401;
  }
  return reply.advice?.reconnect === "none" || reply.error.startsWith("401");
}

function replayExtension(bookmark: Bookmark): Extension {
  return {
    outgoing(message) {
      if (message.channel === "/meta/subscribe") {
        message.ext = { ...message.ext, replay: { [CHANNEL]: bookmark.replayId } };
      }
      return message;
    },
  };
}

function parseChange(wire: WireChange): ChangeEvent {
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
