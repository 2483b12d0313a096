/** Rejects sign-ins from before the deletion of an account. Pure. */
import { DELETED_SKEW_MS } from '@berth/wire/gateway';
import { DomainError } from '../platform/errors.ts';

/**
 * Throws unauthenticated if the person signed in (`provenAt`) before the account was deleted
 * (`deletedAt`; null: never).
 */
export function refuseDeletedSince(deletedAt: number | null, provenAt: number): void {
  if (deletedAt !== null && provenAt <= deletedAt + DELETED_SKEW_MS)
    throw new DomainError(
      'unauthenticated',
      'the account was deleted after this sign-in; sign in again',
    );
}
