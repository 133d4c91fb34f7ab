// Push topics: list, make, edit, delete, and try a query on what happened lately before saving it.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { SObject } from "../api";
import { useConsole } from "../console";
import { href } from "../route";
import { testTopic, type TestedChange, type TopicDraft, type TopicTest } from "../topic_test";
import {
  CheckField,
  DeleteButton,
  Done,
  Field,
  Moment,
  OpenForm,
  Page,
  Problem,
  Section,
  SelectField,
  Table,
  TextField,
  WatchLink,
  emptyText,
  useLoad,
  useWork,
  type Column,
} from "../ui";

const FIELDS =
  "Id, Name, Query, ApiVersion, IsActive, Description, NotifyForFields, NotifyForOperationCreate, " +
  "NotifyForOperationUpdate, NotifyForOperationDelete, NotifyForOperationUndelete";

interface Draft extends TopicDraft {
  id: string;
  name: string;
  description: string;
  isActive: boolean;
}

const NEW_DRAFT: Draft = {
  id: "",
  name: "",
  query: "SELECT Id, Name FROM Account",
  description: "",
  isActive: true,
  notifyForFields: "Referenced",
  operations: { Create: true, Update: true, Delete: true, Undelete: true },
};

function draftOf(row: SObject): Draft {
  return {
    id: String(row["Id"]),
    name: String(row["Name"]),
    query: String(row["Query"]),
    description: String(row["Description"] ?? ""),
    isActive: row["IsActive"] === true,
    notifyForFields: String(row["NotifyForFields"] ?? "Referenced"),
    operations: {
      Create: row["NotifyForOperationCreate"] === true,
      Update: row["NotifyForOperationUpdate"] === true,
      Delete: row["NotifyForOperationDelete"] === true,
      Undelete: row["NotifyForOperationUndelete"] === true,
    },
  };
}

export function Topics(): JSX.Element {
  const { api } = useConsole();
  const [draft, setDraft] = useState<Draft | null>(null);
  const work = useWork();
  const loaded = useLoad(() => api.query(`SELECT ${FIELDS} FROM PushTopic ORDER BY Name`), [api]);
  const remove = (row: SObject): Promise<void> =>
    work.run(async () => {
      await api.remove("sobjects/PushTopic", String(row["Id"]));
      loaded.again();
      return `${String(row["Name"])} deleted.`;
    });
  const save = (saved: Draft): Promise<void> =>
    work.run(async () => {
      const fields = {
        Name: saved.name,
        Query: saved.query,
        Description: saved.description || null,
        IsActive: saved.isActive,
        NotifyForFields: saved.notifyForFields,
        NotifyForOperationCreate: saved.operations.Create,
        NotifyForOperationUpdate: saved.operations.Update,
        NotifyForOperationDelete: saved.operations.Delete,
        NotifyForOperationUndelete: saved.operations.Undelete,
      };
      if (saved.id === "") {
        await api.create("sobjects/PushTopic", { ...fields, ApiVersion: 67.0 });
      } else {
        await api.update("sobjects/PushTopic", saved.id, fields);
      }
      setDraft(null);
      loaded.again();
      return `${saved.name} saved.`;
    });
  const open = (opened: Draft | null): void => {
    work.forget();
    setDraft(opened);
  };
  const columns: readonly Column<SObject>[] = [
    { name: "Name", cell: (row) => String(row["Name"]) },
    { name: "Query", cell: (row) => <code class="wrap">{String(row["Query"])}</code> },
    { name: "Fields", cell: (row) => String(row["NotifyForFields"] ?? "") },
    { name: "Active", cell: (row) => (row["IsActive"] === true ? "yes" : "no") },
    {
      name: "Actions",
      cell: (row) => (
        <span class="buttons">
          <button type="button" onClick={() => open(draftOf(row))}>
            Edit<span class="unseen"> {String(row["Name"])}</span>
          </button>
          <WatchLink channel={`/topic/${String(row["Name"])}`} />
          <DeleteButton what={String(row["Name"])} isBusy={work.isBusy} onDelete={() => void remove(row)} />
        </span>
      ),
    },
  ];
  return (
    <Page
      title="Push topics"
      intro="A push topic is a stored query; changes that match it are sent to the subscribers of /topic/ and its name."
    >
      <Problem text={loaded.problem || (draft === null ? work.problem : "")} />
      <Done text={work.done} />
      <Table
        label="Push topics"
        columns={columns}
        rows={loaded.value?.records ?? []}
        empty={emptyText(loaded, "No push topics yet.")}
        keyOf={(row) => String(row["Id"])}
      />
      <p>
        <button type="button" onClick={() => open(NEW_DRAFT)}>
          New push topic
        </button>
      </p>
      {draft !== null && (
        <TopicEditor
          key={draft.id}
          draft={draft}
          isBusy={work.isBusy}
          problem={work.problem}
          onChange={setDraft}
          onSave={() => void save(draft)}
          onCancel={() => open(null)}
        />
      )}
    </Page>
  );
}

