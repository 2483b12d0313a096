/** Problem documents (RFC 9457), made from the error table. */
import { ERRORS, type ErrorCode, type Problem } from '@berth/wire/errors';
import type { FieldProblem } from '../domain/errors.ts';

/** Where people read what a code means (plugins/errors-page.ts): `type` of a problem is a reference to it (RFC 9457 section 3.1.1). */
export const ERRORS_PAGE = '/docs/errors';
export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
/** A body of a megabyte can break more rules than anybody reads. */
const MAX_ERRORS = 100;

export function problemOf(
  code: ErrorCode,
  detail: string,
  requestId: string | null,
  errors: readonly FieldProblem[] = [],
  retryAfter: number | null = null,
): Problem {
  const { status, title } = ERRORS[code];
  return {
    type: `${ERRORS_PAGE}#${code}`,
    title,
    status,
    detail,
    code,
    ...(errors.length > 0 || code === 'validation' ? { errors: errors.slice(0, MAX_ERRORS).map((e) => ({ ...e })) } : {}),
    ...(requestId === null ? {} : { request_id: requestId }),
    ...(retryAfter === null ? {} : { retry_after: retryAfter }),
  };
}

/** What is wrong in one line: the first field, and how many more. */
export const sentence = (fields: readonly FieldProblem[]): string => {
  const [first] = fields;
  const more = fields.length > 1 ? ` (and ${fields.length - 1} more)` : '';
  return first === undefined ? ERRORS.validation.title : `${first.field}: ${first.message}${more}`;
};
