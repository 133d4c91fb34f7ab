// One record: its values and what refers to it; edited, deleted, undeleted; or a new one.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FieldDescribe, Json, ObjectDescribe, SObject } from "../api";
import { useConsole } from "../console";
import { formatField, formatValue } from "../format";
import { nameField, readRecord, type FoundRecord } from "../records";
import { go, href } from "../route";
import { undelete } from "../soap";
import { DeleteButton, Done, Page, Problem, Section, useLoad, useWork, type Work } from "../ui";
import { RecordForm } from "./record_form";
import { Related } from "./related";

/** `recordId` is empty for a new record. */
export function RecordPage(props: { entity: string; recordId: string }): JSX.Element {
  const { api } = useConsole();
  const { entity, recordId } = props;
  const work = useWork();
  const isNew = recordId === "";
  const [isEditing, setEditing] = useState(isNew);
  const loaded = useLoad(() => readRecord(api, entity, recordId), [api, entity, recordId]);
  const found = loaded.value;

  const save = (fields: Json): Promise<void> =>
    work.run(async () => {
      if (isNew) {
        go("objects", entity, await api.create(`sobjects/${entity}`, fields));
        return "Record created.";
      }
      await api.update(`sobjects/${entity}`, recordId, fields);
      setEditing(false);
      loaded.again();
      return "Record saved.";
    });
  const cancel = (): void => {
    work.forget();
    if (isNew) {
      go("objects", entity);
    } else {
      setEditing(false);
    }
  };
  const label = found?.describe.label ?? entity;
  return (
    <Page title={isNew ? `New ${label}` : `${label} ${found === null ? recordId : titleOf(found, recordId)}`}>
      <p class="bar">
        <a href={href("objects", entity)}>{found?.describe.labelPlural ?? entity}</a>
        {!isNew && <a href={href("pipeline", entity, recordId)}>History in the lake</a>}
      </p>
      <Problem text={loaded.problem || (isEditing ? "" : work.problem)} />
      <Done text={work.done} />
      {found !== null && !isEditing && (
        <>
          <Actions
            found={found}
            recordId={recordId}
            work={work}
            onEdit={() => setEditing(true)}
            onUndeleted={loaded.again}
          />
          <Values describe={found.describe} record={found.record} />
          {!found.isDeleted && <Related describe={found.describe} recordId={recordId} />}
        </>
      )}
      {found !== null && isEditing && (
        <RecordForm
          key={recordId}
          describe={found.describe}
          record={found.record}
          isNew={isNew}
          work={work}
          onSave={(fields) => void save(fields)}
          onCancel={cancel}
        />
      )}
    </Page>
  );
}

function titleOf(found: FoundRecord, recordId: string): string {
  const field = nameField(found.describe);
  return (field === undefined ? "" : formatValue(found.record[field.name])) || recordId;
}

function Actions(props: {
  found: FoundRecord;
  recordId: string;
  work: Work;
  onEdit: () => void;
  onUndeleted: () => void;
}): JSX.Element {
  const { api } = useConsole();
  const { recordId, work } = props;
  const { describe, isDeleted } = props.found;
  const remove = (): Promise<void> =>
    work.run(async () => {
      await api.remove(`sobjects/${describe.name}`, recordId);
      go("objects", describe.name);
      return "Record deleted.";
    });
  const restore = (): Promise<void> =>
    work.run(async () => {
      await undelete(api.token, recordId);
      props.onUndeleted();
      return "Record restored.";
    });
  if (isDeleted) {
    return (
      <p class="buttons">
        <span>This record is in the recycle bin.</span>
        <button type="button" disabled={work.isBusy} onClick={() => void restore()}>
          Undelete
        </button>
      </p>
    );
  }
  return (
    <p class="buttons">
      {describe.updateable && (
        <button type="button" onClick={props.onEdit}>
          Edit
        </button>
      )}
      {describe.deletable && (
        <DeleteButton what="this record" isBusy={work.isBusy} onDelete={() => void remove()} />
      )}
    </p>
  );
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
  const text = formatField(props.field.type, props.value);
  if (text === "") {
    return <span class="quiet">empty</span>;
  }
  return props.field.referenceTo.length > 0 ? <Reference field={props.field} id={text} /> : <>{text}</>;
}

/** The way to another record. A field that can name several objects does not say which: the id does. */
function Reference(props: { field: FieldDescribe; id: string }): JSX.Element {
  const { api } = useConsole();
  const { referenceTo } = props.field;
  const found = useLoad(
    () => (referenceTo.length === 1 ? Promise.resolve(referenceTo[0]) : api.entityOf(props.id)),
    [api, props.id],
  );
  if (typeof found.value !== "string") {
    return <span class="id">{props.id}</span>;
  }
  return (
    <a class="id" href={href("objects", found.value, props.id)}>
      {props.id}
    </a>
  );
}
