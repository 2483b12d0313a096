/**
 * Renewals that are under way. A process that ends before it stored the new refresh token would
 * sign its person out.
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

/** Each renewal ends by itself: its requests have a time limit. */
export const renewalsEnded = async (): Promise<void> => void (await Promise.allSettled(running));
