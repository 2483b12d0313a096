/**
 * Routes of gateways (docs/interfaces.md "Between our own processes"): the policy, and state that
 * all gateways share.
 */
import {
  DEVICE_CODE_SECONDS,
  DEVICE_POLL_SECONDS,
  DEVICE_TOKEN_SECONDS,
} from '@berth/wire/gateway';
import type { RotatedSetting, Rotation } from '@berth/wire/rotation';
import { DomainError } from '../../domain/platform/errors.ts';
import { readRotation, type RotationSource } from '../../domain/secrets/rotation.ts';
import type { Audited } from '../audit.ts';
import { type Attempts, networkOf } from '../auth/attempts.ts';
import { type Define, SENT, type Call } from '../define.ts';
import { matchesEtag } from '../etag.ts';
import type { Holds } from '../long-poll.ts';
import {
  sha256Of,
  newDeviceCode,
  newDeviceToken,
  newId,
  newUserCode,
  formatUserCode,
  userCodeOf,
} from '../auth/secrets.ts';
import { deviceTokenView, time } from '../views.ts';
import type { PolicySource } from '../../domain/identity/policy.ts';
import type { SecretUse } from '../auth/secret-use.ts';
import type {
  RevokedSessionStore,
  UsedCodeStore,
  DeviceCodeStore,
  DeviceTokenStore,
} from '../../domain/identity/identity-stores.ts';
import type { Changes } from '../../domain/platform/changes.ts';

/**
 * Maximum number of tries to create a user code. There are 20^8 codes, so a collision is rare, and
 * five in a row mean a bug.
 */
const CODE_TRIES = 5;

const OF_GATEWAYS: readonly RotatedSetting[] = ['GATEWAY_SECRET', 'SESSION_SECRET'];

/**
 * Removes the values of secrets that gateways do not have: a fingerprint lets a thief check
 * guesses.
 */
function forGateway(rotation: Rotation): Rotation {
  const own = <T extends { values: Rotation['gateways'][number]['values'] }>(one: T): T => ({
    ...one,
    values: Object.fromEntries(
      Object.entries(one.values).filter(([setting]) =>
        OF_GATEWAYS.some((name) => name === setting),
      ),
    ),
  });
  return {
    ...rotation,
    control_planes: rotation.control_planes.map((one) => ({ ...own(one), key_id: '' })),
    gateways: rotation.gateways.map(own),
    signed: rotation.signed.filter(({ setting }) => OF_GATEWAYS.includes(setting)),
    project_keys: {},
  };
}

export type Deps = RotationSource & {
  policy: Pick<PolicySource, 'changed' | 'current'>;
  secretUse: Pick<SecretUse, 'gatewaySeen'>;
  revokedSessions: Pick<RevokedSessionStore, 'revoke'>;
  usedCodes: Pick<UsedCodeStore, 'redeem'>;
  /** Counts requests for device codes by network. */
  codeRequests: Attempts;
  deviceCodes: Pick<DeviceCodeStore, 'create' | 'decide' | 'findPending' | 'poll'>;
  /** Counts wrong user codes by network. */
  codeGuesses: Attempts;
  deviceTokens: Pick<DeviceTokenStore, 'find' | 'list' | 'revoke' | 'used'>;
  changes: Pick<Changes, 'notify'>;
  holds: Pick<Holds, 'begin'>;
  now: () => number;
};

export function gatewayRoutes(route: Define, deps: Deps): void {
  route('gatewayPolicy', (call) => gatewayPolicy(deps, call));
  route('gatewaySeen', ({ body, request }) =>
    deps.secretUse.gatewaySeen(body, request.gatewaySecret ?? '', request.ip),
  );
  route('gatewayRotation', async () => forGateway(await readRotation(deps, deps.now(), false)));
  route('revokeSession', (call) => revokeSession(deps, call));
  route('redeemCode', async ({ body }) =>
    deps.usedCodes.redeem({ id: body.id, expires_at: Date.parse(body.expires_at) }, deps.now()),
  );
  route('createDeviceCode', (call) => createDeviceCode(deps, call));
  route('lookupDeviceCode', (call) => lookupDeviceCode(deps, call));
  route('decideDeviceCode', (call) => decideDeviceCode(deps, call));
  route('pollDeviceCode', (call) => pollDeviceCode(deps, call));
  route('deviceTokensOf', (call) => deviceTokensOf(deps, call));
  route('revokeDeviceTokenOf', (call) => revokeDeviceTokenOf(deps, call));
  route('deviceTokensUsed', async ({ body }) =>
    deps.deviceTokens.used(
      body.items.map(({ id, at }) => ({ id, at: Math.min(Date.parse(at), deps.now()) })),
    ),
  );
  route('loginSeen', loginSeen);
}

async function gatewayPolicy(
  deps: Deps,
  { query, setEtag, request, reply }: Call<'gatewayPolicy'>,
): Promise<typeof SENT> {
  const knownEtag = request.headers['if-none-match'];
  const end = performance.now() + (query.wait ?? 0) * 1000;
  let answer = await deps.policy.current();
  const hold =
    query.wait !== undefined && matchesEtag(knownEtag, answer.etag)
      ? deps.holds.begin('policy', reply.raw)
      : null;
  try {
    while (hold !== null && matchesEtag(knownEtag, answer.etag)) {
      const remainingMs = end - performance.now();
      if (remainingMs <= 0 || hold.signal.aborted) break;
      await deps.policy.changed(answer.etag, remainingMs, hold.signal);
      answer = await deps.policy.current();
    }
  } finally {
    hold?.release();
  }
  setEtag(answer.etag);
  if (matchesEtag(knownEtag, answer.etag)) void reply.code(304).send();
  else void reply.code(200).type('application/json').send(answer.bytes);
  return SENT;
}

