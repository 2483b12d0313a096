/**
 * Stores of identity. Each method names its rule and the codes of DomainError that
 * it throws.
 */
import type { AuditOutcome } from '@berth/wire/audit';
import type { DeviceCodePolled, DeviceScope, Identity } from '@berth/wire/gateway';
import type { Role } from '@berth/wire/vocabulary';
import type {
  ApiSessionRecord,
  ApiTokenRecord,
  Asker,
  AuditRecord,
  DeviceCodeRecord,
  DeviceTokenRecord,
  PolicyFacts,
} from './identity-records.ts';
import type { UserRecord } from '../platform/records.ts';
import type { Page, Paged } from '../platform/page.ts';

/**
 * Removes expired rows, so that no table grows without limit. Returns the number of removed rows.
 */
type Swept = { sweep(now: number): Promise<number> };

export type RevokedSessionStore = Swept & {
  /** Revokes a session. A second call changes nothing. Throws too_many_sessions. */
  revoke(session: { id: string; email: string; expires_at: number }, now: number): Promise<void>;
  has(id: string): Promise<boolean>;
};

export type UsedCodeStore = Swept & {
  /**
   * Marks the code as used until 5 minutes after `expires_at`. Throws code_used, also for an
   * expired code.
   */
  redeem(code: { id: string; expires_at: number }, now: number): Promise<void>;
};

export type NewDeviceToken = { id: string; hash: string; expires_at: number };
/** `issued` is returned only once; RFC 8628 section 3.5 defines the other results. */
export type Polled = DeviceCodePolled['result'];
export type DeviceCodeStore = Swept & {
  /**
   * Returns false if one of the codes is taken; the caller retries with new codes. Throws
   * too_many_requests.
   */
  create(
    code: Asker & {
      device_hash: string;
      user_hash: string;
      poll_seconds: number;
      expires_at: number;
      scope: DeviceScope;
    },
    now: number,
  ): Promise<boolean>;
  /** Returns a code that waits for a decision, or null. */
  findPending(userHash: string, now: number): Promise<DeviceCodeRecord | null>;
  /**
   * Approves or denies a code. Repeating the same decision changes nothing. Throws not_found,
   * wrong_state (another decision), too_many_tokens, account_disabled.
   */
  decide(userHash: string, approve: boolean, identity: Identity, now: number): Promise<void>;
  /**
   * Exchanges an approved code for `token`; creates the token and ends the code in one transaction.
   */
  poll(deviceHash: string, token: NewDeviceToken, now: number): Promise<Polled>;
};

export type DeviceTokenStore = Swept & {
  /** Returns null for a token that is unknown or expired, or whose owner is disabled. */
  find(hash: string, now: number): Promise<DeviceTokenRecord | null>;
  /** Returns whether the token exists and has not expired. */
  isValid(id: string, now: number): Promise<boolean>;
  /** Lists newest first. `email`: only tokens of this person. */
  list(filter: { email?: string }, now: number, page: Page): Promise<Paged<DeviceTokenRecord>>;
  /** Revokes a token. `email`: only if the token belongs to this person. Throws not_found. */
  revoke(id: string, email: string | null): Promise<void>;
  /** Stores when each token was last used. Ignores a time older than the stored one. */
  used(items: readonly { id: string; at: number }[]): Promise<void>;
};

export type NewApiSession = {
  id: string;
  user_id: string;
  refresh_hash: string;
  address: string;
  expires_at: number;
};
export type ApiSessionStore = Swept & {
  /**
   * Creates a session, and ends the oldest sessions of a person who has too many. `passwordHash`:
   * the stored hash that the password matched. Returns false and creates nothing if the account was
   * deleted or disabled, or its password changed, since the sign-in began.
   */
  create(session: NewApiSession, now: number, passwordHash?: string | null): Promise<boolean>;
  /** Returns null if the session has ended or the user was deleted. */
  find(id: string, now: number): Promise<{ session: ApiSessionRecord; user: UserRecord } | null>;
  /** Like `find`, by the stored hash of the id, which is no secret. */
  findStored(hash: string, now: number): Promise<UserRecord | null>;
  /**
   * Replaces the refresh token by compare-and-set. `reused`: the token was not the current one, so
   * this call ended the session (RFC 9700 section 4.14.2).
   */
  rotate(
    id: string,
    hashes: { old: string; next: string },
    expiresAt: number,
    now: number,
  ): Promise<'rotated' | 'reused' | 'unknown'>;
  end(id: string): Promise<void>;
  /** Hashes session ids that an older version stored in clear text. The sessions stay valid. */
  hashIds(): Promise<void>;
};

