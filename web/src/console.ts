// What every page of a signed-in console can reach.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Api } from "./api";
import type { ChangeEvent } from "./feed";
import { NOTHING_KNOWN, type Known } from "./sampler";
import type { SignedIn } from "./session";
import { Store } from "./store";

const MAX_EVENTS = 200;
const DRAW_EVERY_MS = 100;

export interface Connection {
  state: string;
  text: string;
}

/** The change events that arrived, newest first, and how many there were in all. */
export class Events {
  readonly shown = new Store<readonly ChangeEvent[]>([]);
  readonly received = new Store(0);
  readonly isPaused = new Store(false);
  #waiting: ChangeEvent[] = [];
  #count = 0;
  #isDue = false;

  add(event: ChangeEvent): void {
    this.#count += 1;
    this.#waiting.unshift(event);
    this.#waiting.length = Math.min(this.#waiting.length, MAX_EVENTS);
    if (!this.#isDue) {
      // A replay of a full log brings thousands: they are drawn together.
      this.#isDue = true;
      setTimeout(() => this.#draw(), DRAW_EVERY_MS);
    }
  }

  clear(): void {
    this.#waiting = [];
    this.#count = 0;
    this.shown.set([]);
    this.received.set(0);
    this.isPaused.set(false);
  }

  pause(isPaused: boolean): void {
    this.isPaused.set(isPaused);
    this.#draw();
  }

  #draw(): void {
    this.#isDue = false;
    this.received.set(this.#count);
    if (this.isPaused.value) {
      return;
    }
    const waiting = this.#waiting;
    this.#waiting = [];
    this.shown.set([...waiting, ...this.shown.value].slice(0, MAX_EVENTS));
  }
}

export class Console {
  readonly api: Api;
  readonly session: SignedIn;
  readonly events: Events;
  readonly onSignedOut: () => void;
  readonly known = new Store<Known>(NOTHING_KNOWN);

  constructor(api: Api, session: SignedIn, events: Events, onSignedOut: () => void) {
    this.api = api;
    this.session = session;
    this.events = events;
    this.onSignedOut = onSignedOut;
  }
}

export const ConsoleContext = createContext<Console | null>(null);

export function useConsole(): Console {
  const found = useContext(ConsoleContext);
  if (found === null) {
    throw new Error("no page is drawn before signing in");
  }
  return found;
}
