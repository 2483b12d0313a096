/**
 * Errors of the domain. api/plugins/errors.ts converts them to problem+json; every other error
 * becomes `internal`.
 */
import { CodedError } from '@berth/kit/coded-error';
import { ERRORS, type ErrorCode } from '@berth/wire/errors';

export type FieldProblem = { field: string; rule: string; message: string };

export class DomainError extends CodedError<ErrorCode> {
  override name = 'DomainError';
  /** Invalid or conflicting fields, for `validation` and for conflicts. */
  readonly fields: readonly FieldProblem[];
  /** Seconds until a retry can succeed, or null if unknown. */
  readonly retryAfter: number | null;
  constructor(
    code: ErrorCode,
    detail?: string,
    fields: readonly FieldProblem[] = [],
    retryAfter: number | null = null,
  ) {
    super(code, detail ?? ERRORS[code].title);
    this.fields = fields;
    this.retryAfter = retryAfter;
  }
}

/** A request that carries no token and no other proof of the caller's identity. */
export class NoTokenSent extends DomainError {
  override name = 'NoTokenSent';
  constructor(advice?: string) {
    const what = 'no token was sent';
    super('unauthenticated', advice === undefined ? what : `${what}: ${advice}`);
  }
}

/** Returns the error (409) for a field value that another record already has. */
export const taken = (field: string, code: ErrorCode, message: string): DomainError =>
  new DomainError(code, `${field}: ${message}`, [{ field, rule: 'taken', message }]);

/** Returns the validation error (422) for several fields. */
export const invalidFields = (problems: readonly FieldProblem[]): DomainError =>
  new DomainError(
    'validation',
    problems.map(({ field, message }) => `${field}: ${message}`).join('; '),
    problems,
  );

/** Returns the validation error (422) for one field. */
export const invalid = (field: string, rule: string, message: string): DomainError =>
  new DomainError('validation', `${field}: ${message}`, [{ field, rule, message }]);