function TopicEditor(props: {
  draft: Draft;
  isBusy: boolean;
  problem: string;
  onChange: (draft: Draft) => void;
  onSave: () => void;
  onCancel: () => void;
}): JSX.Element {
  const { api } = useConsole();
  const { draft, onChange } = props;
  const [test, setTest] = useState<TopicTest | null>(null);
  const testing = useWork();
  const tryIt = (): Promise<void> =>
    testing.run(async () => {
      setTest(null);
      setTest(await testTopic(api, draft));
      return "";
    });
  const title = draft.id === "" ? "New push topic" : "Edit push topic";
  return (
    <Section title={title}>
      <OpenForm label={title} onSubmit={props.onSave} onCancel={props.onCancel}>
        <TextField
          label="Name"
          value={draft.name}
          hint="At most 25 characters"
          onChange={(name) => onChange({ ...draft, name })}
          required
        />
        <Field label="Query">
          {(ties) => (
            <textarea
              {...ties}
              class="code"
              rows={3}
              spellcheck={false}
              required
              value={draft.query}
              onInput={(event) => onChange({ ...draft, query: event.currentTarget.value })}
            />
          )}
        </Field>
        <TextField
          label="Description"
          value={draft.description}
          onChange={(description) => onChange({ ...draft, description })}
        />
        <SelectField
          label="Notify for fields"
          value={draft.notifyForFields}
          options={["Referenced", "Select", "Where", "All"].map((word) => [word, word] as const)}
          onChange={(notifyForFields) => onChange({ ...draft, notifyForFields })}
        />
        <fieldset>
          <legend>Notify for operations</legend>
          {(["Create", "Update", "Delete", "Undelete"] as const).map((name) => (
            <CheckField
              key={name}
              label={name}
              value={draft.operations[name]}
              onChange={(value) => onChange({ ...draft, operations: { ...draft.operations, [name]: value } })}
            />
          ))}
        </fieldset>
        <CheckField label="Active" value={draft.isActive} onChange={(isActive) => onChange({ ...draft, isActive })} />
        <div class="buttons">
          <button type="submit" disabled={props.isBusy}>
            Save
          </button>
          <button type="button" disabled={testing.isBusy} onClick={() => void tryIt()}>
            Test against recent changes
          </button>
          <button type="button" onClick={props.onCancel}>
            Cancel
          </button>
        </div>
        <Problem text={props.problem || testing.problem} />
        <p role="status" class="quiet">
          {testing.isBusy ? "Reading recent changes." : ""}
        </p>
      </OpenForm>
      {test !== null && <TestResult test={test} query={draft.query} />}
    </Section>
  );
}

function TestResult(props: { test: TopicTest; query: string }): JSX.Element {
  const { changes, how } = props.test;
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [props.test]);
  const matching = changes.filter((change) => change.wouldNotify).length;
  const entity = /from\s+(\w+)/i.exec(props.query)?.[1] ?? "";
  const columns: readonly Column<TestedChange>[] = [
    { name: "Told", cell: (change) => (change.wouldNotify ? "yes" : "no") },
    { name: "Why", cell: (change) => change.why },
    { name: "Change", cell: (change) => change.changeType },
    {
      name: "Record",
      cell: (change) => (
        <a class="id" href={href("objects", entity, change.recordId)}>
          {change.recordId}
        </a>
      ),
    },
    { name: "Changed fields", cell: (change) => change.fields },
    { name: "When", cell: (change) => <Moment ms={change.atMs} /> },
  ];
  return (
    <div id="topic-test" ref={place}>
      <p role="status">
        <strong>
          {matching} of {changes.length} recent changes would have been sent.
        </strong>{" "}
        {how}
      </p>
      <Table
        isTall
        label="Recent changes"
        columns={columns}
        rows={changes}
        empty="No recent changes."
        keyOf={(change) => change.key}
      />
    </div>
  );
}