async function revokeSession(deps: Deps, { body }: Call<'revokeSession'>) {
  await deps.revokedSessions.revoke(
    { ...body, expires_at: Date.parse(body.expires_at) },
    deps.now(),
  );
  deps.changes.notify('policy', 'access');
}

async function createDeviceCode(deps: Deps, { body }: Call<'createDeviceCode'>) {
  deps.codeRequests.begin(networkOf(body.address));
  for (let tries = 0; tries < CODE_TRIES; tries++) {
    const [device_code, user_code] = [newDeviceCode(), newUserCode()];
    const code = {
      device_hash: sha256Of(device_code),
      user_hash: sha256Of(userCodeOf(user_code) ?? ''),
      address: body.address,
      user_agent: body.user_agent,
      scope: body.scope ?? 'projects',
      poll_seconds: DEVICE_POLL_SECONDS,
      expires_at: deps.now() + DEVICE_CODE_SECONDS * 1000,
    };
    if (await deps.deviceCodes.create(code, deps.now()))
      return {
        device_code,
        user_code,
        expires_in: DEVICE_CODE_SECONDS,
        interval: DEVICE_POLL_SECONDS,
      };
  }
  throw new Error(`cannot create a device code: ${CODE_TRIES} user codes in a row were taken`);
}

/**
 * Calls `use` with a typed user code. Counts wrong codes by the person's network. A correct code
 * does not reset the count (RFC 8628 section 5.1). Throws not_found, too_many_attempts.
 */
async function guess<T>(
  deps: Deps,
  address: string,
  typed: string,
  use: (userHash: string, letters: string) => Promise<T>,
): Promise<T> {
  const key = networkOf(address);
  deps.codeGuesses.begin(key);
  const letters = userCodeOf(typed);
  if (letters === null)
    throw new DomainError('not_found', 'the user code is unknown or has expired');
  try {
    const used = await use(sha256Of(letters), letters);
    deps.codeGuesses.takeBack(key);
    return used;
  } catch (error) {
    if (!(error instanceof DomainError && error.code === 'not_found'))
      deps.codeGuesses.takeBack(key);
    throw error;
  }
}

function lookupDeviceCode(deps: Deps, { body }: Call<'lookupDeviceCode'>) {
  return guess(deps, body.address, body.user_code, async (hash, letters) => {
    const code = await deps.deviceCodes.findPending(hash, deps.now());
    if (code === null)
      throw new DomainError('not_found', 'the user code is unknown or has expired');
    return {
      user_code: formatUserCode(letters),
      requested_at: time(code.created_at),
      expires_at: time(code.expires_at),
      address: code.address,
      user_agent: code.user_agent,
      scope: code.scope,
    };
  });
}

function decideDeviceCode(deps: Deps, { body, request }: Call<'decideDeviceCode'>) {
  const { identity, address, approve } = body;
  request.audited = {
    user: identity.email,
    via: 'gateway',
    address,
    target: approve ? 'approved' : 'denied',
  };
  return guess(deps, address, body.user_code, (hash) =>
    deps.deviceCodes.decide(hash, approve, identity, deps.now()),
  );
}

async function pollDeviceCode(deps: Deps, { body }: Call<'pollDeviceCode'>) {
  const token = newDeviceToken();
  const made = {
    id: newId(),
    hash: sha256Of(token),
    expires_at: deps.now() + DEVICE_TOKEN_SECONDS * 1000,
  };
  const result = await deps.deviceCodes.poll(sha256Of(body.device_code), made, deps.now());
  if (result !== 'issued') return { result, access_token: null, expires_in: 0 };
  deps.changes.notify('policy');
  const scope = (await deps.deviceTokens.find(made.hash, deps.now()))?.scope ?? 'projects';
  return { result, access_token: token, expires_in: DEVICE_TOKEN_SECONDS, scope };
}

async function deviceTokensOf(deps: Deps, { body }: Call<'deviceTokensOf'>) {
  // One page is enough: the number of tokens per person is limited.
  const { items } = await deps.deviceTokens.list({ email: body.email }, deps.now(), {
    limit: 200,
    cursor: null,
  });
  return { items: items.map(deviceTokenView) };
}

async function revokeDeviceTokenOf(deps: Deps, { body, request }: Call<'revokeDeviceTokenOf'>) {
  request.audited = { user: body.email, via: 'gateway', target: body.id };
  await deps.deviceTokens.revoke(body.id, body.email);
  deps.changes.notify('policy', 'access');
}

async function loginSeen({ body, request }: Call<'loginSeen'>) {
  const audited: Audited = {
    user: body.email,
    via: 'gateway',
    action: body.outcome === 'signed_out' ? 'signOut' : 'signIn',
    target: body.provider,
    address: body.address,
  };
  request.audited =
    body.outcome === 'refused' ? { ...audited, outcome: 'refused', code: body.reason } : audited;
}
