/** The rule of all loops that go through a list: an item that fails does not stop the others. */
import { messageOf } from '@berth/kit/message-of';

type Each<T> = {
  /** Does the work of one item. */
  step: (item: T) => Promise<unknown>;
  /** Logs an error with the fields of the item. */
  failed: (error: unknown, item: T) => void;
};

/**
 * Does the step of each item, one after the other, until the signal. Returns the problem of this run
 * for the state of the loop (`berth_loop_failing`, `/readyz`); undefined: no item failed.
 */
export async function each<T>(
  items: Iterable<T>,
  signal: AbortSignal,
  { step, failed }: Each<T>,
): Promise<string | undefined> {
  const errors: unknown[] = [];
  let count = 0;
  for (const item of items) {
    if (signal.aborted) break;
    count += 1;
    try {
      await step(item);
    } catch (error) {
      errors.push(error);
      failed(error, item);
    }
  }
  return errors.length === 0
    ? undefined
    : `${errors.length} of ${count} failed: ${messageOf(errors[0])}`;
}
