/** An account that was deleted: what proved the person before does not count any more. Pure. */
import { DELETED_SKEW_MS } from '@berth/wire/gateway';
import { DomainError } from '../platform/errors.ts';

/**
 * `deletedAt`: when the account was deleted; null: never. `provenAt`: when the person proved who
 * they are. Throws unauthenticated.
 */
export function refuseDeletedSince(deletedAt: number | null, provenAt: number): void {
  if (deletedAt !== null && provenAt <= deletedAt + DELETED_SKEW_MS)
    throw new DomainError(
      'unauthenticated',
      'the account was deleted after this sign-in; sign in again',
    );
}
