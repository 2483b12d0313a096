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

/** Removes expired rows, so that no table grows without end. Returns the number of removed rows. */
type Swept = { sweep(now: number): Promise<number> };

export type RevokedSessionStore = Swept & {
  /** A second call changes nothing. Throws too_many_sessions. */
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
/** `issued` comes once; RFC 8628 section 3.5 defines the others. */
export type Polled = DeviceCodePolled['result'];
export type DeviceCodeStore = Swept & {
  /** Returns false where one of the codes is taken: try others. Throws too_many_requests. */
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
   * The same decision again changes nothing. Throws not_found, wrong_state (another decision),
   * too_many_tokens, account_disabled.
   */
  decide(userHash: string, approve: boolean, identity: Identity, now: number): Promise<void>;
  /** Turns an approved code into `token`, in the transaction that ends the code. */
  poll(deviceHash: string, token: NewDeviceToken, now: number): Promise<Polled>;
};

export type DeviceTokenStore = Swept & {
  /** Returns null for a token that is unknown or expired, or whose owner is disabled. */
  find(hash: string, now: number): Promise<DeviceTokenRecord | null>;
  /** Whether the token exists and has not expired. */
  isValid(id: string, now: number): Promise<boolean>;
  /** Newest first. `email` selects the tokens of one person. */
  list(filter: { email?: string }, now: number, page: Page): Promise<Paged<DeviceTokenRecord>>;
  /** `email`: revokes only a token of that person. Throws not_found. */
  revoke(id: string, email: string | null): Promise<void>;
  /** Stores when each token was last used. An older time changes nothing. */
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
   * Ends the oldest sessions of a person who has too many. `passwordHash`: the one that the
   * person's password matched. Returns false and creates nothing if the account was deleted or
   * disabled, or got another password, since the sign-in began.
   */
  create(session: NewApiSession, now: number, passwordHash?: string | null): Promise<boolean>;
  /** Returns null where the session has ended or the user was deleted. */
  find(id: string, now: number): Promise<{ session: ApiSessionRecord; user: UserRecord } | null>;
  /**
   * Compare-and-set. `reused`: the token is not the current one, and this call has ended the
   * session (RFC 9700 section 4.14.2).
   */
  rotate(
    id: string,
    hashes: { old: string; next: string },
    expiresAt: number,
    now: number,
  ): Promise<'rotated' | 'reused' | 'unknown'>;
  end(id: string): Promise<void>;
  /** Hashes the ids that an earlier version stored in clear. Their sessions stay. */
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
  /** Newest first. */
  list(userId: string, now: number, page: Page): Promise<Paged<ApiTokenRecord>>;
  /** `userId`: revokes only a token of that person. Throws not_found. */
  revoke(id: string, userId: string | null): Promise<void>;
  used(id: string, at: number): Promise<void>;
};

/** `request` stands for method, path and key; `claim` for the one request that runs. */
export type AnswerClaim = { user_id: string; request: string; claim: string };
export type IdempotencyAnswerStore = Swept & {
  /**
   * `claimed`: the caller runs, renews its claim meanwhile, and then calls `keep` or `giveUp`.
   * `in_progress`: another request runs; call again soon. `renewed` changes with each renewal. A
   * caller that saw no renewal for a long time passes it as `abandoned` and takes the claim over.
   * `other_body`: the stored request had another body, by `isSameBody` (default: an equal hash).
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
  /** No effect where the claim went to another request. */
  renew(claim: AnswerClaim, claimedUntil: number): Promise<void>;
  /** No effect where the claim went to another request. The oldest answers of a user make room. */
  keep(claim: AnswerClaim, answer: Buffer): Promise<void>;
  /** No effect where the claim went to another request. */
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
  /** Newest first. */
  list(filter: AuditFilter, page: Page): Promise<Paged<AuditRecord & { id: number }>>;
  /** Keeps the newest `rows` of each outcome, none older than `before`. */
  sweep(before: number, rows: Record<AuditOutcome, number>): Promise<number>;
};

export type PolicyStore = {
  /** Changes whenever the result of `read` changes. Costs much less than `read`. */
  stamp(): Promise<string>;
  /** Reads one consistent snapshot. */
  read(now: number): Promise<PolicyFacts>;
};

/** Fields to change; absent fields stay. */
export type UserChange = { role?: Role; disabled?: boolean; password_hash?: string | null };
