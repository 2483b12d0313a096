/** Checks of the certificates of hosts: the verdicts, and the rate of handshakes. */
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { createServer, type Server, type TlsOptions } from 'node:tls';
import { afterAll, describe, expect, test } from 'vitest';
import {
  type Handshake,
  judgeCertificate,
  worstCertificate,
} from '../../src/domain/routes/certificates.ts';
import { createCertificateWatch, HOSTS_PER_RUN } from '../../src/routing/certificates.ts';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
const NOW = Date.parse('2026-11-23T12:00:00Z');
const HOST = 'shop.berth.test';
type Certificate = Extract<Handshake, { kind: 'certificate' }>;
const good: Certificate = {
  kind: 'certificate',
  subject: HOST,
  issuer: "Let's Encrypt R11",
  notBefore: NOW - 10 * DAY,
  notAfter: NOW + 80 * DAY - 1_000,
  otherNames: null,
  untrusted: null,
};
const judge = (change: Partial<Certificate>, isNew = false) =>
  judgeCertificate(HOST, { ...good, ...change }, isNew, NOW);
const untilEnd = (left: number, lifetime: number) =>
  judge({ notAfter: NOW + left, notBefore: NOW + left - lifetime })?.state;

describe('a certificate', () => {
  test('in order', () => {
    expect(judge({})).toEqual({
      state: 'ok',
      issuer: "Let's Encrypt R11",
      not_after: good.notAfter,
      problem: null,
    });
  });
  test.each<[string, Partial<Certificate>, string]>([
    [
      'Traefik’s own',
      {
        subject: 'TRAEFIK DEFAULT CERT',
        otherNames: 'x.traefik.default',
        untrusted: 'DEPTH_ZERO_SELF_SIGNED_CERT',
      },
      'has no certificate for shop.berth.test',
    ],
    [
      'for another name',
      { otherNames: 'other.test' },
      'serves a certificate for other.test, not for shop.berth.test',
    ],
    [
      'of an unknown authority',
      { untrusted: 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY' },
      'NODE_EXTRA_CA_CERTS',
    ],
  ])('%s: pending for a new host, then invalid with what to do', (_, change, text) => {
    expect(judge(change, true)).toMatchObject({ state: 'pending', problem: null });
    const judged = judge(change);
    expect(judged?.state).toBe('invalid');
    expect(judged?.problem).toContain(text);
    expect(judged?.problem).toMatch(/log of the proxy|its log|NODE_EXTRA_CA_CERTS/);
  });
  test.each<[string, Partial<Certificate>, string]>([
    [
      'expired',
      { notBefore: NOW - 90 * DAY, notAfter: NOW - 1, untrusted: 'CERT_HAS_EXPIRED' },
      'expired on 2026-11-23 11:59 UTC',
    ],
    [
      'not valid yet',
      { notBefore: NOW + HOUR, untrusted: 'CERT_NOT_YET_VALID' },
      'check the clocks',
    ],
  ])('%s: invalid at once, also for a new host', (_, change, text) => {
    expect(judge(change, true)).toMatchObject({
      state: 'invalid',
      problem: expect.stringContaining(text) as string,
    });
  });
  test('that the proxy refuses: pending, then invalid', () => {
    const refused = { kind: 'refused', why: 'ERR_SSL_TLSV1_UNRECOGNIZED_NAME' } as const;
    expect(judgeCertificate(HOST, refused, true, NOW)?.state).toBe('pending');
    expect(judgeCertificate(HOST, refused, false, NOW)).toMatchObject({
      state: 'invalid',
      issuer: null,
      not_after: null,
    });
  });
  test('a proxy that does not answer says nothing', () =>
    expect(judgeCertificate(HOST, { kind: 'no_answer' }, false, NOW)).toBeNull());
  test('expires_soon comes after the time at which Traefik renews, for each lifetime', () => {
    // [lifetime, Traefik renews at, Berth warns at]
    for (const [lifetime, renewed, late] of [
      [90 * DAY - 1_000, 30 * DAY, 14 * DAY],
      [47 * DAY, 10 * DAY, 5 * DAY],
      [7 * DAY, DAY, DAY / 2],
      [6 * DAY, 6 * HOUR, 3 * HOUR],
      [12 * HOUR, HOUR / 3, HOUR / 6],
    ] as const) {
      expect(untilEnd(renewed, lifetime)).toBe('ok');
      expect(untilEnd(late + 1_000, lifetime)).toBe('ok');
      expect(untilEnd(late - 1_000, lifetime)).toBe('expires_soon');
    }
  });
  test('of several entry points, the worst one counts', () => {
    const states = (...changes: Partial<Certificate>[]) =>
      worstCertificate(changes.flatMap((change) => judge(change) ?? []))?.state;
    expect(states({}, { notAfter: NOW - 1 }, {})).toBe('invalid');
    expect(states({}, { notAfter: NOW + HOUR })).toBe('expires_soon');
    expect(worstCertificate([])).toBeNull();
  });
});

describe('the watch', () => {
  const signal = new AbortController().signal;
  const hosts = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ host: `h${i}.berth.test`, project_id: `p${i}` }));
  function world(answer: (host: string) => Handshake = () => good) {
    let at = NOW;
    const asked: string[] = [];
    const lines: [string, object][] = [];
    const watch = createCertificateWatch({
      probeUrls: ['http://127.0.0.1:80', 'https://127.0.0.1:443'],
      intervalMs: HOUR,
      now: () => at,
      monotonic: () => at,
      log: {
        warn: (o: object) => void lines.push(['warn', o]),
        info: (o: object) => void lines.push(['info', o]),
      } as never,
      handshake: async (url, host) => {
        expect(url).toBe('https://127.0.0.1:443');
        asked.push(host);
        return { ...answer(host) };
      },
    });
    return { watch, asked, lines, pass: (ms: number) => void (at += ms) };
  }

  test('asks at a bounded rate, for each host in turn, and then once in the interval', async () => {
    const { watch, asked, pass } = world();
    const many = hosts(4 * HOSTS_PER_RUN + 1);
    for (let second = 0; second < 60; second++) {
      const before = asked.length;
      await watch.check(many, signal);
      expect(asked.length - before).toBeLessThanOrEqual(HOSTS_PER_RUN);
      pass(1_000);
    }
    expect(asked.toSorted()).toEqual(many.map(({ host }) => host).toSorted());
    expect(watch.ofProject('p7')).toMatchObject({ state: 'ok', checked_at: NOW + 1_000 });
    expect(watch.firstExpiry()).toBe(good.notAfter);
    pass(HOUR);
    await watch.check(many, signal);
    expect(asked).toHaveLength(many.length + HOSTS_PER_RUN);
  });

  test('hosts with a problem do not keep others waiting', async () => {
    const { watch, asked, pass } = world((host) =>
      host === 'new.berth.test' ? good : { ...good, notAfter: NOW - 1 },
    );
    const bad = hosts(100);
    for (let second = 0; second < 200; second++, pass(1_000)) await watch.check(bad, signal);
    await watch.check([...bad, { host: 'new.berth.test', project_id: 'new' }], signal);
    for (let second = 0; second < 30 && watch.ofProject('new') === null; second++, pass(1_000))
      await watch.check([...bad, { host: 'new.berth.test', project_id: 'new' }], signal);
    expect(watch.ofProject('new')?.state).toBe('ok');
    expect(asked.filter((host) => host === 'h0.berth.test').length).toBeLessThanOrEqual(11);
  });

  test('waits 3 minutes for the first certificate of a host', async () => {
    const { watch, lines, pass } = world(() => ({ ...good, subject: 'TRAEFIK DEFAULT CERT' }));
    const states: (string | undefined)[] = [];
    for (let second = 0; second < 240; second++, pass(1_000)) {
      await watch.check(hosts(1), signal);
      states.push(watch.ofProject('p0')?.state);
    }
    expect(states.indexOf('invalid')).toBe(180);
    expect(new Set(states.slice(0, 180))).toEqual(new Set(['pending']));
    expect(lines).toHaveLength(1);
  });

  test('one line in the log for each problem, and one when it is solved', async () => {
    let answer: Handshake = { ...good, notAfter: NOW - 1 };
    const { watch, lines, pass } = world(() => answer);
    const one = hosts(1);
    for (let i = 0; i < 10; i++, pass(60_000)) await watch.check(one, signal);
    expect(lines).toEqual([
      ['warn', { host: 'h0.berth.test', problem: expect.stringContaining('expired') as string }],
    ]);
    expect(watch.problems()).toHaveLength(1);
    expect(watch.projectsWithProblem()).toEqual(['p0']);
    answer = { kind: 'no_answer' };
    await watch.check(one, signal);
    // A proxy that is down proves nothing: the problem stays.
    expect(watch.problems()).toHaveLength(1);
    pass(10_000);
    answer = good;
    await watch.check(one, signal);
    expect(lines).toHaveLength(2);
    expect(lines[1]).toEqual(['info', { host: 'h0.berth.test', issuer: good.issuer }]);
    expect(watch.problems()).toEqual([]);
  });

  test('a custom domain concerns the operator only after its first good certificate; its project sees its problem from the start', async () => {
    let answer: Handshake = {
      ...good,
      subject: 'TRAEFIK DEFAULT CERT',
      otherNames: 'x.traefik.default',
    };
    const { watch, lines, pass } = world(() => answer);
    const domain = [{ host: 'www.shop.example', project_id: 'p0', custom: true }];
    const look = async (next: Handshake): Promise<unknown[]> => {
      answer = next;
      pass(HOUR);
      await watch.check(domain, signal);
      return [
        watch.ofHost('www.shop.example')?.state,
        watch.problems().length,
        watch.watched()[0]?.last?.state,
        lines.length,
      ];
    };
    expect(await look(answer)).toEqual(['pending', 0, undefined, 0]);
    expect(await look(answer)).toEqual(['invalid', 0, undefined, 0]);
    // The host of the project itself has no verdict by its custom domain.
    expect(watch.ofProject('p0')).toBeNull();
    expect(await look(good)).toEqual(['ok', 0, 'ok', 0]);
    expect(await look({ ...good, notAfter: NOW - 1 })).toEqual(['invalid', 1, 'invalid', 1]);
    expect(await look(good)).toEqual(['ok', 0, 'ok', 2]);
  });

  test('forgets a host that is no longer published', async () => {
    const { watch } = world(() => ({ ...good, notAfter: NOW - 1 }));
    await watch.check(hosts(2), signal);
    await watch.check(hosts(1), signal);
    expect(watch.problems()).toHaveLength(1);
    expect(watch.ofProject('p1')).toBeNull();
  });
});

