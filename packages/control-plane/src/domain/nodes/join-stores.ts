/**
 * Interfaces to join tokens and admissions of contract-only nodes. Each method runs its own
 * transaction, and documents its rule and the codes of DomainError that it throws. Implemented in
 * store/.
 */
import type { NodeRole } from '@berth/wire/vocabulary';
import type { Page, Paged } from '../platform/page.ts';
import type { AdmissionRecord, JoinTokenRecord } from '../platform/records.ts';

export type NewJoinToken = {
  id: string;
  hash: string;
  role: NodeRole;
  name: string | null;
  created_by: string | null;
  expires_at: number;
};

export type JoinTokenStore = {
  /** Throws too_many_tokens. */
  create(token: NewJoinToken, now: number): Promise<JoinTokenRecord>;
  /** Lists tokens that have not expired, including used ones, newest first. */
  list(now: number, page: Page): Promise<Paged<JoinTokenRecord>>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  storedHashOf(id: string): Promise<string | null>;
  sweep(now: number): Promise<number>;
};

export type AdmissionStore = {
  /** Admits a node. Returns the existing admission on a repeated call. */
  create(node: { hostname: string; role: NodeRole }, now: number): Promise<AdmissionRecord>;
  list(): Promise<AdmissionRecord[]>;
  /** Throws not_found. */
  remove(id: string): Promise<void>;
  has(hostname: string, role: NodeRole): Promise<boolean>;
  /** Returns whether this is the address of the last registration of an admitted node. */
  hasAddress(address: string): Promise<boolean>;
};
