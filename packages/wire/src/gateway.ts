/**
 * What the gateway and the control plane say to each other (INTERFACES.md "Between our own processes"), and who a signed-in
 * person is. The gateway has no database: what must outlive it, or hold for all gateways, stands in the control plane.
 */
import { type Static, Type } from 'typebox';
import { Email } from './email.ts';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/** Lifetimes that the contract fixes, in seconds. */
export const DEVICE_CODE_SECONDS = 600;
export const DEVICE_POLL_SECONDS = 5;
export const DEVICE_TOKEN_SECONDS = 7_776_000;
/** The longest a session may live. A tombstone of a deleted account is kept longer than this. */
export const SESSION_MAX_MS = 90 * 86_400_000;
/** Clocks of gateway and control plane may differ by this. A session that began so shortly after the deletion counts as from before. */
export const DELETED_SKEW_MS = 30_000;
/** What every device token begins with; another bearer is the application's own. */
export const DEVICE_TOKEN_PREFIX = 'berth_';
/** Matches a device token inside a longer text. Reads the same as a regular expression of Go and of JavaScript. */
export const DEVICE_TOKEN_PATTERN = `${DEVICE_TOKEN_PREFIX}[A-Za-z0-9_-]{43}`;
/** What a device token opens: projects, or projects and the platform's API (by `exchange`). */
export const DEVICE_SCOPES = ['projects', 'projects api'] as const;
export type DeviceScope = (typeof DEVICE_SCOPES)[number];
/** RFC 8628 section 6.1: no vowels, nothing that looks like something else. */
export const USER_CODE_LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
export const USER_CODE_LENGTH = 8;

/** The contract's userinfo record. `provider`: github, google, or OIDC_NAME. */
export const Identity = Type.Object({
  email: Email,
  name: orNull(Type.String({ maxLength: 500 })),
  avatar_url: orNull(Type.String({ maxLength: 2000 })),
  provider: Type.String({ minLength: 1, maxLength: 64, pattern: '^[a-z0-9._-]+$' }),
});
export type Identity = Static<typeof Identity>;

/** Hash of a secret that only its holder has: SHA-256, hex. */
const Digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

/**
 * All that `/verify` decides by; kept on the gateway's disk. A project stands in it with every host that it is or is about to be
 * published at. What is not in it is unknown: refused. Revocations stand in it until what they revoke has ended by itself.
 */
export const Policy = Type.Object({
  projects: Type.Array(
    Type.Object({
      id: Id,
      name: Type.String(),
      hosts: Type.Array(Type.String()),
      /** Absent in the policy of an older control plane, as the next one. */
      auth_required: Type.Optional(Type.Boolean()),
      /** Rises when `auth_required` is turned on. Session cookies of the project are bound to it: an application reads them while it is public. */
      auth_epoch: Type.Optional(Type.Integer()),
    }),
  ),
  /** Lower case. */
  disabled_users: Type.Array(Type.String()),
  /** Lower case. Sessions that began before are over. Absent in the policy of an older control plane. */
  deleted_users: Type.Optional(Type.Array(Type.Object({ email: Type.String(), deleted_at: Time }))),
  revoked_sessions: Type.Array(Type.Object({ id: Id, expires_at: Time })),
  device_tokens: Type.Array(
    Type.Object({
      id: Id,
      hash: Digest,
      identity: Identity,
      expires_at: Time,
      /** Absent in the policy of an older control plane: `projects`. */
      scope: Type.Optional(literals(DEVICE_SCOPES)),
    }),
  ),
});
export type Policy = Static<typeof Policy>;

/** A session is revoked at its id: the ones of every project's host carry the same. */
export const SessionRevoke = Type.Object({ id: Id, email: Email, expires_at: Time });

/** A one-time code is worth something once: `code_used` from the second time on. `expires_at`: when it need not be remembered any more. */
export const CodeRedeem = Type.Object({ id: Id, expires_at: Time });

const Text = (maxLength: number) => Type.String({ maxLength });
/** Who asks, as the activation page shows it. */
const Asker = { address: Text(100), user_agent: Text(500) };
const Scope = literals(DEVICE_SCOPES);
export const DeviceCodeCreate = Type.Object({ ...Asker, scope: Type.Optional(Scope) });
export const DeviceCodeCreated = Type.Object({
  device_code: Type.String(),
  user_code: Type.String(),
  expires_in: Type.Integer(),
  interval: Type.Integer(),
});
/** `user_code` as it was typed. `address`: of who types; wrong ones are counted by it. */
export const DeviceCodeLookup = Type.Object({ user_code: Text(100), address: Text(100) });
export const DeviceCodeSeen = Type.Object({ user_code: Type.String(), requested_at: Time, expires_at: Time, scope: Scope, ...Asker });
export type DeviceCodeSeen = Static<typeof DeviceCodeSeen>;
export const DeviceCodeDecide = Type.Object({
  user_code: Text(100),
  address: Text(100),
  approve: Type.Boolean(),
  identity: Identity,
});
export const DeviceCodePoll = Type.Object({ device_code: Text(200) });
/** RFC 8628 section 3.5. `access_token` stands exactly when `result` is `issued`, which it is once. */
export const DeviceCodePolled = Type.Object({
  result: literals(['issued', 'authorization_pending', 'slow_down', 'access_denied', 'expired_token', 'invalid_grant']),
  access_token: orNull(Type.String()),
  expires_in: Type.Integer(),
});
export type DeviceCodePolled = Static<typeof DeviceCodePolled>;

/** A device token as its owner sees it. */
export const DeviceToken = Type.Object({
  id: Id,
  email: Type.String(),
  provider: Type.String(),
  created_at: Time,
  expires_at: Time,
  last_used_at: orNull(Time),
  scope: Scope,
  ...Asker,
});
export type DeviceToken = Static<typeof DeviceToken>;
export const DeviceTokensOf = Type.Object({ email: Email });
export const DeviceTokenRevoke = Type.Object({ id: Id, email: Email });
export const DeviceTokensUsed = Type.Object({ items: Type.Array(Type.Object({ id: Id, at: Time }), { maxItems: 1000 }) });

/** For the audit log. `reason` is a code, never a secret. */
export const LoginSeen = Type.Object({
  outcome: literals(['signed_in', 'refused', 'signed_out']),
  email: orNull(Email),
  provider: Text(64),
  address: Text(100),
  user_agent: Text(500),
  reason: orNull(Text(200)),
});
export type LoginSeen = Static<typeof LoginSeen>;
