// What a pipeline's own account of its lake says in words.

import { formatNumber, formatSpan } from "./format";
import type { LakeStatus, Pipeline, ReplicaRow } from "./sampler";

/** The words for a pipeline that is at work; with any other, its lag says nothing. */
const FOLLOWING = ["ok", "behind"];

/** How fresh the lake is, in a word or two. */
export function freshness(pipeline: Pipeline): string {
  const { state, status } = pipeline;
  if (status === null) {
    return "none";
  }
  if (state === "stopped") {
    return "not running";
  }
  if (status.health !== undefined && !FOLLOWING.includes(status.health)) {
    return status.health;
  }
  const lagMs = status.lag_ms ?? 0;
  if (lagMs > 0 && (status.waiting ?? 0) + (status.unread ?? 0) > 0) {
    return `${formatSpan(lagMs)} behind`;
  }
  return isResyncing(status) ? "reading again" : "up to date";
}

/** How the pipeline does: its own word while it runs, and whether it failed when it no longer does. */
export function health(pipeline: Pipeline): string {
  const word = pipeline.status?.health ?? "";
  return pipeline.state === "running" || word === "failed" ? word : "stopped";
}

/** How one object's replica stands. */
export function replicaState(status: LakeStatus, row: ReplicaRow): string {
  if (status.failed?.includes(row.entity) === true) {
    return "cannot be read";
  }
  if (Array.isArray(status.resyncing) && status.resyncing.includes(row.entity)) {
    return "being read again";
  }
  return (row.stale ?? 0) > 0 ? "has stale records" : "in sync";
}

function isResyncing(status: LakeStatus): boolean {
  const told = status.resyncing ?? 0;
  return typeof told === "number" ? told > 0 : told.length > 0;
}

/** Records that are stale after a gap or overflow event and not read again yet. */
export function countStale(status: LakeStatus): number {
  return status.dirty ?? (status.replicas ?? []).reduce((sum, row) => sum + (row.stale ?? 0), 0);
}

/** The objects that are being read again as a whole. */
export function resyncing(status: LakeStatus): string {
  const told = status.resyncing ?? 0;
  if (typeof told === "number") {
    return told === 0 ? "" : `${told} ${told === 1 ? "object is" : "objects are"} being read again as a whole.`;
  }
  return told.length === 0 ? "" : `Being read again as a whole: ${told.join(", ")}.`;
}

/** A text about stale records; those that the server does not return stay stale. */
export function staleness(status: LakeStatus): string {
  const waiting = countStale(status);
  const givenUp = status.given_up ?? 0;
  const told = [
    waiting > 0 && `${formatNumber(waiting)} records are stale: a gap event reported a change, and they are queued to be read again.`,
    givenUp > 0 && `${formatNumber(givenUp)} stay stale: the server refuses to give them.`,
  ].filter(Boolean);
  return told.length === 0 ? "No record is stale: every gap is closed." : told.join(" ");
}

/** The objects that cannot be read again. */
export function failed(status: LakeStatus): string {
  const names = status.failed ?? [];
  return names.length === 0 ? "" : `Not to be read again, though they should be: ${names.join(", ")}.`;
}

export function countDeadLetters(status: LakeStatus): number {
  return Object.values(status.dead_letters ?? {}).reduce((sum, count) => sum + count, 0);
}
