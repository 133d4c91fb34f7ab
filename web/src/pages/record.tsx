// One record: view, edit, delete; or a new one.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Refused, type Api, type FieldDescribe, type Json, type ObjectDescribe, type SObject } from "../api";
import { useConsole } from "../console";
import { formatValue } from "../format";
import { go, href } from "../route";
import { DATA } from "../version";
import {
  CheckField,
  DeleteButton,
  Done,
  Field,
  Page,
  Problem,
  Section,
  SelectField,
  TextField,
  useLoad,
  useWork,
} from "../ui";

type Draft = Record<string, string | boolean>;

const NUMBERS = ["int", "double", "currency", "percent", "long"];

/** `recordId` is empty for a new record. */
export function RecordPage(props: { entity: string; recordId: string }): JSX.Element {
  const { api } = useConsole();
  const { entity, recordId } = props;
  const work = useWork();
  const [isEditing, setEditing] = useState(recordId === "");
  const loaded = useLoad(() => readRecord(api, entity, recordId), [api, entity, recordId]);
  const found = loaded.value;

  const save = (fields: Json): Promise<void> =>
    work.run(async () => {
      if (recordId === "") {
        go("objects", entity, await api.create(`sobjects/${entity}`, fields));
        return "The record is made.";
      }
      await api.update(`sobjects/${entity}`, recordId, fields);
      setEditing(false);
      loaded.again();
      return "The record is saved.";
    });
  const remove = (): Promise<void> =>
    work.run(async () => {
      await api.remove(`sobjects/${entity}`, recordId);
      go("objects", entity);
      return "The record is deleted.";
    });
  const label = found?.describe.label ?? entity;
  return (
    <Page title={recordId === "" ? `New ${label}` : `${label} ${recordId}`}>
      <p class="bar">
        <a href={href("objects", entity)}>{found?.describe.labelPlural ?? entity}</a>
        {recordId !== "" && <a href={href("pipeline", entity, recordId)}>History in the lake</a>}
      </p>
      <Problem text={loaded.problem || work.problem} />
      <Done text={work.done} />
      {found !== null && !isEditing && (
        <>
          <p class="buttons">
            {found.describe.updateable && (
              <button type="button" onClick={() => setEditing(true)}>
                Edit
              </button>
            )}
            {found.describe.deletable && (
              <DeleteButton what="this record" isBusy={work.isBusy} onDelete={() => void remove()} />
            )}
          </p>
          <Values describe={found.describe} record={found.record} />
        </>
      )}
      {found !== null && isEditing && (
        <Editor
          describe={found.describe}
          record={found.record}
          isNew={recordId === ""}
          isBusy={work.isBusy}
          onSave={(fields) => void save(fields)}
          onCancel={() => (recordId === "" ? go("objects", entity) : setEditing(false))}
        />
      )}
    </Page>
  );
}

async function readRecord(
  api: Api,
  entity: string,
  recordId: string,
): Promise<{ describe: ObjectDescribe; record: SObject }> {
  const describe = await api.describe(entity);
  if (recordId === "") {
    return { describe, record: {} };
  }
  try {
    return { describe, record: await api.get<SObject>(`${DATA}/sobjects/${entity}/${encodeURIComponent(recordId)}`) };
  } catch (error) {
    if (error instanceof Refused && error.status === 404) {
      throw new Refused(404, error.code, "This record is deleted, or was never here.");
    }
    throw error;
  }
}

function Values(props: { describe: ObjectDescribe; record: SObject }): JSX.Element {
  return (
    <Section title="Values">
      <dl class="values">
        {props.describe.fields
          .filter((field) => field.name in props.record && field.type !== "address" && field.type !== "location")
          .map((field) => (
            <div key={field.name}>
              <dt>
                {field.label} <code>{field.name}</code>
              </dt>
              <dd>
                <Value field={field} value={props.record[field.name]} />
              </dd>
            </div>
          ))}
      </dl>
    </Section>
  );
}

