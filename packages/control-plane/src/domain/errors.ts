/** The one kind of error the domain throws; api/plugins/errors.ts translates it to problem+json, everything else is internal. */
import { ERRORS, type ErrorCode } from '@berth/wire/errors';

export type FieldProblem = { field: string; rule: string; message: string };

export class DomainError extends Error {
  override name = 'DomainError';
  readonly code: ErrorCode;
  /** Which fields it is about: with `validation`, and with conflicts about fields. */
  readonly fields: readonly FieldProblem[];
  /** Seconds after which it is worth trying again; null where nobody can say. */
  readonly retryAfter: number | null;
  constructor(code: ErrorCode, detail?: string, fields: readonly FieldProblem[] = [], retryAfter: number | null = null) {
    super(detail ?? ERRORS[code].title);
    this.code = code;
    this.fields = fields;
    this.retryAfter = retryAfter;
  }
}

/** 409 about one field, which another record has already. */
export const taken = (field: string, code: ErrorCode, message: string): DomainError =>
  new DomainError(code, `${field}: ${message}`, [{ field, rule: 'taken', message }]);

/** 422 about one field. */
export const invalid = (field: string, rule: string, message: string): DomainError =>
  new DomainError('validation', `${field}: ${message}`, [{ field, rule, message }]);
