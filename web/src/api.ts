// Calls to the server's public REST, Tooling and status resources, on behalf of one login.

import { DATA, OWN } from "./version";

export type Json = Record<string, unknown>;

/** The server's own words for a no. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;
  readonly fields: readonly string[];

  constructor(status: number, code: string, message: string, fields: readonly string[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.fields = fields;
  }
}

export interface QueryPage {
  totalSize: number;
  done: boolean;
  nextRecordsUrl?: string;
  records: SObject[];
}

export interface SObject {
  attributes?: { type: string; url?: string };
  [field: string]: unknown;
}

export interface ObjectEntry {
  name: string;
  label: string;
  labelPlural: string;
  keyPrefix: string | null;
  custom: boolean;
  createable: boolean;
  deletable: boolean;
  queryable: boolean;
  updateable: boolean;
}

export interface FieldDescribe {
  name: string;
  label: string;
  type: string;
  length: number;
  createable: boolean;
  updateable: boolean;
  nillable: boolean;
  defaultedOnCreate: boolean;
  nameField: boolean;
  calculated: boolean;
  compoundFieldName: string | null;
  picklistValues: { value: string; label: string; active: boolean }[];
  referenceTo: string[];
}

export interface ChildRelationship {
  relationshipName: string | null;
  childSObject: string;
  field: string;
}

export interface ObjectDescribe extends ObjectEntry {
  undeletable: boolean;
  fields: FieldDescribe[];
  childRelationships: ChildRelationship[];
}

export class Api {
  readonly token: string;
  readonly #onSignedOut: () => void;
  #prefixes: Promise<Map<string, string>> | null = null;
  readonly #describes = new Map<string, Promise<ObjectDescribe>>();

  constructor(token: string, onSignedOut: () => void) {
    this.token = token;
    this.#onSignedOut = onSignedOut;
  }

  /** The answer's JSON, null if it has no body. Throws Refused, or whatever fetch throws when there is no server. */
  async call<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
    const response = await fetch(path, {
      method,
      cache: "no-store",
      headers: {
        Authorization: `Bearer ${this.token}`,
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (response.ok) {
      return (text === "" ? null : JSON.parse(text)) as T;
    }
    const refusal = parseRefusal(response.status, text);
    if (response.status === 401) {
      this.#onSignedOut();
    }
    throw refusal;
  }

  get<T>(path: string): Promise<T> {
    return this.call<T>("GET", path);
  }

  query(soql: string): Promise<QueryPage> {
    return this.get(`${DATA}/query?q=${encodeURIComponent(soql)}`);
  }

  /** Deleted records too. */
  queryAll(soql: string): Promise<QueryPage> {
    return this.get(`${DATA}/queryAll?q=${encodeURIComponent(soql)}`);
  }

  tooling(soql: string): Promise<QueryPage> {
    return this.get(`${DATA}/tooling/query?q=${encodeURIComponent(soql)}`);
  }

  async create(resource: string, fields: Json): Promise<string> {
    const saved = await this.call<{ id: string }>("POST", `${DATA}/${resource}`, fields);
    return saved.id;
  }

  update(resource: string, id: string, fields: Json): Promise<null> {
    return this.call("PATCH", `${DATA}/${resource}/${encodeURIComponent(id)}`, fields);
  }

  remove(resource: string, id: string): Promise<null> {
    return this.call("DELETE", `${DATA}/${resource}/${encodeURIComponent(id)}`);
  }

  async objects(): Promise<ObjectEntry[]> {
    const found = await this.get<{ sobjects: ObjectEntry[] }>(`${DATA}/sobjects`);
    return found.sobjects;
  }

  /** The object that a record's id belongs to, by its first three characters; kept like `describe`. */
  async entityOf(recordId: string): Promise<string | undefined> {
    this.#prefixes ??= this.objects().then((all) => new Map(all.map((entry) => [entry.keyPrefix ?? "", entry.name])));
    this.#prefixes.catch(() => (this.#prefixes = null));
    return (await this.#prefixes).get(recordId.slice(0, 3));
  }

  /** Kept for the rest of the login, since types change seldom; `forgetTypes` after changing one. */
  describe(name: string): Promise<ObjectDescribe> {
    const known = this.#describes.get(name);
    if (known !== undefined) {
      return known;
    }
    const asked = this.#readDescribe(name);
    this.#describes.set(name, asked);
    asked.catch(() => this.#describes.delete(name));
    return asked;
  }

  async #readDescribe(name: string): Promise<ObjectDescribe> {
    try {
      return await this.get<ObjectDescribe>(`${DATA}/sobjects/${encodeURIComponent(name)}/describe`);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) {
        throw new Refused(404, error.code, notForUser(name));
      }
      throw error;
    }
  }

  forgetTypes(): void {
    this.#describes.clear();
    this.#prefixes = null;
  }

  own<T>(resource: string): Promise<T> {
    return this.get<T>(`${OWN}/${resource}`);
  }
}

function parseRefusal(status: number, text: string): Refused {
  try {
    const [first] = JSON.parse(text) as { errorCode?: string; message?: string; fields?: string[] }[];
    if (first?.message !== undefined) {
      return new Refused(status, first.errorCode ?? "", first.message, first.fields ?? []);
    }
  } catch {
    // Not in the form of the REST API: the status has to do.
  }
  return new Refused(status, "", `The server answered ${status}.`);
}

function notForUser(name: string): string {
  return `${name} does not exist here, or is not for this user to see.`;
}

/** What to tell a person about anything that was thrown. */
export function explain(error: unknown): string {
  if (error instanceof Refused) {
    // A query that the console itself wrote is no news; what is wrong with it is.
    const words = error.message.replace(/^[\s\S]*ERROR at Row:\d+:Column:\d+\n/, "").trim();
    const unknown = error.code === "INVALID_TYPE" ? /'(\w+)'/.exec(words)?.[1] : undefined;
    if (unknown !== undefined) {
      return `${notForUser(unknown)} (${error.code})`;
    }
    return error.code ? `${words} (${error.code})` : words;
  }
  return "The server could not be reached. Try again.";
}
