// Numbers, sizes and times as a person reads them.

const NUMBER = new Intl.NumberFormat(undefined);
const RATE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

export function formatNumber(value: number): string {
  return NUMBER.format(value);
}

export function formatRate(value: number): string {
  return RATE.format(value);
}

export function formatBytes(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${RATE.format(value)} ${units[unit]}`;
}

export function formatTime(ms: number): string {
  return TIME.format(new Date(ms));
}

/** A duration in its most useful unit. */
export function formatSpan(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 120) {
    return `${RATE.format(seconds)} s`;
  }
  if (seconds < 7200) {
    return `${RATE.format(seconds / 60)} min`;
  }
  return seconds < 172_800 ? `${RATE.format(seconds / 3600)} h` : `${RATE.format(seconds / 86_400)} days`;
}

/** A field's value in a table or a list. */
export function formatValue(value: unknown): string {
  if (value === null || value === undefined) {
    return "";
  }
  if (typeof value === "object") {
    const { attributes: _, ...rest } = value as Record<string, unknown>;
    return Object.keys(rest).length === 1 && "Name" in rest ? String(rest["Name"]) : JSON.stringify(rest);
  }
  return String(value);
}

/** A field's value as a person reads it: times in their own zone. */
export function formatField(type: string, value: unknown): string {
  if (type === "datetime" && typeof value === "string") {
    const ms = Date.parse(value.replace("+0000", "Z"));
    return Number.isNaN(ms) ? value : formatTime(ms);
  }
  return formatValue(value);
}
