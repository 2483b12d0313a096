/** Records of identity. They contain no secrets, only hashes (SHA-256, hex). */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { DeviceScope, Identity } from '@berth/wire/gateway';
import type { Role } from '@berth/wire/vocabulary';

/**
 * pending -> approved -> issued (the device fetched its token, once); pending -> denied. Each state
 * ends at `expires_at`.
 */
export type DeviceCodeStatus = 'pending' | 'approved' | 'denied' | 'issued';

/** Address and User-Agent of the requester. */
export type Asker = { address: string; user_agent: string };

export type DeviceCodeRecord = Asker & {
  status: DeviceCodeStatus;
  scope: DeviceScope;
  created_at: number;
  expires_at: number;
};

export type DeviceTokenRecord = Asker & {
  id: string;
  identity: Identity;
  scope: DeviceScope;
  created_at: number;
  expires_at: number;
  last_used_at: number | null;
};

export type ApiSessionRecord = {
  id: string;
  user_id: string;
  created_at: number;
  expires_at: number;
};

export type ApiTokenRecord = {
  id: string;
  user_id: string;
  name: string;
  role: Role;
  /** Ids of the only projects that the token can use; null: no limit. */
  projects: readonly string[] | null;
  created_at: number;
  expires_at: number;
  last_used_at: number | null;
};

export type AuditRecord = {
  at: number;
  email: string | null;
  via: AuditVia;
  action: string;
  target: string | null;
  address: string;
  outcome: AuditOutcome;
  status: number;
  code: string | null;
  request_id: string;
  /** Where an exec session or tunnel was, its command and its end. Never its content. */
  detail?: string | null;
};

/** All data that the policy of the gateways contains. */
export type PolicyFacts = {
  /** Sorted by name, each with its current and upcoming domain prefixes. */
  projects: {
    id: string;
    name: string;
    prefixes: string[];
    claims?: { prefix: string; claim: string }[];
    auth_required: boolean;
    auth_epoch: number;
    cors_origins?: string[];
    domains?: { host: string; claim: string }[];
  }[];
  disabled: string[];
  deleted: { email: string; deleted_at: number }[];
  revoked: { id: string; expires_at: number }[];
  tokens: {
    id: string;
    hash: string;
    identity: Identity;
    expires_at: number;
    scope: DeviceScope;
  }[];
};
