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
import { readRotation } from '../../domain/secrets/rotation.ts';
import { type Attempts, networkOf } from '../auth/attempts.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
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

/** There are 20^8 user codes, so a collision is rare. Five in a row mean a bug. */
const CODE_TRIES = 5;

const OF_GATEWAYS: readonly RotatedSetting[] = ['GATEWAY_SECRET', 'SESSION_SECRET'];

/**
 * Without what belongs to secrets that gateways do not have: a fingerprint lets a thief check
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

export type GatewayRouteDeps = ApiDeps & {
  holds: Holds;
  /** Counts wrong user codes by network. */
  guesses: Attempts;
  /** Counts requests for device codes by network. */
  codeRequests: Attempts;
};

export function gatewayRoutes(route: Define, deps: GatewayRouteDeps): void {
  const { stores, policy, changes, holds, guesses, codeRequests, now } = deps;

  route('gatewayPolicy', async ({ query, setEtag, request, reply }) => {
    const knownEtag = request.headers['if-none-match'];
    const end = performance.now() + (query.wait ?? 0) * 1000;
    let answer = await policy.current();
    const hold =
      query.wait !== undefined && matchesEtag(knownEtag, answer.etag)
        ? holds.begin('policy', reply.raw)
        : null;
    try {
      while (hold !== null && matchesEtag(knownEtag, answer.etag)) {
        const left = end - performance.now();
        if (left <= 0 || hold.signal.aborted) break;
        await policy.changed(answer.etag, left, hold.signal);
        answer = await policy.current();
      }
    } finally {
      hold?.release();
    }
    setEtag(answer.etag);
    if (matchesEtag(knownEtag, answer.etag)) void reply.code(304).send();
    else void reply.code(200).type('application/json').send(answer.bytes);
    return SENT;
  });

  route('gatewaySeen', ({ body, request }) =>
    deps.secretUse.gatewaySeen(body, request.gatewaySecret ?? '', request.ip),
  );

  route('gatewayRotation', async () =>
    forGateway(await readRotation({ ...stores, keys: stores.projectKeys }, now(), false)),
  );

  route('revokeSession', async ({ body }) => {
    await stores.revokedSessions.revoke(
      { ...body, expires_at: Date.parse(body.expires_at) },
      now(),
    );
    changes.notify('policy', 'access');
  });

  route('redeemCode', async ({ body }) =>
    stores.usedCodes.redeem({ id: body.id, expires_at: Date.parse(body.expires_at) }, now()),
  );

  route('createDeviceCode', async ({ body }) => {
    codeRequests.begin(networkOf(body.address));
    for (let tries = 0; tries < CODE_TRIES; tries++) {
      const [device_code, user_code] = [newDeviceCode(), newUserCode()];
      const code = {
        device_hash: sha256Of(device_code),
        user_hash: sha256Of(userCodeOf(user_code) ?? ''),
        address: body.address,
        user_agent: body.user_agent,
        scope: body.scope ?? 'projects',
        poll_seconds: DEVICE_POLL_SECONDS,
        expires_at: now() + DEVICE_CODE_SECONDS * 1000,
      };
      if (await stores.deviceCodes.create(code, now()))
        return {
          device_code,
          user_code,
          expires_in: DEVICE_CODE_SECONDS,
          interval: DEVICE_POLL_SECONDS,
        };
    }
    throw new Error(`cannot create a device code: ${CODE_TRIES} user codes in a row were taken`);
  });

  /**
   * Calls `use` with a typed user code. Counts wrong codes by the network of the person. A correct
   * code does not reset the count (RFC 8628 section 5.1). Throws not_found, too_many_attempts.
   */
  async function guess<T>(
    address: string,
    typed: string,
    use: (userHash: string, letters: string) => Promise<T>,
  ): Promise<T> {
    const key = networkOf(address);
    guesses.begin(key);
    const letters = userCodeOf(typed);
    if (letters === null)
      throw new DomainError('not_found', 'the user code is unknown or has expired');
    try {
      const used = await use(sha256Of(letters), letters);
      guesses.takeBack(key);
      return used;
    } catch (error) {
      if (!(error instanceof DomainError && error.code === 'not_found')) guesses.takeBack(key);
      throw error;
    }
  }

  route('lookupDeviceCode', ({ body }) =>
    guess(body.address, body.user_code, async (hash, letters) => {
      const code = await stores.deviceCodes.findPending(hash, now());
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
    }),
  );

  route('decideDeviceCode', ({ body, request }) => {
    const { identity, address, approve } = body;
    request.audited = {
      user: identity.email,
      via: 'gateway',
      address,
      target: approve ? 'approved' : 'denied',
    };
    return guess(address, body.user_code, (hash) =>
      stores.deviceCodes.decide(hash, approve, identity, now()),
    );
  });

  route('pollDeviceCode', async ({ body }) => {
    const token = newDeviceToken();
    const made = {
      id: newId(),
      hash: sha256Of(token),
      expires_at: now() + DEVICE_TOKEN_SECONDS * 1000,
    };
    const result = await stores.deviceCodes.poll(sha256Of(body.device_code), made, now());
    if (result !== 'issued') return { result, access_token: null, expires_in: 0 };
    changes.notify('policy');
    const scope = (await stores.deviceTokens.find(made.hash, now()))?.scope ?? 'projects';
    return { result, access_token: token, expires_in: DEVICE_TOKEN_SECONDS, scope };
  });

  route('deviceTokensOf', async ({ body }) => {
    // One page is enough: the number of tokens per person is limited.
    const { items } = await stores.deviceTokens.list({ email: body.email }, now(), {
      limit: 200,
      cursor: null,
    });
    return { items: items.map(deviceTokenView) };
  });

  route('revokeDeviceTokenOf', async ({ body, request }) => {
    request.audited = { user: body.email, via: 'gateway', target: body.id };
    await stores.deviceTokens.revoke(body.id, body.email);
    changes.notify('policy', 'access');
  });

  route('deviceTokensUsed', async ({ body }) =>
    stores.deviceTokens.used(
      body.items.map(({ id, at }) => ({ id, at: Math.min(Date.parse(at), now()) })),
    ),
  );

  route('loginSeen', async ({ body, request }) => {
    request.audited = {
      user: body.email,
      via: 'gateway',
      action: body.outcome === 'signed_out' ? 'signOut' : 'signIn',
      target: body.provider,
      address: body.address,
      ...(body.outcome === 'refused' ? { outcome: 'refused', code: body.reason } : {}),
    };
  });
}
