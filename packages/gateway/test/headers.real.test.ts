/**
 * Forged identity headers through the real Traefik and the real gateway process, with the control
 * plane's configuration: every spelling x {open, protected} x {HTTP, WebSocket}. The tests check
 * the bytes that the application receives.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { request } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { dynamicConfig } from '@berth/control-plane/routing/traefik';
import { findProgram, findTraefik, programsRoot } from '@berth/testbed/config';
import {
  asAnApplicationReads,
  COMMONLY_FORGED_HEADERS,
  FORGED_HEADERS,
  isIdentityHeader,
} from '@berth/testbed/forged-headers';
import { freePort } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { startTraefik, type Traefik } from '@berth/testbed/traefik';
import { waitFor } from '@berth/testbed/wait';
import { createLocalJWKSet, jwtVerify } from 'jose';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deriveKeys, jwks } from '../src/keys.ts';
import { createSessions } from '../src/session.ts';
import { ANNA, BASE, ENV, policyOf, SECRET, sessionOf } from './core-support.ts';
import { type HttpControlPlane, httpControlPlane } from './http-control-plane.ts';

type Pair = [name: string, value: string];
const FORGED = 'forged@evil.example';
const EXPECTED = [
  'x-forwarded-user',
  'x-forwarded-user-assertion',
  'x-forwarded-user-avatar',
  'x-forwarded-user-name',
  'x-forwarded-user-provider',
];

const missing = findTraefik() === undefined || findProgram('openssl') === undefined;
/**
 * `delete` is the Traefik of deploy/traefik. `unset` is a Traefik that was set up without this
 * option.
 */
