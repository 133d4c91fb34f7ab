// One CometD client for a page that lets a person subscribe: what was said on the meta channels, and what arrived.

import type { CometD, Message, SubscriptionHandle } from "cometd";
import { isFinal, newClient, REPLAY_NEW } from "./client";
import { Store } from "./store";

const MAX_LINES = 200;
const MAX_EVENTS = 500;

/** One reply on a meta channel, or several consecutive connects without news. */
export interface LogLine {
  number: number;
  times: number;
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
  /** How many events arrived since the channel was subscribed to. */
  readonly arrived = new Store(0);
  readonly state = new Store<StreamState>("closed");
  /** Why the server rejected the channel; empty if it did not. */
  readonly refusal = new Store("");
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
    this.arrived.set(0);
    this.refusal.set("");
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
          this.refusal.set(reply.successful ? "" : (reply.error ?? ""));
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
      // After a lost connection the client does a new handshake and resumes from here.
      this.#replayFrom.set(channel, replayId);
    }
    this.#count += 1;
    const arrival = { number: this.#count, atMs: Date.now(), channel, replayId, data };
    this.arrived.set(this.arrived.value + 1);
    this.arrivals.set([arrival, ...this.arrivals.value].slice(0, MAX_EVENTS));
  }

  #write(line: LogLine): void {
    const [before, ...older] = this.log.value;
    // On a busy channel every poll ends in a connect: listed one by one, they would push out everything else.
    const lines = isRepeated(line, before)
      ? [{ ...line, number: before.number, times: before.times + 1 }, ...older]
      : [line, ...this.log.value];
    this.log.set(lines.slice(0, MAX_LINES));
  }

  #note(what: string, reply: Message): void {
    const isGood = reply.successful === true;
    this.#count += 1;
    this.#write({ number: this.#count, times: 1, atMs: Date.now(), what, isGood, text: renderReply(reply) });
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

/** Whether a connect only continues the one before, as every poll does. */
function isRepeated(line: LogLine, before: LogLine | undefined): before is LogLine {
  return line.what === "connect" && line.isGood && before?.what === "connect" && before.isGood;
}

/** The reply in one line, without what is the transport's own. */
function renderReply(reply: Message & { failure?: unknown }): string {
  const { failure: _, ...shown } = reply;
  return JSON.stringify(shown);
}

const QUIET_MS = 1_500;
const LONGEST_MS = 15_000;

/**
 * Read what a channel has after an event, until `take` says that it is enough or nothing more comes for a while; one
 * that never falls silent is left all the same. Rejects with the server's reason.
 */
export function readChannel(
  token: string,
  channel: string,
  replayFrom: number,
  take: (data: Record<string, unknown>) => boolean,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const cometd = newClient(token, () => replayFrom);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const longest = setTimeout(() => finish(resolve), LONGEST_MS);
    const finish = (report: () => void): void => {
      clearTimeout(timer);
      clearTimeout(longest);
      cometd.clearListeners();
      cometd.clearSubscriptions();
      cometd.disconnect();
      report();
    };
    const wait = (): void => {
      clearTimeout(timer);
      timer = setTimeout(() => finish(resolve), QUIET_MS);
    };
    cometd.addListener("/meta/handshake", (reply) => {
      if (!reply.successful) {
        finish(() => reject(new Error(reply.error ?? "The server could not be reached.")));
        return;
      }
      cometd.subscribe(
        channel,
        (message) => {
          if (take(message.data as Record<string, unknown>)) {
            finish(resolve);
          } else {
            wait();
          }
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
