// Test a push topic against recent changes before it is saved.
//
// If the object's change events are captured, its recent ones are replayed and each is held against the topic: its
// operation, its changed fields, and whether the record satisfies the WHERE clause as it stands now. Otherwise the
// records changed lately that satisfy it are shown.

import { Refused, type Api } from "./api";
import { changeEventName } from "./selection";
import { parseChange, type ChangeEvent } from "./feed";
import type { ServerStatus } from "./sampler";
import { REPLAY_ALL } from "./client";
import { readChannel } from "./stream";

const LOOK_BACK = 2_000;
const MAX_SHOWN = 50;
const IDS_AT_ONCE = 100;
const RECENT_H = 24;

export interface TopicDraft {
  query: string;
  notifyForFields: string;
  operations: Record<"Create" | "Update" | "Delete" | "Undelete", boolean>;
}

export interface TestedChange {
  key: string;
  atMs: number;
  changeType: string;
  recordId: string;
  fields: string;
  wouldNotify: boolean;
  why: string;
}

export interface TopicTest {
  /** How it was found out, for the person who reads the result. */
  how: string;
  changes: TestedChange[];
}

interface ParsedQuery {
  selected: string[];
  entity: string;
  where: string;
}

/** A push topic's query taken apart. It can have no other clauses, so what follows WHERE is the condition. */
export function parseTopicQuery(soql: string): ParsedQuery | null {
  const parts = /^\s*select\s+([\s\S]+?)\s+from\s+(\w+)\s*(?:where\s+([\s\S]+?))?\s*$/i.exec(soql);
  if (parts === null) {
    return null;
  }
  const [, selected = "", entity = "", where = ""] = parts;
  return { selected: selected.split(",").map((name) => name.trim()), entity, where };
}

export async function testTopic(api: Api, draft: TopicDraft): Promise<TopicTest> {
  const parsed = parseTopicQuery(draft.query);
  if (parsed === null) {
    throw new Refused(400, "", "The query must be SELECT fields FROM object, perhaps with WHERE.");
  }
  // Report errors in the query before anything is replayed.
  await api.query(`${draft.query.trim()} LIMIT 1`);
  const query = { ...parsed, entity: (await api.describe(parsed.entity)).name };
  let changes: readonly ChangeEvent[];
  try {
    changes = await replay(api, query.entity);
  } catch {
    return testRecords(api, query);
  }
  return testChanges(api, draft, query, changes.slice(-MAX_SHOWN).reverse());
}

/** The last changes of an object, up to the log's head as it is now. */
async function replay(api: Api, entity: string): Promise<ChangeEvent[]> {
  const channel = `/data/${changeEventName(entity)}`;
  const head = await api.own<ServerStatus>("status").then(
    (status) => status.head,
    () => null,
  );
  let changes: ChangeEvent[] = [];
  const take = (data: Record<string, unknown>): boolean => {
    const change = parseChange(data as never);
    changes = [...changes.slice(1 - MAX_SHOWN), change];
    return head !== null && change.replayId >= head;
  };
  if (head !== null) {
    try {
      await readChannel(api.token, channel, head - LOOK_BACK, take);
    } catch {
      // The log does not reach back so far: everything it has is little.
    }
    if (changes.length > 0) {
      return changes;
    }
  }
  await readChannel(api.token, channel, REPLAY_ALL, take);
  return changes;
}

async function testChanges(
  api: Api,
  draft: TopicDraft,
  query: ParsedQuery,
  changes: readonly ChangeEvent[],
): Promise<TopicTest> {
  const matching = await findMatching(api, query, [...new Set(changes.flatMap((change) => change.recordIds))]);
  const fields = referencedFields(draft, query);
  return {
    how:
      `Replayed from the change events of ${query.entity}: each is held against the topic's operations and fields, ` +
      "and its record against WHERE as the record stands now.",
    changes: changes.flatMap((change) =>
      change.recordIds.slice(0, MAX_SHOWN).map((recordId) => {
        const why = whyNot(draft, change, fields, matching.has(recordId));
        return {
          key: `${change.replayId} ${recordId}`,
          atMs: change.committedMs,
          changeType: change.changeType,
          recordId,
          fields: change.fields.join(", "),
          wouldNotify: why === "",
          why: why || "matches",
        };
      }),
    ),
  };
}

