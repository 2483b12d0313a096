/**
 * Token renewals in progress. If the process ended before it stored a new refresh token, the person
 * would be signed out.
 */
const running = new Set<Promise<unknown>>();

export async function renewal<T>(work: Promise<T>): Promise<T> {
  running.add(work);
  try {
    return await work;
  } finally {
    running.delete(work);
  }
}

/** Waits for all renewals. Each one ends by itself, because its requests have a time limit. */
export const renewalsEnded = async (): Promise<void> => void (await Promise.allSettled(running));
