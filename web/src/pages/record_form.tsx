// The form of one record: an input for each field that may be set.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FieldDescribe, Json, ObjectDescribe, SObject } from "../api";
import { formatValue } from "../format";
import { CheckField, Field, OpenForm, Problem, SaveButtons, SelectField, TextField, type Work } from "../ui";

type Draft = Record<string, string | boolean>;

const NUMBERS = ["int", "double", "currency", "percent", "long"];

export function RecordForm(props: {
  describe: ObjectDescribe;
  record: SObject;
  isNew: boolean;
  work: Work;
  onSave: (fields: Json) => void;
  onCancel: () => void;
}): JSX.Element {
  const fields = props.describe.fields.filter(
    (field) =>
      (props.isNew ? field.createable : field.updateable) && !["address", "location", "base64"].includes(field.type),
  );
  const [draft, setDraft] = useState<Draft>({}); // only what was typed
  const submit = (): void => {
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
    <OpenForm label={props.describe.label} onSubmit={submit} onCancel={props.onCancel}>
      <div class="grid">
        {fields.map((field) => (
          <FieldInput
            key={field.name}
            field={field}
            isWrong={props.work.fields.includes(field.name)}
            isRequired={!field.nillable && !(props.isNew && field.defaultedOnCreate)}
            value={draft[field.name] ?? begin(field, props.record[field.name])}
            onChange={(value) => setDraft((known) => ({ ...known, [field.name]: value }))}
          />
        ))}
      </div>
      <Problem text={props.work.problem} />
      <SaveButtons isBusy={props.work.isBusy} onCancel={props.onCancel} />
    </OpenForm>
  );
}

function FieldInput(props: {
  field: FieldDescribe;
  isRequired: boolean;
  isWrong: boolean;
  value: string | boolean;
  onChange: (value: string | boolean) => void;
}): JSX.Element {
  const { field, value, isWrong, onChange } = props;
  if (field.type === "boolean") {
    return <CheckField label={field.label} value={value === true} onChange={onChange} />;
  }
  const text = String(value);
  if (field.type === "picklist") {
    const known = field.picklistValues.filter((option) => option.active || option.value === text);
    const options = known.map((option) => [option.value, option.label] as const);
    const isKnown = text === "" || options.some(([option]) => option === text);
    const all = [["", "none"] as const, ...options, ...(isKnown ? [] : [[text, text] as const])];
    return <SelectField label={field.label} value={text} options={all} isWrong={isWrong} onChange={onChange} />;
  }
  if (field.type === "textarea") {
    return (
      <Field label={field.label}>
        {(ties) => (
          <textarea
            {...ties}
            rows={3}
            value={text}
            aria-invalid={isWrong}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
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
      isWrong={isWrong}
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
