/** The stores of signing in; as in stores.ts each method says its rule and the codes of DomainError it throws. */
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
import type { UserRecord } from './records.ts';
import type { Page, Paged } from './page.ts';

/** What has ended is of use to nobody: removed, so that no table grows for ever. Returns how many rows went. */
type Swept = { sweep(now: number): Promise<number> };

export type RevokedSessionStore = Swept & {
  /** Repeated: no change. Throws too_many_sessions. */
  revoke(session: { id: string; email: string; expires_at: number }, now: number): Promise<void>;
  has(id: string): Promise<boolean>;
};

export type UsedCodeStore = Swept & {
  /** Remembers it until `expires_at` and a while more. Throws code_used, also for one that is over. */
  redeem(code: { id: string; expires_at: number }, now: number): Promise<void>;
};

export type NewDeviceToken = { id: string; hash: string; expires_at: number };
/** `issued` once; RFC 8628 section 3.5 for the rest. */
export type Polled = DeviceCodePolled['result'];
export type DeviceCodeStore = Swept & {
  /** false: one of the codes is taken, try others. Throws too_many_requests when too many are open. */
  create(
    code: Asker & { device_hash: string; user_hash: string; poll_seconds: number; expires_at: number; scope: DeviceScope },
    now: number,
  ): Promise<boolean>;
  /** One that waits for its person; null: there is none. */
  findPending(userHash: string, now: number): Promise<DeviceCodeRecord | null>;
  /** The same decision again: no change. Throws not_found, wrong_state (decided otherwise), too_many_tokens, account_disabled. */
  decide(userHash: string, approve: boolean, identity: Identity, now: number): Promise<void>;
  /** `token` is made of an approved one, in the same transaction that ends the code. */
  poll(deviceHash: string, token: NewDeviceToken, now: number): Promise<Polled>;
};

export type DeviceTokenStore = Swept & {
  /** null: unknown, over, or its person disabled. */
  find(hash: string, now: number): Promise<DeviceTokenRecord | null>;
  /** Whether it is there and has not expired. */
  stands(id: string, now: number): Promise<boolean>;
  /** Newest first. `email`: of that person alone. */
  list(filter: { email?: string }, now: number, page: Page): Promise<Paged<DeviceTokenRecord>>;
  /** `email`: only if it is that person's. Throws not_found. */
  revoke(id: string, email: string | null): Promise<void>;
  /** Times never go back. */
  used(items: readonly { id: string; at: number }[]): Promise<void>;
};

export type ApiSessionStore = Swept & {
  /** The oldest ones of a person with too many end. */
  create(session: { id: string; user_id: string; refresh_hash: string; address: string; expires_at: number }, now: number): Promise<void>;
  /** null: it has ended, or its user is gone. */
  find(id: string, now: number): Promise<{ session: ApiSessionRecord; user: UserRecord } | null>;
  /** Compare-and-set. `reused`: the token was good once, or never; the session has ended with this call (RFC 9700 section 4.14.2). */
  rotate(id: string, hashes: { old: string; next: string }, expiresAt: number, now: number): Promise<'rotated' | 'reused' | 'unknown'>;
  end(id: string): Promise<void>;
  /** Replaces the ids that a version before hashes left in clear; their sessions go on. */
  hashIds(): Promise<void>;
};

export type ApiTokenStore = Swept & {
  /** Throws too_many_tokens. */
  create(token: Omit<ApiTokenRecord, 'last_used_at' | 'created_at'> & { hash: string }, now: number): Promise<ApiTokenRecord>;
  /** null: unknown or over. */
  find(hash: string, now: number): Promise<{ token: ApiTokenRecord; user: UserRecord } | null>;
  /** Newest first. */
  list(userId: string, now: number, page: Page): Promise<Paged<ApiTokenRecord>>;
  /** `userId`: only if it is that person's. Throws not_found. */
  revoke(id: string, userId: string | null): Promise<void>;
  used(id: string, at: number): Promise<void>;
};

/** `request` stands for method, path and key; `claim` for the one request that runs. */
export type AnswerClaim = { user_id: string; request: string; claim: string };
export type KeptAnswerStore = Swept & {
  /**
   * `mine`: the caller runs, renews its claim meanwhile, and then calls `keep` or `giveUp`. `under way`: another request runs; look again
   * soon. `renewed` changes with each renewal; a caller that saw none for long passes it as `dead` and takes the claim over.
   */
  begin(
    claim: AnswerClaim & { body_hash: string; claimed_until: number; expires_at: number; dead?: string },
    now: number,
  ): Promise<{ kind: 'mine' } | { kind: 'under way'; renewed: string } | { kind: 'other body' } | { kind: 'kept'; answer: Buffer }>;
  /** No effect where the claim went to another request. */
  renew(claim: AnswerClaim, claimedUntil: number): Promise<void>;
  /** No effect where the claim went to another request. The oldest answers of a user make room. */
  keep(claim: AnswerClaim, answer: Buffer): Promise<void>;
  /** No effect where the claim went to another request. */
  giveUp(claim: AnswerClaim): Promise<void>;
};

export type AuditFilter = { email?: string; action?: string; target?: string; outcome?: AuditOutcome; since?: number; until?: number };
export type AuditStore = {
  append(entry: AuditRecord): Promise<void>;
  /** Newest first. */
  list(filter: AuditFilter, page: Page): Promise<Paged<AuditRecord & { id: number }>>;
  /** Keeps the newest `rows` of each outcome, none older than `before`. */
  sweep(before: number, rows: Record<AuditOutcome, number>): Promise<number>;
};

export type PolicyStore = {
  /** Changes whenever `read` would give something else; costs next to nothing. */
  stamp(): Promise<string>;
  /** One state of everything. */
  read(now: number): Promise<PolicyFacts>;
};

/** Role, password and so on as far as they are given. */
export type UserChange = { role?: Role; disabled?: boolean; password_hash?: string | null };
