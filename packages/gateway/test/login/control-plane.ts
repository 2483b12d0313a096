/**
 * Simulates the control plane for the gateway, in memory: device codes (RFC 8628), tokens,
 * revocations, audit log. It can be down.
 */
import { createHash, randomBytes } from 'node:crypto';
import { ApiError, type CallResult, type Client, UnreachableError } from '@berth/wire/client';
import {
  DEVICE_TOKEN_SECONDS,
  type DeviceCodeSeen,
  type DeviceToken,
  FIRST_CLAIM,
  type Identity,
  type LoginSeen,
  type Policy,
  USER_CODE_LETTERS,
} from '@berth/wire/gateway';
import { type AnswerOf, ROUTES, type RouteName } from '@berth/wire/routes';
import { Value } from 'typebox/value';

type Code = DeviceCodeSeen & { device_code: string; decided: Identity | 'denied' | null };

export type ControlPlane = {
  client: Client;
  policy: Policy;
  /** Logins that were reported to the audit log. */
  logins: LoginSeen[];
  codes: Code[];
  tokens: (DeviceToken & { token: string })[];
  /** Down: no call is answered. */
  away: boolean;
  /** The person who has the maximum number of devices. */
  fullFor: string | null;
  /** Answers the held requests, because the policy changed. */
  changed(): void;
  calls: RouteName[];
};

const letters = (text: string): string => text.toUpperCase().replace(/[\s-]/g, '');
const problem = (status: number, code: string): ApiError => new ApiError(status, code, code, null);
const WRONG_A_MINUTE = 10;

