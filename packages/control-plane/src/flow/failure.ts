/** Why something failed, in the words of the table FAILURES (wire/errors). */
import { type FailureCode, FAILURES, isFailureCode } from '@berth/wire/errors';
import type { TaskReport } from '@berth/wire/task';
import type { Failure } from '../domain/records.ts';

export const failure = (code: FailureCode, seen?: string): Failure => ({
  code,
  message: seen === undefined ? FAILURES[code] : `${FAILURES[code]}: ${seen}`,
});

/** What the agent said, under one of our codes; an agent that knows the contract alone may just send text. */
export function failureOf(report: TaskReport): Failure {
  const result = report.result;
  if (typeof result === 'string' && result !== '') return failure('task_failed', result.slice(-2000));
  const error = typeof result === 'object' && result !== null ? result.error : undefined;
  if (error === undefined) return failure('task_failed');
  return isFailureCode(error.code)
    ? { code: error.code, message: error.message }
    : failure('task_failed', `${error.code}: ${error.message}`);
}
