// A shared value whose subscribers are notified when it changes.

import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  #value: T;
  readonly #watchers = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (value !== this.#value) {
      this.#value = value;
      for (const watcher of [...this.#watchers]) {
        watcher();
      }
    }
  }

  /** Call `watcher` after each change; returns the way to stop. */
  watch(watcher: () => void): () => void {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }
}

/** The store's value, drawn again whenever it changes, at most once a frame. */
export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(store.value);
  useEffect(() => {
    let frame = 0;
    const draw = (): void => {
      frame = 0;
      setValue(() => store.value);
    };
    const stop = store.watch(() => {
      frame ||= requestAnimationFrame(draw);
    });
    draw();
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [store]);
  return value;
}
