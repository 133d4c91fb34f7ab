// What stands around every page: the name, the state of the connection, the ways to other pages.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Connection } from "./console";
import { NAVIGATION } from "./pages";
import { href, type Route } from "./route";
import { useStore, type Store } from "./store";

export function Shell(props: {
  route: Route;
  connection: Store<Connection>;
  username: string;
  onSignOut: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [props.route]);
  const menu = useRef<HTMLButtonElement>(null);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape" && isOpen) {
      setOpen(false);
      menu.current?.focus();
    }
  };
  const skip = (event: Event): void => {
    // The hash is the route, so the link moves the focus itself.
    event.preventDefault();
    document.querySelector<HTMLElement>("main h1")?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to the page
      </a>
      <header>
        <a class="brand" href={href("overview")}>
          Tidewire
        </a>
        <State connection={props.connection} />
        <button
          type="button"
          class="menu"
          ref={menu}
          aria-expanded={isOpen}
          aria-controls="pages"
          onClick={() => setOpen(!isOpen)}
        >
          Menu
        </button>
        <p class="who">{props.username}</p>
        <button type="button" onClick={props.onSignOut}>
          Sign out
        </button>
      </header>
      <div class="columns">
        <nav id="pages" aria-label="Pages" class={isOpen ? "open" : ""} onKeyDown={onKey}>
          {NAVIGATION.map((group, index) => (
            <div key={group.name}>
              <p id={`nav-${index}`}>{group.name}</p>
              <ul aria-labelledby={`nav-${index}`}>
                {group.links.map((link) => (
                  <li key={link.text}>
                    <a
                      href={href(...link.route)}
                      {...(isWithin(props.route, link.route) ? { "aria-current": "page" as const } : {})}
                    >
                      {link.text}
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          ))}
        </nav>
        <main id="main">{props.children}</main>
      </div>
    </>
  );
}

/** How the stream of change events stands; announced when it changes. */
export function State(props: { connection: Store<Connection> }): JSX.Element {
  const { state, text } = useStore(props.connection);
  return (
    <p id="state" role="status" data-state={state}>
      {text}
    </p>
  );
}

function isWithin(route: Route, link: Route): boolean {
  const at = route.length === 0 ? ["overview"] : route;
  return link.every((segment, index) => at[index] === segment);
}