/** Why the topic would not have sent a notification; empty if it would. */
function whyNot(draft: TopicDraft, change: ChangeEvent, fields: ReadonlySet<string> | null, matches: boolean): string {
  const operation = change.changeType.replace(/^GAP_/, "").toLowerCase();
  const entry = Object.entries(draft.operations).find(([name]) => name.toLowerCase() === operation);
  if (entry === undefined) {
    return "no record of its own";
  }
  if (!entry[1]) {
    return `${entry[0].toLowerCase()}s are not asked for`;
  }
  if (!matches) {
    return "WHERE does not hold";
  }
  const isUpdate = operation === "update" && !change.changeType.startsWith("GAP_");
  if (isUpdate && fields !== null && !change.fields.some((name) => fields.has(baseName(name)))) {
    return "none of its fields changed";
  }
  return "";
}

/** The fields whose change the topic wants to know of; null for any. */
function referencedFields(draft: TopicDraft, query: ParsedQuery): ReadonlySet<string> | null {
  const selected = query.selected.map((name) => name.toLowerCase());
  const filtered = (query.where.replace(/'(?:[^'\\]|\\.)*'/g, "").match(/[A-Za-z]\w*/g) ?? []).map((word) =>
    word.toLowerCase(),
  );
  switch (draft.notifyForFields) {
    case "All":
      return null;
    case "Select":
      return new Set(selected);
    case "Where":
      return new Set(filtered);
    default:
      return new Set([...selected, ...filtered]);
  }
}

/** A change names parts of compound fields with a dot: `Name.LastName`, `BillingAddress.City`. */
function baseName(field: string): string {
  const lower = field.toLowerCase();
  const [compound = "", part] = lower.split(".");
  if (part === undefined) {
    return lower;
  }
  return compound.endsWith("address") ? compound.slice(0, -"address".length) + part : part;
}

async function findMatching(api: Api, query: ParsedQuery, ids: readonly string[]): Promise<Set<string>> {
  const found = new Set<string>();
  for (let start = 0; start < ids.length; start += IDS_AT_ONCE) {
    const some = ids.slice(start, start + IDS_AT_ONCE).map((id) => `'${id}'`);
    const where = query.where === "" ? "" : `(${query.where}) AND `;
    const page = await api.queryAll(`SELECT Id FROM ${query.entity} WHERE ${where}Id IN (${some.join(", ")})`);
    for (const record of page.records) {
      found.add(String(record["Id"]));
    }
  }
  return found;
}

async function testRecords(api: Api, query: ParsedQuery): Promise<TopicTest> {
  const since = new Date(Date.now() - RECENT_H * 3_600_000).toISOString().replace(/\.\d+/, "");
  const where = query.where === "" ? "" : `(${query.where}) AND `;
  const page = await api.query(
    `SELECT Id, SystemModstamp FROM ${query.entity} WHERE ${where}SystemModstamp >= ${since}` +
      ` ORDER BY SystemModstamp DESC LIMIT ${MAX_SHOWN}`,
  );
  return {
    how:
      `${query.entity} is not selected for Change Data Capture, so its changes cannot be replayed. These records ` +
      `were changed in the last ${RECENT_H} hours (by SystemModstamp) and satisfy WHERE now.`,
    changes: page.records.map((record) => ({
      key: String(record["Id"]),
      atMs: Date.parse(String(record["SystemModstamp"]).replace(/\+0000$/, "Z")),
      changeType: "changed",
      recordId: String(record["Id"]),
      fields: "",
      wouldNotify: true,
      why: "matches",
    })),
  };
}