function Value(props: { field: FieldDescribe; value: unknown }): JSX.Element {
  const text = formatValue(props.value);
  const [target] = props.field.referenceTo;
  if (text !== "" && target !== undefined && props.field.referenceTo.length === 1) {
    return (
      <a class="id" href={href("objects", target, text)}>
        {text}
      </a>
    );
  }
  return text === "" ? <span class="quiet">empty</span> : <>{text}</>;
}

function Editor(props: {
  describe: ObjectDescribe;
  record: SObject;
  isNew: boolean;
  isBusy: boolean;
  onSave: (fields: Json) => void;
  onCancel: () => void;
}): JSX.Element {
  const fields = props.describe.fields.filter(
    (field) =>
      (props.isNew ? field.createable : field.updateable) && !["address", "location", "base64"].includes(field.type),
  );
  const [draft, setDraft] = useState<Draft>({});
  useEffect(() => {
    const begun = fields.map((field) => [field.name, begin(field, props.record[field.name])]);
    setDraft(Object.fromEntries(begun) as Draft);
  }, [props.describe, props.record]);
  const submit = (event: Event): void => {
    event.preventDefault();
    const changed: Json = {};
    for (const field of fields) {
      const value = draft[field.name];
      if (value !== undefined && value !== begin(field, props.record[field.name])) {
        changed[field.name] = finish(field, value);
      }
    }
    props.onSave(changed);
  };
  return (
    <form class="card" onSubmit={submit}>
      <div class="grid">
        {fields.map((field) => (
          <FieldInput
            key={field.name}
            field={field}
            isRequired={!field.nillable && !(props.isNew && field.defaultedOnCreate)}
            value={draft[field.name] ?? begin(field, null)}
            onChange={(value) => setDraft((known) => ({ ...known, [field.name]: value }))}
          />
        ))}
      </div>
      <div class="buttons">
        <button type="submit" disabled={props.isBusy}>
          Save
        </button>
        <button type="button" onClick={props.onCancel}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function FieldInput(props: {
  field: FieldDescribe;
  isRequired: boolean;
  value: string | boolean;
  onChange: (value: string | boolean) => void;
}): JSX.Element {
  const { field, value, onChange } = props;
  if (field.type === "boolean") {
    return <CheckField label={field.label} value={value === true} onChange={onChange} />;
  }
  const text = String(value);
  if (field.type === "picklist") {
    const known = field.picklistValues.filter((option) => option.active || option.value === text);
    const options = known.map((option) => [option.value, option.label] as const);
    const isKnown = text === "" || options.some(([option]) => option === text);
    const all = [["", "none"] as const, ...options, ...(isKnown ? [] : [[text, text] as const])];
    return <SelectField label={field.label} value={text} options={all} onChange={onChange} />;
  }
  if (field.type === "textarea") {
    return (
      <Field label={field.label}>
        {(id) => (
          <textarea id={id} rows={3} value={text} onInput={(event) => onChange(event.currentTarget.value)} />
        )}
      </Field>
    );
  }
  return (
    <TextField
      label={field.label}
      value={text}
      type={NUMBERS.includes(field.type) ? "number" : field.type === "date" ? "date" : "text"}
      required={props.isRequired}
      onChange={onChange}
      {...hintOf(field)}
    />
  );
}

function hintOf(field: FieldDescribe): { hint?: string } {
  if (field.referenceTo.length > 0) {
    return { hint: `Id of ${field.referenceTo.join(", ")}` };
  }
  switch (field.type) {
    case "datetime":
      return { hint: "As in 2026-01-31T09:30:00Z" };
    case "multipicklist":
      return { hint: "Values separated by semicolons" };
    default:
      return {};
  }
}

/** A stored value as its input shows it. */
function begin(field: FieldDescribe, value: unknown): string | boolean {
  return field.type === "boolean" ? value === true : formatValue(value);
}

/** What an input holds, as the API takes it. */
function finish(field: FieldDescribe, value: string | boolean): unknown {
  if (typeof value === "boolean") {
    return value;
  }
  if (value === "") {
    return null;
  }
  return NUMBERS.includes(field.type) ? Number(value) : value;
}
