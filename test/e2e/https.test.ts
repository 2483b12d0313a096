/**
 * Certificates end to end: issued, renewed, refused; and how Berth shows it when the certificate
 * authority fails.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  asAnApplicationReads,
  FORGED_HEADERS,
  isIdentityHeader,
} from '@berth/testbed/forged-headers';
import { waitFor } from '@berth/testbed/wait';
import { BASE_DOMAIN, type HttpsWorld, startHttpsWorld, whyNoHttps } from './https-world.ts';

const why = whyNoHttps();
const LONG = { deadlineMs: 60_000 };

describe.skipIf(why !== undefined)(`https${why === undefined ? '' : ` (skipped: ${why})`}`, () => {
  let world: HttpsWorld;
  const projects: Record<string, { id: string }> = {};
  const hostOf = (prefix: string): string => `${prefix}.${BASE_DOMAIN}`;
  const publish = async (prefix: string): Promise<void> =>
    void (projects[prefix] = await world.publish(prefix));
  const stateOf = async (prefix: string) =>
    (await world.certificateOf(projects[prefix] ?? { id: '' }))?.state;
  const untilState = (prefix: string, state: string): Promise<unknown> =>
    waitFor(
      `the certificate of ${prefix} is ${state}`,
      async () => (await stateOf(prefix)) === state,
      LONG,
    );
  /**
   * A Traefik that has just started has its certificates before its routes, and answers 404
   * between.
   */
  const untilTrusted = (prefix: string) =>
    waitFor(
      `${prefix} answers with a trusted certificate`,
      async () => {
        const answer = await world.get(hostOf(prefix));
        return answer.status === 404 ? undefined : answer;
      },
      LONG,
    );

  beforeAll(async () => {
    world = await startHttpsWorld({ validitySeconds: 86_400, refuses: [hostOf('refused')] });
    await world.startTraefik('tls-alpn-01');
  }, 120_000);
  afterAll(() => world?.stop(), 60_000);

  it('a project’s first https answer has a certificate of the authority (TLS-ALPN-01), and http leads there', async () => {
    await publish('one');
    const answer = await untilTrusted('one');
    expect(answer).toMatchObject({ status: 200, body: `project at ${hostOf('one')}` });
    expect(answer.certificate?.subjectaltname).toBe(`DNS:${hostOf('one')}`);
    expect(answer.certificate?.issuer.CN).toMatch(/^Pebble Intermediate CA/);
    expect(await world.get(hostOf('one'), { path: '/a?b=c', secure: false })).toMatchObject({
      status: 301,
      headers: { location: `https://${hostOf('one')}/a?b=c` },
    });
    await untilState('one', 'ok');
    expect(await world.certificateOf(projects['one'] ?? { id: '' })).toMatchObject({
      issuer: answer.certificate?.issuer.CN,
      not_after: new Date(answer.certificate?.valid_to ?? 0).toISOString(),
      problem: null,
    });
  });

  it('no forged identity header reaches a project, in any spelling', async () => {
    const before = world.reached.length;
    const forged = Object.fromEntries(FORGED_HEADERS.map((name) => [name, 'mallory@example.org']));
    expect(FORGED_HEADERS).toEqual(
      expect.arrayContaining(['X.Forwarded.User', 'X_Forwarded_User']),
    );
    await world.get(hostOf('one'), { headers: forged });
    const seen = world.reached.slice(before);
    expect(seen).toHaveLength(1);
    expect(
      Object.keys(seen[0] ?? {}).filter((name) => isIdentityHeader(asAnApplicationReads(name))),
    ).toEqual([]);
    expect(JSON.stringify(seen)).not.toContain('mallory');
  });

  it('the authority is down: sites stay up, also after a restart of Traefik, and a new host shows its problem', async () => {
    await world.stopTraefik();
    world.front.become('down');
    await world.startTraefik('http-01');
    expect((await untilTrusted('one')).status).toBe(200);
    await publish('two');
    await untilState('two', 'invalid');
    const problem = (await world.certificateOf(projects['two'] ?? { id: '' }))?.problem;
    expect(problem).toContain(
      `the proxy has no certificate for ${hostOf('two')}: the log of the proxy says why`,
    );
    expect(await world.notes()).toEqual([
      expect.stringMatching(/^\d+ hosts? ha(s|ve) no good certificate: berth status names them$/),
    ]);
    expect(await world.metric('berth_certificate_problems')).toBeGreaterThan(0);
    expect(world.traefik().tail()).toMatch(
      new RegExp(`Unable to obtain ACME certificate.*${hostOf('two').replaceAll('.', '\\.')}`),
    );
    expect(await stateOf('one')).toBe('ok');
  });

  it('a rate limit: the same, and the log of Traefik says until when', async () => {
    world.front.become('rate_limited');
    await publish('three');
    await untilState('three', 'invalid');
    await waitFor(
      'Traefik logs the limit',
      () => /rateLimited.*retry after 2026-11-30/.test(world.traefik().tail()),
      LONG,
    );
    expect((await world.get(hostOf('one'))).status).toBe(200);
  });

  it('the authority works again: the next change of routes repeats the orders (HTTP-01), and one log line says so', async () => {
    const limited = world.front.orders('rate_limited');
    // Traefik does not hammer an authority that refuses.
    expect(limited).toBeLessThan(20);
    world.front.become('pass');
    await publish('refused');
    for (const prefix of ['two', 'three']) {
      expect((await untilTrusted(prefix)).status).toBe(200);
      await untilState(prefix, 'ok');
    }
    const lines = (await world.logOfBerth())
      .split('\n')
      .filter((line) => line.includes(`"host":"${hostOf('two')}"`));
    expect(lines.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
      'a host has no good certificate',
      'a host has a good certificate again',
    ]);
  });

  it('a refusal: only this host has no certificate, and its project says so', async () => {
    await untilState('refused', 'invalid');
    expect(world.traefik().tail()).toMatch(/rejectedIdentifier.*refused/);
    expect((await world.certificateOf(projects['refused'] ?? { id: '' }))?.problem).toContain(
      hostOf('refused'),
    );
    // Everybody may read the notes.
    expect(await world.notes()).toEqual([expect.not.stringContaining(hostOf('refused'))]);
    await expect(world.get(hostOf('refused'))).rejects.toThrow(/certificate|altnames/i);
    expect((await world.get(hostOf('refused'), { secure: false })).status).toBe(301);
    for (const prefix of ['one', 'two', 'three'])
      expect((await world.get(hostOf(prefix))).status).toBe(200);
  });

  it('custom domains: each has its own certificate, and Berth says where it leads and what it lacks (docs/domains.md)', async () => {
    const [www, late, other] = ['www.two.example', 'late.two.example', 'three.example'];
    const setDomains = (prefix: string, domains: string[]) =>
      world.api.call('patchProject', {
        params: { id: projects[prefix]?.id ?? '' },
        body: { domains },
      });
    const domainsOf = async (prefix: string) =>
      (await world.api.call('projectDomains', { params: { id: projects[prefix]?.id ?? '' } }))
        .items;
    const seen = async (prefix: string) =>
      (await domainsOf(prefix)).map(({ domain, dns, certificate }) => [
        domain,
        dns.state,
        certificate?.state ?? null,
      ]);
    const untilSeen = (prefix: string, wanted: [string, string, string][]): Promise<unknown> =>
      waitFor(
        `${prefix} has ${JSON.stringify(wanted)}`,
        async () => JSON.stringify(await seen(prefix)) === JSON.stringify(wanted),
        LONG,
      );
    const problems = await world.metric('berth_certificate_problems');
    expect((await world.get(www, { secure: false })).status).toBe(404);
    // The second one leads to another machine, which the authority asks in vain.
    await world.pointTo(late, '127.0.0.2');
    await setDomains('two', [www, late]);
    await setDomains('three', [other]);
    await untilSeen('two', [
      [www, 'ok', 'ok'],
      [late, 'elsewhere', 'invalid'],
    ]);
    await untilSeen('three', [[other, 'ok', 'ok']]);
    const answer = await world.get(www);
    expect(answer).toMatchObject({
      status: 200,
      body: `project at ${www}`,
      headers: { 'x-project': 'two' },
    });
    expect(answer.certificate?.subjectaltname).toBe(`DNS:${www}`);
    expect((await world.get(other)).headers['x-project']).toBe('three');
    expect((await world.get(hostOf('two'))).headers['x-project']).toBe('two');
    expect(await world.get(www, { path: '/a?b=c', secure: false })).toMatchObject({
      status: 301,
      headers: { location: `https://${www}/a?b=c` },
    });
    const [first, second] = await domainsOf('two');
    expect(first).toMatchObject({
      published: true,
      dns: { addresses: ['127.0.0.1'], expected: ['127.0.0.1'], problem: null },
      certificate: { issuer: answer.certificate?.issuer.CN, problem: null },
    });
    // Berth publishes it all the same: it could be behind a content delivery network.
    expect(second?.published).toBe(true);
    expect((await world.get(late, { secure: false })).status).toBe(301);
    expect(second?.dns.problem).toContain(`${late} leads to 127.0.0.2, not to 127.0.0.1`);
    expect(second?.certificate?.problem).toContain(`the proxy has no certificate for ${late}`);
    await expect(world.get(late)).rejects.toThrow(/certificate|altnames/i);
    // Only its owner can point it here, so the operator hears nothing of it.
    expect(await world.metric('berth_certificate_problems')).toBe(problems);

    // The owner points it here. Traefik tries again with the next change of the configuration, here
    // that of another project.
    await world.pointTo(late, '127.0.0.1');
    await setDomains('three', []);
    await untilSeen('two', [
      [www, 'ok', 'ok'],
      [late, 'ok', 'ok'],
    ]);
    expect((await world.get(late)).headers['x-project']).toBe('two');
    expect((await world.get(other, { secure: false })).status).toBe(404);

    await setDomains('two', []);
    expect(await domainsOf('two')).toEqual([]);
    for (const host of [www, late])
      await waitFor(
        `${host} is gone`,
        async () => (await world.get(host, { secure: false })).status === 404,
        LONG,
      );
    expect((await world.get(www)).status).toBe(404);
    await expect(setDomains('three', [www])).rejects.toMatchObject({ code: 'domain_taken' });
    expect((await world.get(hostOf('two'))).status).toBe(200);
  });

  const serialOf = async (prefix: string): Promise<string | undefined> =>
    (await world.get(hostOf(prefix))).certificate?.serialNumber;

  it('acme.json that others may read: Traefik serves no certificate, and Berth says so', async () => {
    const serial = await serialOf('one');
    await world.stopTraefik();
    await world.chmodStorage(0o644);
    await world.startTraefik('tls-alpn-01');
    await untilState('one', 'invalid');
    expect(world.traefik().tail()).toMatch(/permissions 644 for .*acme\.json are too open/);
    await world.stopTraefik();
    await world.chmodStorage(0o600);
    world.front.become('held');
    await world.startTraefik('tls-alpn-01');
    await untilTrusted('one');
    expect(await serialOf('one')).toBe(serial);
  });

  it('a renewal replaces the certificate while requests run, and none fails', async () => {
    // Certificates of a day are due at once. Traefik began with them at its start, and waits for
    // the authority.
    const before = await serialOf('one');
    const failures: unknown[] = [];
    let sent = 0;
    let stopped = false;
    const load = (async () => {
      for (; !stopped; sent++) {
        const answer = await world.get(hostOf('one')).catch((error: unknown) => error);
        if ((answer as { status?: number }).status !== 200) failures.push(answer);
      }
    })();
    try {
      await waitFor('requests run', () => sent > 10, LONG);
      world.front.become('pass');
      await waitFor(
        'another certificate is served',
        async () => (await serialOf('one')) !== before,
        LONG,
      );
    } finally {
      stopped = true;
      await load;
    }
    expect(failures).toEqual([]);
    await untilState('one', 'ok');
    expect((await world.certificateOf(projects['one'] ?? { id: '' }))?.problem).toBeNull();
  });
});
