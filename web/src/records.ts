// Records as the explorer reads them: pages of one object's, one record even if it is deleted, and what refers to it.

import {
  Refused,
  type Api,
  type ChildRelationship,
  type FieldDescribe,
  type ObjectDescribe,
  type QueryPage,
  type SObject,
} from "./api";
import { API_VERSION, DATA } from "./version";

export const PAGE_ROWS = 50;
const LIST_FIELDS = 5;
const BATCH = 25;
const STAMP = "LastModifiedDate";
const NOT_LISTED = ["address", "location", "base64", "id"];

export interface RecordsWanted {
  /** Part of the name; empty for all. */
  name: string;
  isDeleted: boolean;
  /** The last row of the page before; null for the first page. */
  after: SObject | null;
}

/** The fields that a list shows: the name, what a person filled in first, and when it changed. */
export function listFields(describe: ObjectDescribe): FieldDescribe[] {
  const usable = describe.fields.filter(
    (field) => !NOT_LISTED.includes(field.type) && field.compoundFieldName === null,
  );
  const names = usable.filter((field) => field.nameField);
  const others = usable.filter((field) => field.createable && !field.nameField && field.type !== "textarea");
  const stamp = describe.fields.filter((field) => field.name === STAMP);
  return [...[...names, ...others].slice(0, LIST_FIELDS), ...stamp];
}

export function nameField(describe: ObjectDescribe): FieldDescribe | undefined {
  return describe.fields.find((field) => field.nameField && field.type !== "id");
}

export function hasField(describe: ObjectDescribe, name: string): boolean {
  return describe.fields.some((field) => field.name === name);
}

/**
 * A page of records, newest change first. It is found after the last row of the one before, since an offset ends at 2,000.
 */
export function readRecords(api: Api, describe: ObjectDescribe, wanted: RecordsWanted): Promise<QueryPage> {
  const fields = listFields(describe).map((field) => field.name);
  const order = fields.includes(STAMP) ? `${STAMP} DESC, Id` : "Id";
  const start = wanted.after === null ? [] : [after(wanted.after)];
  const where = renderWhere([...conditions(describe, wanted), ...start]);
  const selected = ["Id", ...fields].join(", ");
  const soql = `SELECT ${selected} FROM ${describe.name}${where} ORDER BY ${order} LIMIT ${PAGE_ROWS}`;
  return wanted.isDeleted ? api.queryAll(soql) : api.query(soql);
}

export async function countRecords(api: Api, describe: ObjectDescribe, wanted: RecordsWanted): Promise<number> {
  const soql = `SELECT count() FROM ${describe.name}${renderWhere(conditions(describe, wanted))}`;
  return (await (wanted.isDeleted ? api.queryAll(soql) : api.query(soql))).totalSize;
}

function conditions(describe: ObjectDescribe, wanted: RecordsWanted): string[] {
  const name = nameField(describe);
  const part = wanted.name.trim();
  return [
    ...(part === "" || name === undefined ? [] : [`${name.name} LIKE '%${escapeLike(part)}%'`]),
    ...(wanted.isDeleted ? ["IsDeleted = true"] : []),
  ];
}

function after(row: SObject): string {
  const id = String(row["Id"]);
  const stamp = row[STAMP];
  if (typeof stamp !== "string") {
    return `Id > '${id}'`;
  }
  const time = stamp.replace("+0000", "Z");
  return `(${STAMP} < ${time} OR (${STAMP} = ${time} AND Id > '${id}'))`;
}

function renderWhere(all: readonly string[]): string {
  return all.length === 0 ? "" : ` WHERE ${all.join(" AND ")}`;
}

function escapeLike(text: string): string {
  return text.replace(/[\\'%_]/g, "\\$&");
}

export interface FoundRecord {
  describe: ObjectDescribe;
  record: SObject;
  isDeleted: boolean;
}

/** One record; if it is deleted, as the recycle bin has it. */
export async function readRecord(api: Api, entity: string, recordId: string): Promise<FoundRecord> {
  const describe = await api.describe(entity);
  if (recordId === "") {
    return { describe, record: {}, isDeleted: false };
  }
  const resource = `${DATA}/sobjects/${encodeURIComponent(entity)}/${encodeURIComponent(recordId)}`;
  try {
    return { describe, record: await api.get<SObject>(resource), isDeleted: false };
  } catch (error) {
    if (!(error instanceof Refused) || error.status !== 404) {
      throw error;
    }
    const record = await tryDeleted(api, describe, recordId);
    if (record === null) {
      throw new Refused(404, error.code, "This record is deleted for good, or was never here.");
    }
    return { describe, record, isDeleted: true };
  }
}

async function tryDeleted(api: Api, describe: ObjectDescribe, recordId: string): Promise<SObject | null> {
  if (!hasField(describe, "IsDeleted") || !/^\w{15}(\w{3})?$/.test(recordId)) {
    return null;
  }
  const fields = describe.fields.filter((field) => field.type !== "base64").map((field) => field.name);
  const page = await api.queryAll(
    `SELECT ${fields.join(", ")} FROM ${describe.name} WHERE IsDeleted = true AND Id = '${recordId}'`,
  );
  return page.records[0] ?? null;
}

/** How many records of one relationship refer to a record. */
export interface Related {
  relationship: ChildRelationship;
  count: number;
}

/** The relationships that have records, in one call or few. What this user may not see is left out. */
export async function readRelated(api: Api, describe: ObjectDescribe, recordId: string): Promise<Related[]> {
  const named = describe.childRelationships.filter((each) => each.relationshipName !== null);
  const related: Related[] = [];
  for (let start = 0; start < named.length; start += BATCH) {
    const some = named.slice(start, start + BATCH);
    const answer = await api.call<{ results: { statusCode: number; result: QueryPage }[] }>(
      "POST",
      `${DATA}/composite/batch`,
      {
        batchRequests: some.map((each) => ({
          method: "GET",
          url: `v${API_VERSION}/query?q=${encodeURIComponent(`SELECT count() ${relatedFrom(each, recordId)}`)}`,
        })),
      },
    );
    some.forEach((relationship, index) => {
      const told = answer.results[index];
      if (told?.statusCode === 200 && told.result.totalSize > 0) {
        related.push({ relationship, count: told.result.totalSize });
      }
    });
  }
  return related;
}

/** The end of a query for the records that refer to one. */
export function relatedFrom(relationship: ChildRelationship, recordId: string): string {
  return `FROM ${relationship.childSObject} WHERE ${relationship.field} = '${recordId}'`;
}
