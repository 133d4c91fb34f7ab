// One platform event: its fields, and publishing one.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Api, FieldDescribe, Json } from "../api";
import { useConsole } from "../console";
import type { EventField, EventType } from "../event_type";
import { href } from "../route";
import { CheckField, DeleteButton, Problem, Section, SelectField, Table, TextField, useLoad, type Column } from "../ui";

const TYPES = {
  Text: { length: 255 },
  LongTextArea: { length: 32_768, visibleLines: 3 },
  Number: { precision: 18, scale: 2 },
  Checkbox: { defaultValue: "false" },
  Date: {},
  DateTime: {},
} as const;

async function addField(api: Api, event: EventType, name: string, type: keyof typeof TYPES): Promise<string> {
  const fullName = `${event.name}.${name.endsWith("__c") ? name : `${name}__c`}`;
  const label = name.replace(/__c$/, "").replace(/_/g, " ");
  const required = type === "Checkbox" || type === "LongTextArea" ? {} : { required: false };
  await api.create("tooling/sobjects/CustomField", {
    FullName: fullName,
    Metadata: { label, type, ...required, ...TYPES[type] },
  });
  api.forgetTypes();
  return `${fullName} created.`;
}

async function removeField(api: Api, event: EventType, field: EventField): Promise<string> {
  const name = field.fullName.replace(/__c$/, "");
  const found = await api.tooling(
    `SELECT Id FROM CustomField WHERE TableEnumOrId = '${event.id}' AND DeveloperName = '${name}'`,
  );
  for (const row of found.records) {
    await api.remove("tooling/sobjects/CustomField", String(row["Id"]));
  }
  api.forgetTypes();
  return `${field.fullName} deleted.`;
}

export function OpenEvent(props: {
  event: EventType;
  isBusy: boolean;
  onChange: (what: () => Promise<string>) => void;
}): JSX.Element {
  const { api } = useConsole();
  const { event } = props;
  const [name, setName] = useState("");
  const [type, setType] = useState<keyof typeof TYPES>("Text");
  const [values, setValues] = useState<Json>({});
  const described = useLoad(() => api.describe(event.name), [api, event]);
  const fields = (described.value?.fields ?? []).filter((field) => field.createable);
  const add = (submitted: Event): void => {
    submitted.preventDefault();
    props.onChange(async () => {
      const done = await addField(api, event, name, type);
      setName("");
      return done;
    });
  };
  const publish = (submitted: Event): void => {
    submitted.preventDefault();
    props.onChange(async () => {
      await api.create(`sobjects/${event.name}`, values);
      return `An event is published on /event/${event.name}.`;
    });
  };
  const columns: readonly Column<EventField>[] = [
    { name: "Field", cell: (field) => <code>{field.fullName}</code> },
    { name: "Label", cell: (field) => field.label },
    { name: "Type", cell: (field) => field.type },
    {
      name: "Actions",
      cell: (field) => (
        <DeleteButton
          what={field.fullName}
          isBusy={props.isBusy}
          onDelete={() => props.onChange(() => removeField(api, event, field))}
        />
      ),
    },
  ];
  return (
    <Section title={event.label}>
      <Problem text={described.problem} />
      <Table
        label={`Fields of ${event.label}`}
        columns={columns}
        rows={event.fields}
        empty="No fields yet."
        keyOf={(field) => field.fullName}
      />
      <form class="card" onSubmit={add}>
        <h3>Add a field</h3>
        <TextField label="Field name" value={name} hint="Ends with __c" onChange={setName} required />
        <SelectField
          label="Type"
          value={type}
          options={Object.keys(TYPES).map((word) => [word, word] as const)}
          onChange={(word) => setType(word as keyof typeof TYPES)}
        />
        <button type="submit" disabled={props.isBusy}>
          Add field
        </button>
      </form>
      <form class="card" onSubmit={publish}>
        <h3>Publish an event</h3>
        {fields.map((field) => (
          <EventValue
            key={field.name}
            field={field}
            value={values[field.name]}
            onChange={(value) => setValues((known) => ({ ...known, [field.name]: value }))}
          />
        ))}
        <p class="buttons">
          <button type="submit" disabled={props.isBusy}>
            Publish
          </button>
          <a href={href("demo", "plain", `/event/${event.name}`)}>Watch the channel</a>
        </p>
      </form>
    </Section>
  );
}

function EventValue(props: {
  field: FieldDescribe;
  value: unknown;
  onChange: (value: unknown) => void;
}): JSX.Element {
  const { field } = props;
  if (field.type === "boolean") {
    return <CheckField label={field.label} value={props.value === true} onChange={props.onChange} />;
  }
  const isNumber = ["double", "int", "currency", "percent"].includes(field.type);
  return (
    <TextField
      label={field.label}
      type={isNumber ? "number" : field.type === "date" ? "date" : "text"}
      value={props.value === undefined || props.value === null ? "" : String(props.value)}
      onChange={(text) => props.onChange(text === "" ? null : isNumber ? Number(text) : text)}
    />
  );
}
