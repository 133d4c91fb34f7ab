// The few parts that pages are made of.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { explain } from "./api";

/** A page: its heading takes the focus when it is gone to, so that a keyboard or a screen reader begins there. */
export function Page(props: { title: string; intro?: ComponentChildren; children?: ComponentChildren }): JSX.Element {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
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

/** What went wrong, told at once. Stays in the page while it is empty, as assistive technology wants it. */
export function Problem(props: { text: string }): JSX.Element {
  return (
    <p class="problem" role="alert" hidden={props.text === ""}>
      {props.text}
    </p>
  );
}

/** What went well. */
export function Done(props: { text: string }): JSX.Element {
  return (
    <p class="done" role="status" hidden={props.text === ""}>
      {props.text}
    </p>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  isNumber?: boolean;
}

/** A table that scrolls sideways by itself on a narrow screen. */
export function Table<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  empty: string;
  keyOf: (row: T) => string | number;
  id?: string;
}): JSX.Element {
  if (props.rows.length === 0) {
    return <p class="quiet">{props.empty}</p>;
  }
  return (
    <div class="scroll" role="region" aria-label={props.label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th scope="col" key={column.name} class={column.isNumber ? "number" : ""}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody {...(props.id === undefined ? {} : { id: props.id })}>
          {props.rows.map((row) => (
            <tr key={props.keyOf(row)}>
              {props.columns.map((column) => (
                <td key={column.name} class={column.isNumber ? "number" : ""}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A labelled control; `children` is given the id that ties the two together. */
export function Field(props: {
  label: string;
  hint?: string;
  children: (id: string) => ComponentChildren;
}): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id)}
      {props.hint !== undefined && <span class="hint">{props.hint}</span>}
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
}): JSX.Element {
  return (
    <Field label={props.label} {...(props.hint === undefined ? {} : { hint: props.hint })}>
      {(id) => (
        <input
          id={id}
          // One of several; the types of elements know each of them apart only.
          type={(props.type ?? "text") as "text"}
          step="any"
          value={props.value}
          required={props.required ?? false}
          readOnly={props.readOnly ?? false}
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
  onChange: (value: string) => void;
}): JSX.Element {
  return (
    <Field label={props.label}>
      {(id) => (
        <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
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
    return "Not to be had.";
  }
  return loaded.value === null ? "Loading." : none;
}

/** Work that a button starts: one at a time, with its outcome in words. */
export interface Work {
  isBusy: boolean;
  problem: string;
  done: string;
  run: (work: () => Promise<string>) => Promise<void>;
}

export function useWork(): Work {
  const [state, setState] = useState({ isBusy: false, problem: "", done: "" });
  const run = async (work: () => Promise<string>): Promise<void> => {
    setState({ isBusy: true, problem: "", done: "" });
    try {
      const done = await work();
      setState({ isBusy: false, problem: "", done });
    } catch (error) {
      setState({ isBusy: false, problem: explain(error), done: "" });
    }
  };
  return { ...state, run };
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
  useEffect(() => {
    if (isAsked !== wasAsked.current) {
      wasAsked.current = isAsked;
      first.current?.focus();
    }
  }, [isAsked]);
  if (!isAsked) {
    return (
      <button type="button" class="danger" ref={first} disabled={props.isBusy} onClick={() => setAsked(true)}>
        Delete<span class="unseen"> {props.what}</span>
      </button>
    );
  }
  const confirm = (): void => {
    setAsked(false);
    props.onDelete();
  };
  return (
    <span class="buttons" role="group" aria-label={`Delete ${props.what}?`}>
      <button type="button" class="danger" ref={first} onClick={confirm}>
        Really delete<span class="unseen"> {props.what}</span>
      </button>
      <button type="button" onClick={() => setAsked(false)}>
        Keep<span class="unseen"> {props.what}</span>
      </button>
    </span>
  );
}
