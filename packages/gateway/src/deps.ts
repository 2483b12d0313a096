/**
 * The narrow interfaces between the parts of the gateway. app.ts connects the implementations, each
 * of which has its own file.
 */
import type { KeyObject } from 'node:crypto';
import type { Live } from '@berth/kit/live';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import type { Identity, Policy } from '@berth/wire/gateway';
import type { Config } from './config.ts';

/**
 * The single sign-on session and the sessions at other hosts that came from it have the same `id`,
 * so one logout ends all.
 */
export type Session = {
  id: string;
  identity: Identity;
  /**
   * Milliseconds since the epoch; 0 for a cookie of an older version, which does not contain it.
   */
  begun_at: number;
  /** Milliseconds since the epoch. */
  expires_at: number;
};

/**
 * Place where a session cookie is valid: the auth host, one host of a project, one custom domain,
 * or one host that belongs to no project.
 */
export type Audience = 'sso' | `project:${string}` | `domain:${string}` | `host:${string}`;
/**
 * The epoch is part of the audience: turning `auth_required` on invalidates earlier cookies of the
 * project.
 */
export const audienceOfProject = ({ id, auth_epoch = 0 }: Policy['projects'][number]): Audience =>
  auth_epoch === 0 ? `project:${id}` : `project:${id} ${auth_epoch}`;

/**
 * Session cookies are signed and not encrypted, because they contain only the person's own
 * identity.
 */
export type Sessions = {
  seal(session: Session, audience: Audience): string;
  /**
   * Returns null for every invalid cookie: forged, changed, for another audience, expired, too
   * long. Never throws.
   */
  open(value: string, audience: Audience): Session | null;
};

/** Owner of a host. `claim` is absent in the policy of an older control plane. */
export type HostOwner = {
  project: Policy['projects'][number];
  claim?: string;
  cookie_seconds?: number;
};

/**
 * Lookups in the newest available policy, for the decisions of `/verify`. Each lookup costs one map
 * access.
 */
export type PolicyView = {
  /**
   * False if the gateway never had a policy, not even from disk. Then it answers 503 to everything.
   */
  readonly loaded: boolean;
  /** Increases with every change. Results that were computed for a lower version are invalid. */
  readonly version: number;
  projectById(id: string): Policy['projects'][number] | undefined;
  /** Returns the project of a host. `host` is in lower case and without a port. */
  projectByHost(host: string): HostOwner | undefined;
  /**
   * Returns the project of a custom domain. site.ts decides which of the two lookups applies to a
   * host.
   */
  domainByHost(host: string): HostOwner | undefined;
  /** True if the user is disabled or ALLOWED_EMAILS does not allow the address. */
  isDisabled(email: string): boolean;
  isRevoked(sessionId: string): boolean;
  /** True if the account was deleted after `begunAt`, the start of the session. */
  isDeleted(email: string, begunAt: number): boolean;
  deviceToken(token: string): Policy['device_tokens'][number] | undefined;
};
export type PolicyClient = {
  view(): PolicyView;
  /** Resolves with true as soon as the policy satisfies `condition`, or with false after `ms`. */
  until(condition: (view: PolicyView) => boolean, ms: number): Promise<boolean>;
  /** Resolves as soon as all workers of this gateway accept the device token, or after `ms`. */
  untilTokenKnown(token: string, ms: number): Promise<void>;
  /**
   * Revokes the session here immediately, stores the revocation on disk, and sends it to the
   * control plane as soon as possible.
   */
  revokeSession(session: Session): Promise<void>;
  /** Records the use of a device token. Uses are sent to the control plane in batches. */
  tokenUsed(id: string): void;
  close(): Promise<void>;
};

/**
 * Codes that transfer a session from the auth host to another host. They are short-lived, bound to
 * host and browser, and work once.
 */
export type OneTimeCodes = {
  /**
   * Creates a code. `challenge` is the hash of the browser's nonce at that host; `claim` is the
   * host's current claim.
   */
  mint(session: Session, host: string, challenge: string, claim?: string): string;
  /** Checks everything except whether the code was used. `claim` is the host's current claim. */
  read(
    code: string,
    host: string,
    nonce: string | undefined,
    claim?: string,
  ): { id: string; session: Session; expires_at: number } | null;
  /** @throws UnreachableError if the control plane cannot be reached. */
  redeem(read: { id: string; expires_at: number }): Promise<'redeemed' | 'used'>;
};

/** Checks redirect targets (docs/interfaces.md "Login"). */
export type Redirects = {
  /** Returns the target, normalised if it is absolute, or `/` if the target is not allowed. */
  target(raw: string | undefined): string;
  /** Returns the host of a target on another host, or null if the target is on the auth host. */
  otherHost(target: string): string | null;
  /** Returns the current claim of a project's host, or undefined for every other host. */
  claimOf(host: string): string | undefined;
};

/**
 * Encrypts and authenticates small values for cookies and states (AES-256-GCM). Each purpose has
 * its own key.
 */
export type Sealer = {
  seal(purpose: string, value: unknown, ttlMs: number): string;
  /**
   * Returns null if `seal` did not make the text for this purpose, or if it expired. Never throws.
   */
  open<T>(purpose: string, text: string): T | null;
};

/** Keys that a reload replaces. Read them at each use and keep no copy. */
export type Keys = {
  /** The current key comes first. */
  session: readonly KeyObject[];
  sealing: readonly KeyObject[];
  /** Ed25519 keys; the JWKS lists them by `kid`. */
  assertion: readonly { kid: string; privateKey: KeyObject; publicKey: KeyObject }[];
};

export type Secrets = {
  /** The current secret comes first. */
  gateway: readonly string[];
  session: readonly string[];
  /** Client secrets at the identity providers. */
  oidc: string | undefined;
  github: string | undefined;
  google: string | undefined;
};

export type GatewayDeps = {
  config: Config;
  /** Secrets that a reload replaces. The values in `config` are from the start of the process. */
  secrets: Live<Secrets>;
  controlPlane: Client;
  policy: PolicyClient;
  sessions: Sessions;
  codes: OneTimeCodes;
  redirects: Redirects;
  sealer: Sealer;
  keys: Keys;
  now: () => number;
  log: Logger;
};
