// The ordinary CometD client, set up for this server and this page.

import { CometD, type Message } from "cometd";
import { API_VERSION } from "./version";

export const REPLAY_NEW = -1;
export const REPLAY_ALL = -2;

/** A client before its handshake. `replayFrom` returns the replay id to resume after, by channel. */
export function newClient(token: string, replayFrom: (channel: string) => number | undefined): CometD {
  const cometd = new CometD();
  // A browser's websocket cannot carry an Authorization header, and JSONP carries none at all.
  cometd.unregisterTransport("websocket");
  cometd.unregisterTransport("callback-polling");
  cometd.registerExtension("replay", {
    outgoing(message) {
      const channel = String(message.subscription ?? "");
      const from = message.channel === "/meta/subscribe" ? replayFrom(channel) : undefined;
      if (from !== undefined) {
        message.ext = { ...message.ext, replay: { [channel]: from } };
      }
      return message;
    },
  });
  cometd.configure({
    url: `${location.origin}/cometd/${API_VERSION}`,
    requestHeaders: { Authorization: `Bearer ${token}` },
    maxBackoff: 5_000,
    appendMessageTypeToURL: false,
    // The scheduler would be a worker made from a blob, which the page's content security policy forbids.
    useWorkerScheduler: false,
  });
  return cometd;
}

/** Whether the server itself, not the network, said that there is no going on with this login. */
export function isFinal(reply: Message & { failure?: { httpCode?: number } }): boolean {
  if (reply.error === undefined) {
    return reply.failure?.httpCode === 401;
  }
  return reply.advice?.reconnect === "none" || reply.error.startsWith("401");
}

/** Whether the server no longer has, or never had, the event to go on after. */
export function isReplayInvalid(reason: string): boolean {
  return /replayId .* was invalid/.test(reason);
}

/** Whether a subscribe failed because of the network, or because the server no longer knows the session. */
export function isPassing(reason: string): boolean {
  return reason === "" || reason.startsWith("401") || reason === "403::Unknown client";
}
