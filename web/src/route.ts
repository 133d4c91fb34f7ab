// Where in the console we are: the path after `#`, one segment a step.

import { useEffect, useState } from "preact/hooks";

export type Route = readonly string[];

function parseRoute(): Route {
  const segments = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    return segments.map(decodeURIComponent);
  } catch {
    return [];
  }
}

export function href(...segments: string[]): string {
  return `#/${segments.map(encodeURIComponent).join("/")}`;
}

export function go(...segments: string[]): void {
  location.hash = href(...segments);
}

export function useRoute(): Route {
  const [route, setRoute] = useState(parseRoute);
  useEffect(() => {
    const follow = (): void => setRoute(parseRoute());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}
