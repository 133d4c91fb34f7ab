// Polls the server status every few seconds and keeps samples for the charts, whichever page is shown.

import { explain, Refused, type Api } from "./api";
import { Store } from "./store";
import { DATA, OWN } from "./version";

const EVERY_MS = 2_000;
const SAMPLES = 300;
const SLOW_EVERY = 5;
const NOT_REACHED = "The server could not be reached. Trying again.";

export interface StreamRow {
  client_id: string;
  username: string;
  topic: string;
  managed: string;
  position: number;
  pending: number;
  protocol: string;
  lag: number;
}

export interface ManagedRow {
  name: string;
  topic: string;
  state: string;
  is_read: boolean;
  position: number | null;
  lag: number | null;
}

export interface LogRow {
  family: string;
  events: number;
  payload_bytes: number;
  oldest_ms: number | null;
  is_counted: boolean;
  kept_hours: number;
}

export interface ServerStatus {
  head: number;
  streams: StreamRow[];
  managed: ManagedRow[];
  sessions: { bayeux: number; pubsub: number };
  delivered: Record<string, number>;
  log: LogRow[];
  counts: Record<string, number>;
}

export interface ReplicaRow {
  entity: string;
  stale?: number;
  [more: string]: unknown;
}

/** The status of a lake. Fields may be missing, and unknown ones are shown by name. */
export interface LakeStatus {
  /** The health of the pipeline, and its current problem. */
  health?: string;
  problem?: string;
  /** Positions that the server is ahead of the archive, null if that is not known. */
  unread?: number | null;
  archived_through?: number;
  applied_through?: number;
  archived?: number;
  waiting?: number;
  lag_ms?: number;
  open_transaction_ms?: number;
  dirty?: number;
  given_up?: number;
  resyncing?: number | string[];
  failed?: string[];
  dead_letters?: Record<string, number>;
  replicas?: ReplicaRow[];
  table_versions?: Record<string, number>;
  [more: string]: unknown;
}

export interface Pipeline {
  state: "running" | "stopped" | "not_set" | "not_installed" | "empty" | "unreadable";
  message: string;
  status: LakeStatus | null;
}

export type Limits = Record<string, { Max: number; Remaining: number }>;

/** One moment, for the charts. Rates are per second since the moment before. */
export interface Sample {
  atMs: number;
  appended: number;
  delivered: number;
  requests: number;
  sessions: number;
  worstLag: number;
  lakeWaiting: number | null;
  lakeLagS: number | null;
}

export interface Known {
  status: ServerStatus | null;
  pipeline: Pipeline | null;
  limits: Limits | null;
  /** What went wrong when asking; it may go right the next time. */
  problem: string;
  /** Why this login gets no status; empty if it does. */
  statusRefused: string;
  pipelineRefused: string;
  samples: readonly Sample[];
}

export const NOTHING_KNOWN: Known = {
  status: null,
  pipeline: null,
  limits: null,
  problem: "",
  statusRefused: "",
  pipelineRefused: "",
  samples: [],
};

/** What a moment counted, to tell rates from the next. */
interface Counted {
  atMs: number;
  head: number;
  delivered: number;
  requests: number;
}

/** Poll until stopped. Resources that this login may not read are requested once. */
export function startSampler(api: Api, known: Store<Known>): () => void {
  const refusals = new Map<string, string>();
  let isOver = false;
  let turn = 0;
  let before: Counted | null = null;
  const ask = async <T,>(path: string): Promise<T | null> => {
    if (refusals.has(path)) {
      return null;
    }
    try {
      return await api.get<T>(path);
    } catch (error) {
      if (error instanceof Refused && error.status === 403) {
        refusals.set(path, error.message);
        return null;
      }
      throw error;
    }
  };
  const take = async (): Promise<void> => {
    const isSlowTurn = turn % SLOW_EVERY === 0;
    turn += 1;
    const status = await ask<ServerStatus>(`${OWN}/status`);
    const pipeline = await ask<Pipeline>(`${OWN}/pipeline`);
    const limits = isSlowTurn ? await ask<Limits>(`${DATA}/limits`) : known.value.limits;
    const now = status === null ? null : count(status);
    const isSample = before !== null && now !== null && status !== null;
    const samples = isSample ? [renderSample(before as Counted, now, status, pipeline)] : [];
    before = now;
    if (!isOver) {
      const all = [...known.value.samples, ...samples].slice(-SAMPLES);
      known.set({
        status,
        pipeline,
        limits,
        problem: "",
        statusRefused: refusals.get(`${OWN}/status`) ?? "",
        pipelineRefused: refusals.get(`${OWN}/pipeline`) ?? "",
        samples: all,
      });
    }
  };
  const run = async (): Promise<void> => {
    while (!isOver) {
      if (document.hidden) {
        before = null; // nobody looks: ask nothing
        await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
        continue;
      }
      try {
        await take();
      } catch (error) {
        if (!isOver) {
          const problem = error instanceof Refused ? explain(error) : NOT_REACHED;
          known.set({ ...known.value, problem });
        }
        before = null;
      }
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  };
  void run();
  return () => {
    isOver = true;
  };
}

function count(status: ServerStatus): Counted {
  return {
    atMs: Date.now(),
    head: status.head,
    delivered: Object.values(status.delivered).reduce((sum, events) => sum + events, 0),
    requests: status.counts["rest.requests_received"] ?? 0,
  };
}

function renderSample(before: Counted, now: Counted, status: ServerStatus, pipeline: Pipeline | null): Sample {
  const seconds = Math.max(0.001, (now.atMs - before.atMs) / 1000);
  // A server that was started again counts from nothing.
  const rate = (from: number, to: number): number => Math.max(0, to - from) / seconds;
  const lake = pipeline?.status ?? null;
  return {
    atMs: now.atMs,
    appended: rate(before.head, now.head),
    delivered: rate(before.delivered, now.delivered),
    requests: rate(before.requests, now.requests),
    sessions: status.sessions.bayeux + status.sessions.pubsub,
    worstLag: Math.max(0, ...status.streams.map((stream) => stream.lag)),
    lakeWaiting: lake?.waiting ?? null,
    lakeLagS: lake?.lag_ms === undefined ? null : lake.lag_ms / 1000,
  };
}