describe.skipIf(missing).each(['delete', 'unset'] as const)(
  'forged identity headers, aliasHeadersStrategy %s',
  (aliasHeaders) => {
    // Traefik deletes an alias in any case. Without the option, the expressions must catch each
    // spelling.
    const tried =
      aliasHeaders === 'delete'
        ? FORGED_HEADERS.filter(
            (name) => name !== name.toLowerCase() && name !== name.toUpperCase(),
          )
        : FORGED_HEADERS;
    const forOpen = aliasHeaders === 'delete' ? tried : COMMONLY_FORGED_HEADERS;
    let dir: string;
    let controlPlane: HttpControlPlane;
    let gateway: RunningProcess;
    let traefik: Traefik;
    const servers: Server[] = [];
    const session = sessionOf();
    const sessions = createSessions(deriveKeys([SECRET]), Date.now);

    const listen = (server: Server): Promise<number> =>
      new Promise((resolve) => {
        servers.push(server);
        server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
      });

    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'berth-headers-'));
      // An application that returns the request it received, including an upgrade request.
      const seen = (r: IncomingMessage): string =>
        Buffer.from(JSON.stringify(r.rawHeaders)).toString('base64');
      const app = createServer(
        { maxHeaderSize: 256 * 1024 },
        (r, response) => void response.writeHead(200, { 'x-seen': seen(r) }).end(),
      );
      app.on(
        'upgrade',
        (r, socket) =>
          void socket.end(
            `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: ` +
              `Upgrade\r\nX-Seen: ${seen(r)}\r\n\r\n`,
          ),
      );
      const appPort = await listen(app);
      // The same application at a second address: two projects never have one.
      const openPort = await listen(
        createServer({ maxHeaderSize: 256 * 1024 })
          .on('request', (...given) => void app.emit('request', ...given))
          .on('upgrade', (...given) => void app.emit('upgrade', ...given)),
      );

      controlPlane = await httpControlPlane(policyOf());
      const gatewayPort = await freePort();
      const authServiceUrl = `http://127.0.0.1:${gatewayPort}`;
      const route = { node_id: 'n', published_at: 0, host_ip: '127.0.0.1', host_port: appPort };
      const config = dynamicConfig(
        [
          {
            ...route,
            project_id: 'p1',
            project_name: 'one',
            domain_prefix: 'one',
            deployment_id: 'd1',
            auth_required: true,
          },
          {
            ...route,
            project_id: 'p3',
            project_name: 'open',
            domain_prefix: 'open',
            deployment_id: 'd3',
            auth_required: false,
            host_port: openPort,
          },
        ],
        { baseDomain: BASE, authServiceUrl, acmeResolver: '' },
      );
      const configPort = await listen(
        createServer(
          (_, response) =>
            void response.writeHead(200, { 'content-type': 'application/json' }).end(config.bytes),
        ),
      );

      gateway = await startProcess(
        [process.execPath, join(programsRoot(), 'bin', 'berth'), 'gateway'],
        {
          name: 'gateway',
          env: {
            ...ENV,
            LISTEN: `127.0.0.1:${gatewayPort}`,
            CONTROL_PLANE_URL: controlPlane.url,
            STATE_DIR: join(dir, 'state'),
            LOG_FORMAT: 'json',
          },
        },
      );
      await untilReady(gateway, async () => (await fetch(`${authServiceUrl}/readyz`)).ok, 20_000);
      traefik = await startTraefik({
        dir,
        configUrl: `http://127.0.0.1:${configPort}/`,
        held: false,
        aliasHeaders,
      });
      await waitFor('both routes answer', async () => {
        const [one, open] = [
          await ask('one', 'HTTP', [['Cookie', cookie()]]),
          await ask('open', 'HTTP', []),
        ];
        return one.status === 200 && open.status === 200;
      });
    });
    afterAll(async () => {
      await traefik?.stop();
      await gateway?.stop();
      await controlPlane?.kill();
      for (const server of servers) {
        server.close();
        server.closeAllConnections();
      }
      await rm(dir, { recursive: true, force: true });
    });

    const cookie = (): string => `svc_fwd_session=${sessions.seal(session, 'project:p1')}`;

    type Kind = 'HTTP' | 'WebSocket';
    /** The request that the application received; null if it received none. */
    function ask(
      prefix: string,
      kind: Kind,
      headers: readonly Pair[],
      host = `${prefix}.${BASE}`,
    ): Promise<{ status: number; seen: Pair[] | null }> {
      const upgrade: Pair[] = [
        ['Connection', 'Upgrade'],
        ['Upgrade', 'websocket'],
        ['Sec-WebSocket-Version', '13'],
        ['Sec-WebSocket-Key', 'dGhlIHNhbXBsZSBub25jZQ=='],
      ];
      return new Promise((resolve, reject) => {
        const answered = (response: IncomingMessage): void => {
          const seen = response.headers['x-seen'];
          const flat =
            typeof seen === 'string'
              ? (JSON.parse(Buffer.from(seen, 'base64').toString()) as string[])
              : null;
          response.resume();
          resolve({
            status: response.statusCode ?? 0,
            seen:
              flat === null
                ? null
                : flat.flatMap((name, i) =>
                    i % 2 === 0 ? [[name, flat[i + 1] ?? ''] as Pair] : [],
                  ),
          });
        };
        const all: Pair[] = [['Host', host], ...(kind === 'WebSocket' ? upgrade : []), ...headers];
        const sent = request({
          host: '127.0.0.1',
          port: traefik.websecurePort,
          servername: `${prefix}.${BASE}`,
          rejectUnauthorized: false,
          path: '/',
          agent: false,
          headers: all.flat(),
          setHost: false,
          maxHeaderSize: 512 * 1024,
        });
        sent.on('response', answered);
        sent.on('upgrade', (response, socket) => {
          answered(response);
          socket.destroy();
        });
        sent.on('error', reject);
        sent.end();
      });
    }
    const identityIn = (seen: readonly Pair[] | null): Pair[] =>
      (seen ?? []).filter(([name]) => isIdentityHeader(name));
    const namesIn = (seen: readonly Pair[] | null): string[] =>
      identityIn(seen)
        .map(([name]) => asAnApplicationReads(name))
        .toSorted();

    it('are tested in at least 32 spellings', () => {
      expect(new Set(FORGED_HEADERS).size).toBeGreaterThanOrEqual(32);
    });

    describe.each(['HTTP', 'WebSocket'] as const)('by %s', (kind) => {
      const opens = kind === 'HTTP' ? 200 : 101;

      it.each(forOpen)('%s never reaches an open project', async (name) => {
        const { status, seen } = await ask('open', kind, [
          [name, FORGED],
          ['X-Other', 'kept'],
        ]);
        expect(status).toBe(opens);
        expect(identityIn(seen)).toEqual([]);
        expect(seen).toContainEqual(['X-Other', 'kept']);
      });

      it.each(tried)(
        '%s never reaches a protected project, with or without a session',
        async (name) => {
          const { status, seen } = await ask('one', kind, [
            [name, FORGED],
            ['Cookie', cookie()],
          ]);
          expect(status).toBe(opens);
          expect(namesIn(seen)).toEqual(EXPECTED);
          expect(JSON.stringify(seen)).not.toContain(FORGED);
          expect((await ask('one', kind, [[name, FORGED]])).seen).toBeNull();
        },
      );

      it('all spellings together, twice each, never reach a project', async () => {
        const all = [...FORGED_HEADERS, ...FORGED_HEADERS].map((name): Pair => [name, FORGED]);
        const toOpen = [...forOpen, ...forOpen].map((name): Pair => [name, FORGED]);
        expect(identityIn((await ask('open', kind, toOpen)).seen)).toEqual([]);
        const { seen } = await ask('one', kind, [...all, ['Cookie', cookie()]]);
        expect(namesIn(seen)).toEqual(EXPECTED);
        expect(JSON.stringify(seen)).not.toContain(FORGED);
      });

      it('a protected project gets the identity, an assertion that verifies for its host, and no credentials of Berth', async () => {
        const { seen } = await ask('one', kind, [
          ['Cookie', `a=1; ${cookie()}; b=2`],
          ['Authorization', 'Basic dTpw'],
        ]);
        const got = new Map(seen?.map(([name, value]) => [name.toLowerCase(), value]));
        expect(got.get('x-forwarded-user')).toBe(ANNA.email);
        expect(decodeURIComponent(got.get('x-forwarded-user-name') ?? '')).toBe(ANNA.name);
        expect(got.get('x-forwarded-user-provider')).toBe('oidc');
        expect(got.get('cookie')).toBe('a=1; b=2');
        expect(got.get('authorization')).toBe('Basic dTpw');
        const published = createLocalJWKSet(jwks(deriveKeys([SECRET])));
        const { payload } = await jwtVerify(
          got.get('x-forwarded-user-assertion') ?? '',
          published,
          {
            issuer: `https://${BASE}`,
            audience: `one.${BASE}`,
          },
        );
        expect(payload['email']).toBe(ANNA.email);
        expect(JSON.stringify(seen)).not.toContain('svc_fwd_session');
      });
    });

    describe.each(['HTTP', 'WebSocket'] as const)('by %s', (kind) => {
      it.each([
        ...EXPECTED,
        'authorization',
        'x-forwarded-host',
        'x-forwarded-uri',
        'x-forwarded-method',
      ])('Connection: %s takes nothing away', async (name) => {
        // RFC 9110 section 7.6.1: proxies drop headers that Connection names. The application must
        // still see the true visitor.
        const { seen } = await ask('one', kind, [
          ['Connection', name],
          ['X-Forwarded-User', FORGED],
          ['Cookie', cookie()],
        ]);
        expect(namesIn(seen)).toEqual(EXPECTED);
        expect(new Map(identityIn(seen)).get('X-Forwarded-User')).toBe(ANNA.email);
      });

      it('Connection: Cookie makes the request anonymous', async () => {
        expect(
          (
            await ask('one', kind, [
              ['Connection', 'Cookie'],
              ['Cookie', cookie()],
            ])
          ).seen,
        ).toBeNull();
      });
    });

    it('the gateway does not get host, address and method from the client’s headers', async () => {
      const lies: Pair[] = [
        ['X-Forwarded-Host', `two.${BASE}`],
        ['X-Forwarded-Uri', '/elsewhere'],
        ['X-Forwarded-Method', 'OPTIONS'],
        ['X-Forwarded-Proto', 'http'],
      ];
      expect((await ask('one', 'HTTP', [...lies, ['Cookie', cookie()]])).status).toBe(200);
      expect(
        (
          await ask('one', 'HTTP', [
            ...lies,
            ['Cookie', `svc_fwd_session=${sessions.seal(session, 'project:p2')}`],
          ])
        ).seen,
      ).toBeNull();
    });

    describe.each(['HTTP', 'WebSocket'] as const)('a device token, by %s,', (kind) => {
      const token = `berth_${'A1-_z'.repeat(8)}abc`;
      const carried: [what: string, headers: Pair[]][] = [
        ['as clients send it', [['Authorization', `Bearer ${token}`]]],
        ['with the scheme in another case', [['authorization', `bEaReR ${token}`]]],
        ['after many spaces and tabs', [['Authorization', `Bearer \t  ${token} \t`]]],
        ['without a space', [['Authorization', `Bearer${token}`]]],
        ['without a scheme', [['Authorization', token]]],
        ['under another scheme', [['Authorization', `Token token="${token}"`]]],
        [
          'in the second of two headers',
          [
            ['Authorization', 'Basic dTpw'],
            ['Authorization', `Bearer ${token}`],
          ],
        ],
        [
          'in the first of three headers',
          [
            ['Authorization', `Bearer ${token}`],
            ['AUTHORIZATION', 'Basic dTpw'],
            ['authorization', 'Digest x'],
          ],
        ],
        ['in a list', [['Authorization', `Basic dTpw, Bearer ${token},Digest x`]]],
        ['for a proxy', [['Proxy-Authorization', `Bearer ${token}`]]],
      ];
      it.each(carried)('%s never reaches an open project', async (_, headers) => {
        const { status, seen } = await ask('open', kind, [
          ...headers,
          ['X-Other', 'kept'],
          ['Cookie', 'a=1'],
        ]);
        expect(status).toBe(kind === 'HTTP' ? 200 : 101);
        expect(seen).toContainEqual(['X-Other', 'kept']);
        expect(seen).toContainEqual(['Cookie', 'a=1']);
        expect(JSON.stringify(seen)).not.toContain('berth_');
      });
      it.each([`open.${BASE}.`, `OPEN.${BASE.toUpperCase()}`, `open.${BASE}:443`])(
        'with Host: %s never reaches an open project',
        async (host) => {
          const { status, seen } = await ask(
            'open',
            kind,
            [['Authorization', `Bearer ${token}`]],
            host,
          );
          expect(status).toBe(kind === 'HTTP' ? 200 : 101);
          expect(JSON.stringify(seen)).not.toContain('berth_');
        },
      );
      it('is checked by the gateway at a protected project: an unknown token is refused', async () => {
        expect(
          await ask('one', kind, [
            ['Authorization', `Bearer ${token}`],
            ['Cookie', cookie()],
          ]),
        ).toEqual({ status: 401, seen: null });
      });
      it('does not let forged identity headers pass', async () => {
        const forged = forOpen.map((name): Pair => [name, FORGED]);
        expect(
          identityIn(
            (await ask('open', kind, [['Authorization', `Bearer ${token}`], ...forged])).seen,
          ),
        ).toEqual([]);
      });
      it.each([
        'Basic dTpiZXJ0aF8=',
        'Bearer the-apps-own',
        'bearer berth_short',
        'Bearer berthpat_x',
        'Digest username="berth_"',
        'x,y',
      ])(
        'is not taken for one: Authorization %s reaches an open project unchanged',
        async (value) => {
          expect((await ask('open', kind, [['Authorization', value]])).seen).toContainEqual([
            'Authorization',
            value,
          ]);
        },
      );
    });

    it('128 KiB of headers pass', async () => {
      const { status, seen } = await ask('one', 'HTTP', [
        ['Cookie', `${cookie()}; big=${'x'.repeat(120 * 1024)}`],
      ]);
      expect(status).toBe(200);
      expect(namesIn(seen)).toEqual(EXPECTED);
    });

    it('1 MiB of headers is refused without a server error', async () => {
      const { status, seen } = await ask('one', 'HTTP', [
        ['Cookie', `${cookie()}; big=${'x'.repeat(900 * 1024)}`],
      ]);
      expect(status).toBe(431);
      expect(seen).toBeNull();
    });
  },
);
