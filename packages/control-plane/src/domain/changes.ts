/**
 * Who waits for what: held requests and loops wait for a topic; whoever commits says which topics moved. A relay carries them
 * to other control planes; it may lose some, so a waiter must also look by itself now and then.
 */
export type Topic = `node:${string}` | `logs:${string}` | 'routes' | 'policy' | 'access' | 'work' | 'datasets' | 'events';

export type Changes = {
  notify(...topics: Topic[]): void;
  /** Resolves true at the next notify of the topic, false after `ms` or when the signal aborts. Subscribe before you look. */
  wait(topic: Topic, ms: number, signal?: AbortSignal): Promise<boolean>;
  on(topic: Topic, listener: () => void): () => void;
};

/** Carries topics between the control planes of one database. */
export type Relay = {
  /** Tells the others; never throws and waits for nothing. */
  tell(topics: readonly Topic[]): void;
  /** What others told. */
  hear(listener: (topics: readonly Topic[]) => void): void;
};

export function createChanges(relay: Relay | null = null): Changes {
  const listeners = new Map<Topic, Set<() => void>>();
  const on = (topic: Topic, listener: () => void): (() => void) => {
    const set = listeners.get(topic) ?? new Set();
    listeners.set(topic, set.add(listener));
    return () => {
      set.delete(listener);
      if (set.size === 0 && listeners.get(topic) === set) listeners.delete(topic);
    };
  };
  const ring = (topics: readonly Topic[]): void => {
    for (const topic of new Set(topics)) // A copy: a listener may take itself off.
      for (const listener of Array.from(listeners.get(topic) ?? [])) listener();
  };
  relay?.hear(ring);
  return {
    on,
    notify(...topics) {
      ring(topics);
      relay?.tell(topics);
    },
    wait(topic, ms, signal) {
      return new Promise((resolve) => {
        const done = (moved: boolean) => (): void => {
          off();
          clearTimeout(timer);
          signal?.removeEventListener('abort', aborted);
          resolve(moved);
        };
        const aborted = done(false);
        const off = on(topic, done(true));
        const timer = setTimeout(aborted, ms);
        if (signal?.aborted === true) aborted();
        else signal?.addEventListener('abort', aborted, { once: true });
      });
    },
  };
}
