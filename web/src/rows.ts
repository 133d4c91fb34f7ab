// The rows of a query as a flat table: a parent's fields become columns of their own, and all of it can become CSV.

import type { QueryPage, SObject } from "./api";
import { formatValue } from "./format";

export function isSubquery(value: unknown): value is QueryPage {
  return typeof value === "object" && value !== null && Array.isArray((value as QueryPage).records);
}

/** A row without a parent shows its column, others show the parent's fields: the latter count. */
export function columnsOfAll(rows: readonly SObject[]): string[] {
  const names = [...new Set(rows.flatMap((row) => columnsOf(row, "")))];
  return names.filter((name) => !names.some((other) => other.startsWith(`${name}.`)));
}

function columnsOf(row: SObject, prefix: string): string[] {
  return Object.entries(row).flatMap(([name, value]) => {
    if (name === "attributes") {
      return [];
    }
    const isParent = typeof value === "object" && value !== null && "attributes" in value;
    return isParent ? columnsOf(value as SObject, `${prefix}${name}.`) : [`${prefix}${name}`];
  });
}

export function valueAt(row: SObject, name: string): unknown {
  let value: unknown = row;
  for (const part of name.split(".")) {
    value = typeof value === "object" && value !== null ? (value as SObject)[part] : null;
  }
  return value;
}

/** As RFC 4180 wants it: quoted where it has to be, lines ended by CR LF. */
export function renderCsv(columns: readonly string[], rows: readonly SObject[]): string {
  const lines = rows.map((row) => columns.map((name) => renderCell(valueAt(row, name))));
  return [columns.map(quote), ...lines].map((cells) => `${cells.join(",")}\r\n`).join("");
}

function renderCell(value: unknown): string {
  return quote(isSubquery(value) ? JSON.stringify(value.records.map(withoutAttributes)) : formatValue(value));
}

function withoutAttributes({ attributes: _, ...fields }: SObject): SObject {
  return fields;
}

function quote(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
