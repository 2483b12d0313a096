/** The nouns of signing in, as the control plane keeps them; none of them holds a secret, only hashes (SHA-256, hex). */
import type { AuditOutcome, AuditVia } from '@berth/wire/audit';
import type { DeviceScope, Identity } from '@berth/wire/gateway';
import type { Role } from '@berth/wire/vocabulary';

/**
 * pending -> approved -> issued (the device fetched its token, once); pending -> denied. Any of them ends with `expires_at`.
 */
export type DeviceCodeStatus = 'pending' | 'approved' | 'denied' | 'issued';

/** Who asks, as far as one can see. */
export type Asker = { address: string; user_agent: string };

export type DeviceCodeRecord = Asker & { status: DeviceCodeStatus; scope: DeviceScope; created_at: number; expires_at: number };

export type DeviceTokenRecord = Asker & {
  id: string;
  identity: Identity;
  scope: DeviceScope;
  created_at: number;
  expires_at: number;
  last_used_at: number | null;
};

export type ApiSessionRecord = { id: string; user_id: string; created_at: number; expires_at: number };

export type ApiTokenRecord = {
  id: string;
  user_id: string;
  name: string;
  role: Role;
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
};

/** Everything that a policy is made of. */
export type PolicyFacts = {
  /** By name; each with the prefixes that it is, or is about to be, published under. */
  projects: { id: string; name: string; prefixes: string[]; auth_required: boolean; auth_epoch: number }[];
  disabled: string[];
  deleted: { email: string; deleted_at: number }[];
  revoked: { id: string; expires_at: number }[];
  tokens: { id: string; hash: string; identity: Identity; expires_at: number; scope: DeviceScope }[];
};
