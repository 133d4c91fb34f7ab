// One CometD client for a page that lets a person subscribe: what was said on the meta channels, and what arrived.

import type { CometD, Message, SubscriptionHandle } from "cometd";
import { isFinal, newClient, REPLAY_NEW } from "./client";
import { Store } from "./store";

const MAX_LINES = 200;
const MAX_EVENTS = 500;

/** One reply on a meta channel. */
export interface LogLine {
  number: number;
  atMs: number;
  what: string;
  isGood: boolean;
  text: string;
}

/** One event as it came. */
export interface Arrival {
  number: number;
  atMs: number;
  channel: string;
  replayId: number | null;
  data: Record<string, unknown>;
}

export type StreamState = "closed" | "connecting" | "connected" | "broken";

export class Stream {
  readonly log = new Store<readonly LogLine[]>([]);
  readonly arrivals = new Store<readonly Arrival[]>([]);
  readonly state = new Store<StreamState>("closed");
  /** The channel that is subscribed to, empty if none is. */
  readonly channel = new Store("");

  readonly #cometd: CometD;
  readonly #replayFrom = new Map<string, number>();
  readonly #onSignedOut: () => void;
  #handle: SubscriptionHandle | null = null;
  #wanted = "";
  #count = 0;

  constructor(token: string, onSignedOut: () => void) {
    this.#onSignedOut = onSignedOut;
    this.#cometd = newClient(token, (channel) => this.#replayFrom.get(channel));
    for (const what of ["handshake", "connect", "subscribe", "unsubscribe", "disconnect"]) {
      this.#cometd.addListener(`/meta/${what}`, (reply) => this.#note(what, reply));
    }
  }

  open(): void {
    this.state.set("connecting");
    this.#cometd.handshake();
  }

  close(): void {
    this.#wanted = "";
    this.#cometd.clearSubscriptions();
    this.#cometd.disconnect();
    this.state.set("closed");
  }

  /** Read a channel instead of the one that is read now, after an event or from one of the two ends. */
  subscribe(channel: string, replayFrom: number): void {
    this.unsubscribe();
    this.arrivals.set([]);
    this.#wanted = channel;
    this.#replayFrom.set(channel, replayFrom);
    if (this.#cometd.getStatus() === "connected" || this.#cometd.getStatus() === "connecting") {
      this.#subscribe();
    }
  }

  unsubscribe(): void {
    this.#wanted = "";
    if (this.#handle !== null) {
      this.#cometd.unsubscribe(this.#handle);
      this.#handle = null;
    }
    this.channel.set("");
  }

  #subscribe(): void {
    const channel = this.#wanted;
    this.#cometd.clearSubscriptions();
    this.#handle = this.#cometd.subscribe(
      channel,
      (message) => this.#take(channel, message),
      (reply) => {
        if (this.#wanted === channel) {
          this.channel.set(reply.successful ? channel : "");
          if (!reply.successful) {
            this.#handle = null;
          }
        }
      },
    );
  }

  #take(channel: string, message: Message): void {
    const data = message.data as Record<string, unknown>;
    const replayId = (data["event"] as { replayId?: number } | undefined)?.replayId ?? null;
    if (replayId !== null) {
      // After a lost connection the client shakes hands anew and goes on from here.
      this.#replayFrom.set(channel, replayId);
    }
    this.#count += 1;
    const arrival = { number: this.#count, atMs: Date.now(), channel, replayId, data };
    this.arrivals.set([arrival, ...this.arrivals.value].slice(0, MAX_EVENTS));
  }

  #note(what: string, reply: Message): void {
    const isGood = reply.successful === true;
    this.#count += 1;
    const line = { number: this.#count, atMs: Date.now(), what, isGood, text: renderReply(reply) };
    this.log.set([line, ...this.log.value].slice(0, MAX_LINES));
    if (what === "handshake" && isGood && this.#wanted !== "") {
      this.#subscribe();
    }
    if (!isGood && (what === "handshake" || what === "connect")) {
      this.state.set("broken");
      if (isFinal(reply)) {
        this.#onSignedOut();
      }
    } else if (what === "connect") {
      this.state.set("connected");
    }
  }
}

/** The reply in one line, without what is the transport's own. */
function renderReply(reply: Message & { failure?: unknown }): string {
  const { failure: _, ...shown } = reply;
  return JSON.stringify(shown);
}

/** Read what a channel has after an event, until nothing more comes for a while. Rejects with the server's reason. */
export function readChannel(
  token: string,
  channel: string,
  replayFrom: number,
  take: (data: Record<string, unknown>) => void,
  quietMs = 1_500,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const cometd = newClient(token, () => replayFrom);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const finish = (report: () => void): void => {
      clearTimeout(timer);
      cometd.clearListeners();
      cometd.disconnect();
      report();
    };
    const wait = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => finish(resolve), quietMs);
    };
    cometd.addListener("/meta/handshake", (reply) => {
      if (!reply.successful) {
        finish(() => reject(new Error(reply.error ?? "The server could not be reached.")));
        return;
      }
      cometd.subscribe(
        channel,
        (message) => {
          take(message.data as Record<string, unknown>);
          wait();
        },
        (answer) => {
          if (answer.successful) {
            wait();
          } else {
            finish(() => reject(new Error(answer.error ?? "The subscription was refused.")));
          }
        },
      );
    });
    cometd.handshake();
  });
}

/** What a person typed as the event to go on after: -2, -1 or a replay id. */
export function parseReplayFrom(text: string): number | null {
  const trimmed = text.trim();
  if (trimmed === "") {
    return REPLAY_NEW;
  }
  const value = Number(trimmed);
  return /^-?\d+$/.test(trimmed) && Number.isSafeInteger(value) && value >= -2 ? value : null;
}
