/**
 * Limits how many jobs run at the same time. The other jobs wait in the order of their arrival.
 *
 * p-limit is not used, because a job that waits there cannot leave the queue when its signal
 * aborts.
 */

/**
 * Runs `work` when a place is free. Rejects with the signal's reason if the signal aborts before
 * `work` starts.
 */
export type Limit = <T>(work: () => Promise<T>, signal?: AbortSignal) => Promise<T>;

export function createLimit(atOnce: number): Limit {
  let free = atOnce;
  const queue: (() => void)[] = [];
  return async (work, signal) => {
    signal?.throwIfAborted();
    if (free === 0) await turn(queue, signal);
    else free -= 1;
    try {
      return await work();
    } finally {
      const next = queue.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}

function turn(queue: (() => void)[], signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const begin = (): void => {
      signal?.removeEventListener('abort', leave);
      resolve();
    };
    const leave = (): void => {
      const place = queue.indexOf(begin);
      if (place !== -1) queue.splice(place, 1);
      reject(signal?.reason);
    };
    queue.push(begin);
    signal?.addEventListener('abort', leave, { once: true });
  });
}
