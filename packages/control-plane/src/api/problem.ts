/** Creates problem documents (RFC 9457) from the error table. */
import { defined } from '@berth/kit/defined';
import { cutText } from '@berth/kit/cut-text';
import { ERRORS, type ErrorCode, type ProblemDocument } from '@berth/wire/errors';
import type { FieldProblem } from '../domain/platform/errors.ts';

/**
 * Page that explains the codes (plugins/errors-page.ts). The `type` of a problem refers to it (RFC
 * 9457 section 3.1.1).
 */
export const ERRORS_PAGE = '/docs/errors';
export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8';
/** Maximum number of field problems in one answer: a body of 1 MiB can break far more rules. */
const MAX_ERRORS = 100;

export type ProblemParts = {
  code: ErrorCode;
  detail: string;
  fields?: readonly FieldProblem[];
  retryAfter?: number | null;
  /** True if this version has no route for the path. */
  isUnknownPath?: boolean;
};

export function problemOf(
  { code, detail, fields: errors = [], retryAfter = null, isUnknownPath }: ProblemParts,
  requestId: string | null,
): ProblemDocument {
  const { status, title } = ERRORS[code];
  return {
    type: `${ERRORS_PAGE}#${code}`,
    title,
    status,
    detail,
    code,
    ...defined({
      errors:
        errors.length > 0 || code === 'validation'
          ? errors.slice(0, MAX_ERRORS).map((e) => ({ ...e }))
          : undefined,
      request_id: requestId ?? undefined,
      retry_after: retryAfter ?? undefined,
      unknown_path: isUnknownPath === true ? (true as const) : undefined,
    }),
  };
}

/** Returns one line with the first field problem and the number of further problems. */
export const summaryOf = (fields: readonly FieldProblem[]): string => {
  const [first] = fields;
  const more = fields.length > 1 ? ` (and ${fields.length - 1} more)` : '';
  return first === undefined ? ERRORS.validation.title : `${first.field}: ${first.message}${more}`;
};

/**
 * Maximum number of characters of a path in a log line or an answer. Anybody can send a path as
 * long as a header block.
 */
const MAX_PATH = 300;

/** Returns the path of a request, without its query. */
export const pathOf = (url: string): string => url.split('?', 1)[0] ?? url;
/** Returns the path of a request to show to people, shortened if it is too long. */
export const addressOf = (url: string): string => cutText(pathOf(url), MAX_PATH);
export const notHere = (url: string): string => `the path ${addressOf(url)} does not exist`;
