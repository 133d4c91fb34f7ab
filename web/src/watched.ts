// Whether anybody looks at this tab. A browser has few connections to one host, and a long poll holds one of them: tabs
// in the background give theirs back, and go on after the last event seen when they are looked at again.

import { useEffect, useState } from "preact/hooks";

const AWAY_AFTER_MS = 30_000;

/** False once the tab has been out of sight for a while. */
export function useWatched(): boolean {
  const [isWatched, setWatched] = useState(true);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      clearTimeout(timer);
      if (document.hidden) {
        timer = setTimeout(() => setWatched(false), AWAY_AFTER_MS);
      } else {
        setWatched(true);
      }
    };
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);
  return isWatched;
}
