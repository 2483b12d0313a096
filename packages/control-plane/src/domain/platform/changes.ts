/**
 * Wakes waiters after commits. Long polls and loops wait for a topic; after a commit the writer
 * notifies its topics. A notifier carries topics to other control planes and can lose some, so a
 * waiter must also poll.
 */
export type Topic =
  | `node:${string}`
  | `logs:${string}`
  | `move:${string}`
  | 'routes'
  | 'policy'
  | 'access'
  | 'work'
  | 'datasets'
  | 'events'
  | 'looks'
  | 'log-wants'
  | 'exec';

export type Changes = {
  notify(...topics: Topic[]): void;
  /**
   * Resolves to true at the next `notify` of the topic, and to false after `ms` or on abort. Call
   * it before reading the state.
   */
  wait(topic: Topic, ms: number, signal?: AbortSignal): Promise<boolean>;
  on(topic: Topic, listener: () => void): () => void;
};

/** Carries topics between the control planes of one database. */
export type Notifier = {
  /** Sends topics to the other control planes. Never throws and never blocks. */
  send(topics: readonly Topic[]): void;
  /** Subscribes to the topics of the other control planes. */
  subscribe(listener: (topics: readonly Topic[]) => void): void;
};

export function createChanges(notifier: Notifier | null = null): Changes {
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
    // Iterates over a copy, because a listener can remove itself.
    for (const topic of new Set(topics))
      for (const listener of Array.from(listeners.get(topic) ?? [])) listener();
  };
  notifier?.subscribe(ring);
  return {
    on,
    notify(...topics) {
      ring(topics);
      notifier?.send(topics);
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