export function createControlPlane(): ControlPlane {
  let version = 1;
  let bell = Promise.withResolvers<void>();
  const wrong = new Map<string, number>();

  const handlers: { [N in RouteName]?: (body: never) => unknown } = {
    createDeviceCode({
      scope = 'projects',
      ...asker
    }: {
      address: string;
      user_agent: string;
      scope?: DeviceCodeSeen['scope'];
    }) {
      const random = [...randomBytes(8)]
        .map((byte) => USER_CODE_LETTERS[byte % USER_CODE_LETTERS.length])
        .join('');
      const user_code = `${random.slice(0, 4)}-${random.slice(4)}`;
      const device_code = randomBytes(32).toString('base64url');
      const at = new Date().toISOString();
      cp.codes.push({
        ...asker,
        scope,
        user_code,
        device_code,
        decided: null,
        requested_at: at,
        expires_at: new Date(Date.now() + 600_000).toISOString(),
      });
      return { device_code, user_code, expires_in: 600, interval: 5 };
    },
    lookupDeviceCode: ({ user_code, address }: { user_code: string; address: string }) => {
      const { device_code: _code, decided: _decided, ...seen } = pending(user_code, address);
      return seen;
    },
    decideDeviceCode(asked: {
      user_code: string;
      address: string;
      approve: boolean;
      identity: Identity;
    }) {
      const code = pending(asked.user_code, asked.address);
      if (asked.approve && cp.fullFor === asked.identity.email)
        throw problem(409, 'too_many_tokens');
      code.decided = asked.approve ? asked.identity : 'denied';
    },
    pollDeviceCode({ device_code }: { device_code: string }) {
      const code = cp.codes.find((c) => c.device_code === device_code);
      const none = (result: string): object => ({ result, access_token: null, expires_in: 0 });
      if (code === undefined) return none('invalid_grant');
      if (code.decided === null) return none('authorization_pending');
      if (code.decided === 'denied') return none('access_denied');
      const token = `berth_${randomBytes(32).toString('base64url')}`;
      const id = randomBytes(9).toString('base64url');
      const expires_at = new Date(Date.now() + DEVICE_TOKEN_SECONDS * 1000).toISOString();
      const { email, provider } = code.decided;
      const { address, user_agent, scope } = code;
      cp.tokens.push({
        id,
        token,
        email,
        provider,
        created_at: new Date().toISOString(),
        expires_at,
        last_used_at: null,
        address,
        user_agent,
        scope,
      });
      cp.policy.device_tokens.push({
        id,
        hash: createHash('sha256').update(token).digest('hex'),
        identity: code.decided,
        expires_at,
      });
      cp.codes.splice(cp.codes.indexOf(code), 1);
      cp.changed();
      return { result: 'issued', access_token: token, expires_in: DEVICE_TOKEN_SECONDS, scope };
    },
    deviceTokensOf: ({ email }: { email: string }) => ({
      items: cp.tokens.filter((t) => t.email === email).map(({ token: _token, ...shown }) => shown),
    }),
    revokeDeviceTokenOf({ id, email }: { id: string; email: string }) {
      const index = cp.tokens.findIndex((t) => t.id === id && t.email === email);
      if (index === -1) throw problem(404, 'not_found');
      cp.tokens.splice(index, 1);
      cp.policy.device_tokens = cp.policy.device_tokens.filter((t) => t.id !== id);
      cp.changed();
    },
    revokeSession({ id, expires_at }: { id: string; expires_at: string }) {
      cp.policy.revoked_sessions.push({ id, expires_at });
      cp.changed();
    },
    deviceTokensUsed: () => undefined,
    loginSeen: (seen: LoginSeen) => void cp.logins.push(seen),
  };

  function pending(userCode: string, address: string): Code {
    if ((wrong.get(address) ?? 0) >= WRONG_A_MINUTE) throw problem(429, 'too_many_attempts');
    const code = cp.codes.find(
      (c) => letters(c.user_code) === letters(userCode) && c.decided === null,
    );
    if (code === undefined) {
      wrong.set(address, (wrong.get(address) ?? 0) + 1);
      throw problem(404, 'not_found');
    }
    return code;
  }

  async function heldPolicy(
    etag: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<CallResult<'gatewayPolicy'>> {
    const gone = new Promise<void>((resolve) =>
      signal?.addEventListener('abort', () => resolve(), { once: true }),
    );
    while (etag === `"${version}"` && signal?.aborted !== true)
      await Promise.race([bell.promise, gone]);
    signal?.throwIfAborted();
    return { status: 200, etag: `"${version}"`, answer: structuredClone(cp.policy) };
  }

  const cp: ControlPlane = {
    policy: {
      projects: [
        {
          id: 'p-alpha',
          name: 'alpha',
          hosts: ['alpha.berth.localhost'],
          host_claims: [{ host: 'alpha.berth.localhost', claim: FIRST_CLAIM }],
        },
        {
          id: 'p-beta',
          name: 'beta',
          hosts: ['beta.berth.localhost'],
          host_claims: [{ host: 'beta.berth.localhost', claim: FIRST_CLAIM }],
        },
      ],
      disabled_users: [],
      revoked_sessions: [],
      device_tokens: [],
    },
    logins: [],
    codes: [],
    tokens: [],
    calls: [],
    away: false,
    fullFor: null,
    changed() {
      version++;
      bell.resolve();
      bell = Promise.withResolvers();
    },
    client: {
      async exchange(name, input) {
        const given = input as {
          body?: unknown;
          headers?: Record<string, string>;
          signal?: AbortSignal;
        };
        cp.calls.push(name);
        await Promise.resolve();
        if (cp.away) throw new UnreachableError(`${name}: away`);
        if (name === 'gatewayPolicy') {
          const result = await heldPolicy(given.headers?.['if-none-match'], given.signal);
          return result as CallResult<typeof name>;
        }
        const handler = handlers[name] as ((body: unknown) => unknown) | undefined;
        if (handler === undefined) throw new Error(`${name}: nobody expected that`);
        const { body } = ROUTES[name] as { body?: object };
        // Refuse the same requests as the real control plane.
        if (body !== undefined && !Value.Check(body, given.body)) throw problem(422, 'validation');
        return { status: 200, etag: null, answer: handler(given.body) as AnswerOf<typeof name> };
      },
      async call(name, input) {
        const { answer } = await cp.client.exchange(name, input);
        return answer as AnswerOf<typeof name>;
      },
    },
  };
  return cp;
}
