// Components shared by the pages.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { explain, Refused } from "./api";
import { formatTime } from "./format";
import { href } from "./route";

/** A page: its heading takes the focus when it is gone to, so that a keyboard or a screen reader begins there. */
export function Page(props: { title: string; intro?: ComponentChildren; children?: ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  // Before anything can be typed into what is drawn with it.
  useLayoutEffect(() => {
    document.title = `${props.title} · Tidewire`;
    heading.current?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [props.title]);
  return (
    <>
      <h1 ref={heading} tabIndex={-1}>
        {props.title}
      </h1>
      {props.intro !== undefined && <p class="intro">{props.intro}</p>}
      {props.children}
    </>
  );
}

export function Section(props: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section>
      <h2>{props.title}</h2>
      {props.children}
    </section>
  );
}

/** An error message, announced at once. The element stays in the page while empty, as screen readers need it. */
export function Problem(props: { text: string }): JSX.Element {
  return (
    <p class="problem" role="alert" hidden={props.text === ""}>
      {props.text}
    </p>
  );
}

/** Why something is not shown to this user: no failure, and nothing they did. */
export function NotTold(props: { reason: string }): JSX.Element {
  const { reason } = props;
  return <p class="quiet">Not shown: {reason}.</p>;
}

/** A timestamp on one line. */
export function Moment(props: { ms: number }): JSX.Element {
  return <time dateTime={new Date(props.ms).toISOString()}>{formatTime(props.ms)}</time>;
}

/** What went well. */
export function Done(props: { text: string }): JSX.Element {
  return (
    <p class="done" role="status" hidden={props.text === ""}>
      {props.text}
    </p>
  );
}

/** To where a channel is subscribed to and its events are seen. */
export function WatchLink(props: { channel: string }): JSX.Element {
  return (
    <a href={href("demo", "plain", props.channel)}>
      Watch<span class="unseen"> {props.channel}</span>
    </a>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  isNumber?: boolean;
}

/**
 * A table that scrolls by itself if it is wide. On a phone each row becomes a block of named values. The roles are said
 * since a browser takes them away from elements that are no longer laid out as a table.
 */
export function Table<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  empty: string;
  keyOf: (row: T) => string | number;
  id?: string;
  /** Long tables scroll by themselves. */
  isTall?: boolean;
}): JSX.Element {
  if (props.rows.length === 0) {
    return <p class="quiet">{props.empty}</p>;
  }
  return (
    <div class={props.isTall === true ? "scroll tall" : "scroll"} role="region" aria-label={props.label} tabIndex={0}>
      <table role="table">
        <thead role="rowgroup">
          <tr role="row">
            {props.columns.map((column) => (
              <th scope="col" role="columnheader" key={column.name} class={column.isNumber ? "number" : ""}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup" {...(props.id === undefined ? {} : { id: props.id })}>
          {props.rows.map((row) => (
            <tr role="row" key={props.keyOf(row)}>
              {props.columns.map((column) => (
                <td role="cell" key={column.name} data-name={column.name} class={column.isNumber ? "number" : ""}>
                  <div>{column.cell(row)}</div>
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What ties a control to its label and its hint. */
export interface Ties {
  id: string;
  "aria-describedby"?: string;
}

/** A labelled control; `children` is given what ties it to its label and hint. */
export function Field(props: {
  label: string;
  hint?: string;
  children: (ties: Ties) => ComponentChildren;
}): JSX.Element {
  const id = useId();
  const hintId = `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(props.hint === undefined ? { id } : { id, "aria-describedby": hintId })}
      {props.hint !== undefined && (
        <span class="hint" id={hintId}>
          {props.hint}
        </span>
      )}
    </div>
  );
}

export function TextField(props: {
  label: string;
  value: string;
  onChange: (value: string) => void;
  hint?: string;
  type?: "text" | "password" | "search" | "number" | "date";
  required?: boolean;
  autocomplete?: string;
  readOnly?: boolean;
  isWrong?: boolean;
}): JSX.Element {
  return (
    <Field label={props.label} {...(props.hint === undefined ? {} : { hint: props.hint })}>
      {(ties) => (
        <input
          {...ties}
          // One of several; the types of elements know each of them apart only.
          type={(props.type ?? "text") as "text"}
          step="any"
          value={props.value}
          required={props.required ?? false}
          readOnly={props.readOnly ?? false}
          aria-invalid={props.isWrong ?? false}
          autocomplete={props.autocomplete ?? "off"}
          spellcheck={false}
          onInput={(event) => props.onChange(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export function SelectField(props: {
  label: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  isWrong?: boolean;
  onChange: (value: string) => void;
}): JSX.Element {
  return (
    <Field label={props.label}>
      {(ties) => (
        <select
          {...ties}
          value={props.value}
          aria-invalid={props.isWrong ?? false}
          onChange={(event) => props.onChange(event.currentTarget.value)}
        >
          {props.options.map(([value, text]) => (
            <option key={value} value={value} selected={value === props.value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function CheckField(props: {
  label: string;
  value: boolean;
  onChange: (value: boolean) => void;
}): JSX.Element {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={props.value}
        onChange={(event) => props.onChange(event.currentTarget.checked)}
      />
      {props.label}
    </label>
  );
}

/** What `load` gave, asked for again when `keys` change or `again` is called. */
export interface Loaded<T> {
  value: T | null;
  problem: string;
  again: () => void;
}

export function useLoad<T>(load: () => Promise<T>, keys: readonly unknown[]): Loaded<T> {
  const [turn, setTurn] = useState(0);
  const [found, setFound] = useState<{ value: T | null; problem: string }>({ value: null, problem: "" });
  useEffect(() => {
    let isCurrent = true;
    load().then(
      (value) => isCurrent && setFound({ value, problem: "" }),
      (error: unknown) => isCurrent && setFound({ value: null, problem: explain(error) }),
    );
    return () => {
      isCurrent = false;
    };
  }, [...keys, turn]);
  return { ...found, again: () => setTurn((n) => n + 1) };
}

/** What stands where rows will be: that they are asked for, that they cannot be had, or that there are none. */
export function emptyText(loaded: Loaded<unknown>, none: string): string {
  if (loaded.problem !== "") {
    return "Nothing to show.";
  }
  return loaded.value === null ? "Loading." : none;
}

/** Work that a button starts: one at a time, with its outcome in words. */
export interface Work {
  isBusy: boolean;
  problem: string;
  /** The fields that the problem is about, if it is about any. */
  fields: readonly string[];
  done: string;
  run: (work: () => Promise<string>) => Promise<void>;
  /** Take back the words about the last work. */
  forget: () => void;
}

const IDLE: Pick<Work, "isBusy" | "problem" | "fields" | "done"> = { isBusy: false, problem: "", fields: [], done: "" };

export function useWork(): Work {
  const [state, setState] = useState(IDLE);
  const run = async (work: () => Promise<string>): Promise<void> => {
    setState({ ...IDLE, isBusy: true });
    try {
      const done = await work();
      setState({ ...IDLE, done });
    } catch (error) {
      setState({ ...IDLE, problem: explain(error), fields: error instanceof Refused ? error.fields : [] });
    }
  };
  return { ...state, run, forget: () => setState(IDLE) };
}

/**
 * A form that opens within a page. It takes the focus and gives it back to what opened it, or to the page's heading if
 * that is gone; Escape leaves everything as it was.
 */
export function OpenForm(props: {
  label: string;
  onSubmit: () => void;
  onCancel: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const form = useRef<HTMLFormElement>(null);
  useLayoutEffect(() => {
    const opener = document.activeElement;
    form.current?.querySelector<HTMLElement>("input:not([readonly]), select, textarea")?.focus();
    form.current?.scrollIntoView({ block: "nearest" });
    return () => {
      const active = document.activeElement;
      if (active !== document.body && !(form.current?.contains(active) ?? true)) {
        return; // somebody went elsewhere already
      }
      const isOpenerThere = opener instanceof HTMLButtonElement && opener.isConnected;
      (isOpenerThere ? opener : document.querySelector<HTMLElement>("main h1"))?.focus();
    };
  }, []);
  const submit = (event: Event): void => {
    event.preventDefault();
    props.onSubmit();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      event.stopPropagation();
      props.onCancel();
    }
  };
  return (
    <form class="card" ref={form} aria-label={props.label} onSubmit={submit} onKeyDown={onKey}>
      {props.children}
    </form>
  );
}

/** What ends a form: saving it, or leaving everything as it was. */
export function SaveButtons(props: { isBusy: boolean; onCancel: () => void }): JSX.Element {
  return (
    <div class="buttons">
      <button type="submit" disabled={props.isBusy}>
        Save
      </button>
      <button type="button" onClick={props.onCancel}>
        Cancel
      </button>
    </div>
  );
}

/** A button that asks before it does what cannot be taken back. The focus stays with the question and its answer. */
export function DeleteButton(props: { what: string; isBusy: boolean; onDelete: () => void }): JSX.Element {
  const [isAsked, setAsked] = useState(false);
  const first = useRef<HTMLButtonElement>(null);
  const wasAsked = useRef(false);
  const wasConfirmed = useRef(false);
  // Before the next key, which would otherwise be pressed on a button that is gone.
  useLayoutEffect(() => {
    if (isAsked !== wasAsked.current) {
      wasAsked.current = isAsked;
      first.current?.focus();
    }
  }, [isAsked]);
  useEffect(
    () => () => {
      // The row and its button disappear; move the focus to the heading so that it is not lost.
      if (wasConfirmed.current && [first.current, document.body].includes(document.activeElement as never)) {
        document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
      }
    },
    [],
  );
  if (!isAsked) {
    return (
      <button type="button" class="danger" ref={first} disabled={props.isBusy} onClick={() => setAsked(true)}>
        Delete<span class="unseen"> {props.what}</span>
      </button>
    );
  }
  const confirm = (): void => {
    wasConfirmed.current = true;
    setAsked(false);
    props.onDelete();
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      event.stopPropagation();
      setAsked(false);
    }
  };
  return (
    <span class="buttons" role="group" aria-label={`Delete ${props.what}?`} onKeyDown={onKey}>
      <button type="button" class="danger" ref={first} onClick={confirm}>
        Really delete<span class="unseen"> {props.what}</span>
      </button>
      <button type="button" onClick={() => setAsked(false)}>
        Keep<span class="unseen"> {props.what}</span>
      </button>
    </span>
  );
}
