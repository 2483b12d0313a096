/** Recognizes engine errors that mean "does not exist", and gives engine errors a failure code. */
import { classify, type FailureRow, outputTail, PULL_FAILURES, TaskFailure } from '../failures.ts';
import { messageOf } from '@berth/kit/message-of';
import type { FailureCode } from '@berth/wire/errors';
import { EngineError } from './engine-client.ts';

const CONTAINER_GONE =
  /no such (container|object)|is not running|removal of container .* is already in progress/i;

const refuses = (error: unknown, reason: RegExp): boolean =>
  error instanceof EngineError && reason.test(error.reason);
export const isContainerGone = (error: unknown): boolean => refuses(error, CONTAINER_GONE);
export const isImageGone = (error: unknown): boolean => refuses(error, /no such image/i);
export const isNetworkGone = (error: unknown): boolean =>
  refuses(error, /no such network|network \S+ not found/i);
export const isInUse = (error: unknown): boolean =>
  refuses(error, /conflict|is being used|is in use/i);

/**
 * Gives an error of the engine a failure code, from its text. Returns any other error unchanged.
 */
export function withCode(
  error: unknown,
  otherwise: FailureCode,
  table: readonly FailureRow[] = PULL_FAILURES,
): unknown {
  if (!(error instanceof EngineError)) return error;
  const { reason } = error;
  return new TaskFailure(classify(table, reason, otherwise), outputTail(reason), { cause: error });
}

/**
 * Returns the result of `promise`, or `other` if the promise rejects with an error of this kind.
 */
export async function orElse<T, O>(
  promise: Promise<T>,
  isExpected: (error: unknown) => boolean,
  other: O,
): Promise<T | O> {
  try {
    return await promise;
  } catch (error) {
    if (isExpected(error)) return other;
    throw error;
  }
}

/** Returns the engine's error text without the name of the call. */
export function reasonOf(error: unknown): string {
  if (error instanceof EngineError) return error.reason;
  return error instanceof TaskFailure ? error.detail : messageOf(error);
}
