// What stands on the page. Events are gathered and drawn once a frame, so that a replay of a full log stays smooth.

import type { ChangeEvent } from "./feed";
import type { Login } from "./session";

const MAX_ROWS = 200;

function element<T extends HTMLElement>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) {
    throw new Error(`the page has no ${type.name} #${id}`);
  }
  return found;
}

export class View {
  readonly #state = element("state", HTMLElement);
  readonly #count = element("count", HTMLElement);
  readonly #pause = element("pause", HTMLButtonElement);
  readonly #feed = element("feed", HTMLElement);
  readonly #rows = element("rows", HTMLTableSectionElement);
  readonly #empty = element("empty", HTMLElement);
  readonly #form = element("sign-in", HTMLFormElement);
  readonly #formError = element("sign-in-error", HTMLElement);
  readonly #clock = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });

  #received = 0;
  #waiting: ChangeEvent[] = [];
  #isPaused = false;
  #isDrawing = false;

  constructor() {
    this.#pause.addEventListener("click", () => {
      this.#isPaused = !this.#isPaused;
      this.#pause.setAttribute("aria-pressed", String(this.#isPaused));
      this.#scheduleDraw();
    });
  }

  setState(state: string, text: string): void {
    // Assistive technology announces every change of this element, so leave it alone when nothing changed.
    if (this.#state.textContent !== text) {
      this.#state.dataset["state"] = state;
      this.#state.textContent = text;
    }
  }

  showFeed(): void {
    this.#form.hidden = true;
    this.#feed.hidden = false;
    this.#pause.hidden = false;
  }

  /** Show the form and wait for a person to fill it in. */
  askForLogin(problem: string): Promise<Login> {
    this.#formError.textContent = problem;
    this.#form.hidden = false;
    this.#feed.hidden = true;
    this.#pause.hidden = true;
    element("username", HTMLInputElement).focus();
    return new Promise((resolve) => {
      this.#form.addEventListener(
        "submit",
        (submission) => {
          submission.preventDefault();
          this.#formError.textContent = "";
          const values = new FormData(this.#form);
          const text = (name: string): string => String(values.get(name) ?? "");
          resolve({
            username: text("username"),
            password: text("password"),
            client_id: text("client_id"),
            client_secret: text("client_secret"),
          });
        },
        { once: true },
      );
    });
  }

  add(event: ChangeEvent): void {
    this.#received += 1;
    this.#waiting.push(event);
    if (this.#waiting.length > MAX_ROWS) {
      this.#waiting.shift();
    }
    this.#scheduleDraw();
  }

  #scheduleDraw(): void {
    if (!this.#isDrawing) {
      this.#isDrawing = true;
      requestAnimationFrame(() => {
        this.#isDrawing = false;
        this.#draw();
      });
    }
  }

  #draw(): void {
    this.#count.textContent = String(this.#received);
    if (this.#isPaused || this.#waiting.length === 0) {
      return;
    }
    this.#empty.hidden = true;
    const added = this.#waiting.map((event) => this.#renderRow(event)).reverse();
    this.#waiting = [];
    this.#rows.prepend(...added);
    while (this.#rows.rows.length > MAX_ROWS) {
      this.#rows.deleteRow(-1);
    }
  }

  #renderRow(event: ChangeEvent): HTMLTableRowElement {
    const row = document.createElement("tr");
    const cell = (text: string, className = ""): HTMLTableCellElement => {
      const td = row.insertCell();
      td.textContent = text;
      td.className = className;
      return td;
    };
    cell(String(event.replayId), "number");
    cell(event.changeType, "change");
    cell(event.entity);
    cell(event.recordIds.join(", "), "ids");
    cell(event.fields.join(", "));
    const committed = new Date(event.committedMs);
    const time = document.createElement("time");
    time.dateTime = committed.toISOString();
    time.textContent = this.#clock.format(committed);
    cell("").append(time);
    return row;
  }
}
