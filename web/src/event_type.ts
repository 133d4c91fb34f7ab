// A platform event of the org, as the Tooling API tells of it.

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
  /** What else is told of it, so that saving keeps it. */
  more: Record<string, unknown>;
}