export type ApiTokenStore = Swept & {
  /** Throws too_many_tokens. */
  create(
    token: Omit<ApiTokenRecord, 'last_used_at' | 'created_at'> & { hash: string },
    now: number,
  ): Promise<ApiTokenRecord>;
  /** Returns null for a token that is unknown or expired. */
  find(hash: string, now: number): Promise<{ token: ApiTokenRecord; user: UserRecord } | null>;
  /** Like `find`, by the id of the token. */
  findById(id: string, now: number): Promise<{ token: ApiTokenRecord; user: UserRecord } | null>;
  /** Lists the tokens of a user, newest first. */
  list(userId: string, now: number, page: Page): Promise<Paged<ApiTokenRecord>>;
  /** Revokes a token. `userId`: only if the token belongs to this user. Throws not_found. */
  revoke(id: string, userId: string | null): Promise<void>;
  used(id: string, at: number): Promise<void>;
};

/**
 * `request` identifies method, path and key; `claim` identifies the request that holds the claim.
 */
export type AnswerClaim = { user_id: string; request: string; claim: string };
export type IdempotencyAnswerStore = Swept & {
  /**
   * Claims a request. `claimed`: the caller executes the request, renews its claim meanwhile, and
   * then calls `keep` or `giveUp`. `in_progress`: another caller executes it; call again soon.
   * `renewed` changes with each renewal; a caller that saw no change for a long time passes the
   * value as `abandoned` to take over the claim. `other_body`: `isSameBody` says that the stored
   * request had a different body (default: it compares the hashes).
   */
  begin(
    claim: AnswerClaim & {
      body_hash: string;
      isSameBody?: (stored: string) => boolean;
      claimed_until: number;
      expires_at: number;
      abandoned?: string | null;
    },
    now: number,
  ): Promise<
    | { kind: 'claimed' }
    | { kind: 'in_progress'; renewed: string | null }
    | { kind: 'other_body' }
    | { kind: 'stored'; answer: Buffer }
  >;
  /** Renews the claim. Does nothing if another request has taken over the claim. */
  renew(claim: AnswerClaim, claimedUntil: number): Promise<void>;
  /**
   * Stores the answer. Does nothing if another request has taken over the claim. Deletes the user's
   * oldest answers to stay below the limit.
   */
  keep(claim: AnswerClaim, answer: Buffer): Promise<void>;
  /** Releases the claim. Does nothing if another request has taken over the claim. */
  giveUp(claim: AnswerClaim): Promise<void>;
};

export type AuditFilter = {
  email?: string;
  action?: string;
  target?: string;
  outcome?: AuditOutcome;
  since?: number;
  until?: number;
};
export type AuditStore = {
  append(entry: AuditRecord): Promise<void>;
  /** Lists entries, newest first. */
  list(filter: AuditFilter, page: Page): Promise<Paged<AuditRecord & { id: number }>>;
  /** Keeps the newest `rows` entries of each outcome, and no entry older than `before`. */
  sweep(before: number, rows: Record<AuditOutcome, number>): Promise<number>;
};

export type PolicyStore = {
  /**
   * Returns a text that changes whenever the result of `read` changes. Much cheaper than `read`.
   */
  stamp(): Promise<string>;
  /** Reads one consistent snapshot. */
  read(now: number): Promise<PolicyFacts>;
};

/** Fields to change; absent fields keep their value. */
export type UserChange = { role?: Role; disabled?: boolean; password_hash?: string | null };
