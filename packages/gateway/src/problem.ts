/** Creates problem documents (RFC 9457) from the error table. */
import { ERRORS, type ErrorCode } from '@berth/wire/errors';

export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';

export function problemOf(code: ErrorCode, detail: string, more: object = {}): object {
  const { status, title } = ERRORS[code];
  return { type: `urn:berth:error:${code}`, title, status, detail, code, ...more };
}
