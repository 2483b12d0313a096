/**
 * Interface to the users in the database. Each method runs its own transaction,
 * and documents its rule and the codes of DomainError that it throws. Implemented in store/.
 */
import type { Role } from '@berth/wire/vocabulary';
import type { RecordGuard } from '../platform/record-change.ts';
import type { Page, Paged } from '../platform/page.ts';
import type { UserRecord } from '../platform/records.ts';
import type { UserChange } from './identity-stores.ts';

export type UserStore = {
  /** Finds a user by e-mail address, ignoring case. */
  findByEmail(email: string): Promise<UserRecord | null>;
  /** Throws not_found. */
  get(id: string): Promise<UserRecord>;
  /** Lists users by e-mail address. */
  list(page: Page): Promise<Paged<UserRecord>>;
  count(): Promise<number>;
  /**
   * Creates a user. `provenAt`: when the person signed in. Throws email_taken; unauthenticated if
   * the account was deleted after the sign-in.
   */
  create(
    input: { email: string; role: Role; password_hash: string | null },
    now: number,
    provenAt?: number,
  ): Promise<UserRecord>;
  /**
   * Changes the given fields. A new password ends the user's API sessions; disabling also ends the
   * device tokens. Throws not_found, last_admin (no enabled admin would remain).
   */
  patch(id: string, change: UserChange, guard?: RecordGuard<UserRecord>): Promise<UserRecord>;
  /**
   * Removes the user with sessions, API tokens and device tokens, and keeps a tombstone. Throws
   * not_found, last_admin.
   */
  remove(id: string, now: number, guard?: RecordGuard<UserRecord>): Promise<void>;
  /**
   * Returns when an account with this address was last deleted, or null once no older session can
   * still be valid.
   */
  deletedAt(email: string): Promise<number | null>;
  /** Removes expired tombstones. Returns the number of rows. */
  sweep(now: number): Promise<number>;
  /** Makes existing users with these addresses admins and enables them. */
  makeAdmins(emails: readonly string[]): Promise<void>;
  setLastLogin(id: string, now: number): Promise<void>;
};
