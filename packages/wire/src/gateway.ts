/**
 * Messages between gateway and control plane, and the identity of a signed-in person. The gateway
 * has no database. The control plane stores all data that must survive a restart or apply to all
 * gateways.
 */
import { type Static, Type } from 'typebox';
import { Email } from './email.ts';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/** Lifetimes in seconds, fixed by the contract. */
export const DEVICE_CODE_SECONDS = 600;
export const DEVICE_POLL_SECONDS = 5;
export const DEVICE_TOKEN_SECONDS = 7_776_000;
/**
 * Longest lifetime of a session in ms. Berth keeps the tombstone of a deleted account longer than
 * this.
 */
export const SESSION_MAX_MS = 90 * 86_400_000;
/**
 * Allowed clock difference between gateway and control plane, in ms. A session that began less than
 * this time after the deletion counts as older than the deletion.
 */
export const DELETED_SKEW_MS = 30_000;
/**
 * Prefix of every device token. The gateway passes any other bearer token on to the application.
 */
export const DEVICE_TOKEN_PREFIX = 'berth_';
/**
 * Matches a device token inside a longer text. The pattern means the same in Go and in JavaScript.
 */
export const DEVICE_TOKEN_PATTERN = `${DEVICE_TOKEN_PREFIX}[A-Za-z0-9_-]{43}`;
/**
 * Scopes of a device token: projects, or projects and the API of the platform (through `exchange`).
 */
export const DEVICE_SCOPES = ['projects', 'projects api'] as const;
export type DeviceScope = (typeof DEVICE_SCOPES)[number];
/** RFC 8628 section 6.1: no vowels and no characters that look alike. */
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

/** SHA-256 of a secret, in hex. */
const Digest = Type.String({ pattern: '^[0-9a-f]{64}$' });

const HostClaim = Type.Object({
  host: Type.String(),
  claim: Type.String({ pattern: '^[!-~]+$' }),
  cookie_seconds: Type.Optional(Type.Integer({ minimum: 1 })),
});

/**
 * All data that `/verify` needs to decide. The gateway keeps a copy on disk. A project lists each
 * host at which it is or soon will be published. The gateway refuses hosts that no project lists. A
 * revocation stays until the revoked session or token has expired.
 */
export const Policy = Type.Object({
  projects: Type.Array(
    Type.Object({
      id: Id,
      name: Type.String(),
      hosts: Type.Array(Type.String()),
      /**
       * Custom domains. They are not in `hosts`, because an older gateway would treat them as hosts
       * under BASE_DOMAIN. Session cookies are bound to `claim`, which changes when the domain is
       * removed and added again. Browsers keep these cookies for at most `cookie_seconds`
       * (DOMAIN_QUARANTINE), so that the next owner of the domain receives none; if absent, as long
       * as the session. `domains` is absent in the policy of an older control plane.
       */
      domains: Type.Optional(Type.Array(HostClaim)),
      /**
       * The claims of `hosts`, because a domain prefix can also move to another project. Absent in
       * the policy of an older control plane.
       */
      host_claims: Type.Optional(Type.Array(HostClaim)),
      /** Absent in the policy of an older control plane. */
      auth_required: Type.Optional(Type.Boolean()),
      /**
       * Increases when `auth_required` is turned on. This invalidates the project's session
       * cookies, which the application could read while it was public. Absent in the policy of an
       * older control plane.
       */
      auth_epoch: Type.Optional(Type.Integer()),
      /**
       * Origins whose pages can call the project. Absent if there are none, or in the policy of an
       * older control plane.
       */
      cors_origins: Type.Optional(Type.Array(Type.String())),
    }),
  ),
  /** E-mail addresses in lower case. */
  disabled_users: Type.Array(Type.String()),
  /**
   * E-mail addresses in lower case. Sessions that began before `deleted_at` are invalid. Absent in
   * the policy of an older control plane.
   */
  deleted_users: Type.Optional(Type.Array(Type.Object({ email: Type.String(), deleted_at: Time }))),
  revoked_sessions: Type.Array(Type.Object({ id: Id, expires_at: Time })),
  device_tokens: Type.Array(
    Type.Object({
      id: Id,
      hash: Digest,
      identity: Identity,
      expires_at: Time,
      /** Absent in the policy of an older control plane; then it means `projects`. */
      scope: Type.Optional(literals(DEVICE_SCOPES)),
    }),
  ),
});
export type Policy = Static<typeof Policy>;

/** Revokes a session by its id. The session's cookies on all project hosts have the same id. */
export const SessionRevoke = Type.Object({ id: Id, email: Email, expires_at: Time });

/**
 * Redeems a one-time code. A second call fails with `code_used`. The control plane can forget the
 * code after `expires_at`.
 */
export const CodeRedeem = Type.Object({ id: Id, expires_at: Time });

/**
 * Claim of a domain prefix that was assigned before Berth stored claims. Session cookies at this
 * host keep the format that older gateways can read.
 */
export const FIRST_CLAIM = 'first';

const Text = (maxLength: number) => Type.String({ maxLength });
/** Address and browser of the device that requested the code; the activation page shows them. */
const Asker = { address: Text(100), user_agent: Text(500) };
const Scope = literals(DEVICE_SCOPES);
export const DeviceCodeCreate = Type.Object({ ...Asker, scope: Type.Optional(Scope) });
export const DeviceCodeCreated = Type.Object({
  device_code: Type.String(),
  user_code: Type.String(),
  expires_in: Type.Integer(),
  interval: Type.Integer(),
});
/**
 * `user_code` as the person typed it. `address` is the person's network address; Berth counts wrong
 * codes per address.
 */
export const DeviceCodeLookup = Type.Object({ user_code: Text(100), address: Text(100) });
export const DeviceCodeSeen = Type.Object({
  user_code: Type.String(),
  requested_at: Time,
  expires_at: Time,
  scope: Scope,
  ...Asker,
});
export type DeviceCodeSeen = Static<typeof DeviceCodeSeen>;
export const DeviceCodeDecide = Type.Object({
  user_code: Text(100),
  address: Text(100),
  approve: Type.Boolean(),
  identity: Identity,
});
export const DeviceCodePoll = Type.Object({ device_code: Text(200) });
/**
 * RFC 8628 section 3.5. `access_token` is set only if `result` is `issued`, which happens once per
 * code.
 */
export const DeviceCodePolled = Type.Object({
  result: literals([
    'issued',
    'authorization_pending',
    'slow_down',
    'access_denied',
    'expired_token',
    'invalid_grant',
  ]),
  access_token: orNull(Type.String()),
  expires_in: Type.Integer(),
  /** The granted scope, set together with `access_token`. Absent with an older control plane. */
  scope: Type.Optional(Scope),
});
export type DeviceCodePolled = Static<typeof DeviceCodePolled>;

/** A device token without its secret, as its owner sees it. */
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
export const DeviceTokensUsed = Type.Object({
  items: Type.Array(Type.Object({ id: Id, at: Time }), { maxItems: 1000 }),
});

/** A sign-in event for the audit log. `reason` is a code and never contains a secret. */
export const LoginSeen = Type.Object({
  outcome: literals(['signed_in', 'refused', 'signed_out']),
  email: orNull(Email),
  provider: Text(64),
  address: Text(100),
  user_agent: Text(500),
  reason: orNull(Text(200)),
});
export type LoginSeen = Static<typeof LoginSeen>;