describe('a handshake', () => {
  const servers: Server[] = [];
  const listen = async (options: TlsOptions): Promise<number> => {
    const server = createServer(options).on('tlsClientError', () => undefined);
    servers.push(server);
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    return (server.address() as AddressInfo).port;
  };
  afterAll(() => servers.forEach((server) => server.close()));
  const stateOf = async (port: number, signal = new AbortController().signal) => {
    const watch = createCertificateWatch({
      probeUrls: [`https://127.0.0.1:${port}`],
      intervalMs: HOUR,
      now: Date.now,
      monotonic: () => performance.now(),
      log: { warn: () => undefined, info: () => undefined },
    });
    await watch.check([{ host: HOST, project_id: 'p' }], signal);
    return watch.ofProject('p')?.state ?? null;
  };

  test('with a proxy that refuses it is an answer', async () => {
    expect(await stateOf(await listen({}))).toBe('pending');
  });
  test('with nobody, or with a proxy that cuts the connection, says nothing', async () => {
    expect(await stateOf(9)).toBeNull();
    expect(
      await stateOf(await listen({ SNICallback: (_name, done) => done(new Error('cut')) })),
    ).toBeNull();
  });
  test('ends when the control plane stops', async () => {
    const stop = new AbortController();
    const silent = createTcpServer(() => stop.abort());
    await new Promise<void>((listening) => silent.listen(0, '127.0.0.1', listening));
    expect(await stateOf((silent.address() as AddressInfo).port, stop.signal)).toBeNull();
    silent.close();
  });
});
