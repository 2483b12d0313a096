/** Creates failures with the texts of the table FAILURES (wire/errors). */
import { type FailureCode, FAILURES, isFailureCode } from '@berth/wire/errors';
import type { TaskReport } from '@berth/wire/task';
import type { Failure } from '../domain/platform/records.ts';

export const failure = (code: FailureCode, details?: string): Failure => ({
  code,
  message: details === undefined ? FAILURES[code] : `${FAILURES[code]}: ${details}`,
});

/**
 * Converts an agent's report to a failure with one of Berth's codes. A contract-only agent can send
 * only text.
 */
export function failureOf(report: TaskReport): Failure {
  const result = report.result;
  if (typeof result === 'string' && result !== '')
    return failure('task_failed', result.slice(-2000));
  const error = typeof result === 'object' && result !== null ? result.error : undefined;
  if (error === undefined) return failure('task_failed');
  return isFailureCode(error.code)
    ? { code: error.code, message: error.message }
    : failure('task_failed', `${error.code}: ${error.message}`);
}
