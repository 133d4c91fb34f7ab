// A platform event of the org, as the Tooling API returns it.

export interface EventField {
  fullName: string;
  label: string;
  type: string;
}

export interface EventType {
  id: string;
  name: string;
  label: string;
  pluralLabel: string;
  publishBehavior: string;
  fields: EventField[];
  /** Other metadata, kept when saving. */
  more: Record<string, unknown>;
}
