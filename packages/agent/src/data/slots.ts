/** Limits how many copies run at once; the others wait in the order in which they asked. */

/**
 * Runs `work` in a free slot. Rejects with the signal's reason when the signal aborts while it
 * waits.
 */
export type InSlot = <T>(signal: AbortSignal, work: () => Promise<T>) => Promise<T>;

export function createSlots(limit: number): InSlot {
  let free = limit;
  const queue: (() => void)[] = [];
  return async (signal, work) => {
    signal.throwIfAborted();
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

function turn(queue: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const begin = (): void => {
      signal.removeEventListener('abort', leave);
      resolve();
    };
    const leave = (): void => {
      const place = queue.indexOf(begin);
      if (place !== -1) queue.splice(place, 1);
      reject(signal.reason);
    };
    queue.push(begin);
    signal.addEventListener('abort', leave, { once: true });
  });
}
