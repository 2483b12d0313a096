/** What the parts of the gateway are given by app.ts; each door is narrow and made in a file of its own. */
import type { KeyObject } from 'node:crypto';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { Identity, Policy } from '@berth/wire/gateway';
import type { Config } from './config.ts';

/** `id` is the same in the single sign-on session and in those of the hosts that came from it: one logout ends all. */
export type Session = {
  id: string;
  identity: Identity;
  /** Milliseconds since the epoch; 0 in a cookie of an older version. */
  begun_at: number;
  /** Milliseconds since the epoch. */
  expires_at: number;
};

/** What a session cookie is good for: the auth host, one project, or one host that is no project. */
export type Audience = 'sso' | `project:${string}` | `host:${string}`;
/** A cookie from before the project required a login (again) has another audience. */
export const audienceOfProject = ({ id, auth_epoch = 0 }: Policy['projects'][number]): Audience =>
  auth_epoch === 0 ? `project:${id}` : `project:${id} ${auth_epoch}`;

/** Signed, not encrypted: a cookie's own browser may read who it is. */
export type Sessions = {
  seal(session: Session, audience: Audience): string;
  /** null: not ours, for another audience, expired, tampered, too long, anything else. Never throws. */
  open(value: string, audience: Audience): Session | null;
};

/** What `/verify` decides by, made from the newest policy that could be had. Lookups cost a map hit. */
export type PolicyView = {
  /** false: none was ever had, not even from disk; then everything is in doubt (503). */
  readonly known: boolean;
  /** Rises with every policy; what was computed under an earlier one is worth nothing. */
  readonly version: number;
  projectById(id: string): Policy['projects'][number] | undefined;
  /** Host without port, lower case. */
  projectByHost(host: string): Policy['projects'][number] | undefined;
  /** Or not named by ALLOWED_EMAILS (any more). */
  isDisabled(email: string): boolean;
  isRevoked(sessionId: string): boolean;
  /** Whether the account was deleted after a session that began then. */
  isDeleted(email: string, begunAt: number): boolean;
  deviceToken(token: string): Policy['device_tokens'][number] | undefined;
};
export type PolicySource = {
  view(): PolicyView;
  /** As soon as a policy is as wanted; false: not within that time. */
  until(wanted: (view: PolicyView) => boolean, ms: number): Promise<boolean>;
  /** Holds here at once, on this gateway's disk, and is told to the control plane when that can be reached. */
  revokeSession(session: Session): Promise<void>;
  /** Noted, told in batches. */
  tokenUsed(id: string): void;
  close(): Promise<void>;
};

/** Codes that carry a session from the auth host to another one: short-lived, bound to host and browser, worth something once. */
export type OneTimeCodes = {
  /** `challenge`: what the browser's nonce at that host hashes to. */
  mint(session: Session, host: string, challenge: string): string;
  /** Checks all but whether it was used. */
  read(code: string, host: string, nonce: string | undefined): { id: string; session: Session; expires_at: number } | null;
  /** @throws UnreachableError while the control plane is away. */
  redeem(read: { id: string; expires_at: number }): Promise<'redeemed' | 'used'>;
};

/** Where a redirect may lead (INTERFACES.md): `/` for everything that it may not. Absolute targets come back normalised. */
export type Redirects = {
  target(raw: string | undefined): string;
  /** Of a target that is not on the auth host: its host; null: it stays here. */
  otherHost(target: string): string | null;
};

/** Encrypted and authenticated (AES-256-GCM) small values for cookies and states; each purpose has its own key. */
export type Sealer = {
  seal(purpose: string, value: unknown, ttlMs: number): string;
  /** null where `seal` did not make it for this purpose, or too long ago. Never throws. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- what was sealed comes back as what it was
  open<T>(purpose: string, text: string): T | null;
};

export type Keys = {
  /** The current one first. */
  session: readonly KeyObject[];
  sealing: readonly KeyObject[];
  /** Ed25519; `kid` stands in the JWKS. */
  assertion: readonly { kid: string; privateKey: KeyObject; publicKey: KeyObject }[];
};

export type GatewayDeps = {
  config: Config;
  controlPlane: Client;
  policy: PolicySource;
  sessions: Sessions;
  codes: OneTimeCodes;
  redirects: Redirects;
  sealer: Sealer;
  keys: Keys;
  now: () => number;
  log: Logger;
};
