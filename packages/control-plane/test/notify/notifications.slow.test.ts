/** Notifications from the API to real receivers: an HTTP server and an SMTP server of this test. */
import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { createLogger } from '@berth/kit/log';
import { simpleParser } from 'mailparser';
import { SMTPServer } from 'smtp-server';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, test, vi } from 'vitest';
import type { HostCertificate } from '../../src/domain/routes/configuration.ts';
import { createFailoverWatch } from '../../src/domain/nodes/failover-watch.ts';
import { noticePause } from '../../src/domain/notifications/notifications.ts';
import { emptyPlan } from '../../src/domain/deployments/plan.ts';
import type { VolumeCopy } from '../../src/domain/data/volume-copy.ts';
import { type Deps as NotificationDeps, notifications } from '../../src/loops/notifications.ts';
import { type Deps as ProblemDeps, problems } from '../../src/loops/problems.ts';
import { createSendMail } from '../../src/notify/mail.ts';
import { createWorld, type World } from '../api/deployed.ts';
import { type Api, createApi, createProject, deploy, register, tick } from '../api/harness.ts';

const MINUTE = 60_000;
const DAY = 24 * 60 * MINUTE;
const SECRET_PATH = '/services/T000/B000/very-secret-path';

type Received = { path: string; headers: IncomingHttpHeaders; body: string };
let http: Server;
let url: string;
let received: Received[];
/** Returns the status; null: no answer. */
let answer: (request: Received) => number | null | Promise<number | null>;

beforeEach(async () => {
  received = [];
  answer = () => 204;
  http = createServer((request, reply) => {
    let body = '';
    request.on('data', (part) => (body += String(part)));
    request.on('end', () => {
      const one = { path: request.url ?? '', headers: request.headers, body };
      received.push(one);
      void Promise.resolve(answer(one)).then((status) => {
        if (status === null) return;
        if (status >= 300 && status < 400) reply.setHeader('location', `${url}/redirected`);
        reply.statusCode = status;
        reply.end(status >= 400 ? `no service at ${one.path}` : undefined);
      });
    });
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
});
afterEach(() => {
  http.closeAllConnections();
  http.close();
});

type Mail = { to: string[]; subject: string; text: string; messageId: string };
async function smtp(
  judge: (recipient: string) => Error | null = () => null,
): Promise<{ url: string; mails: Mail[]; server: SMTPServer }> {
  const mails: Mail[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onRcptTo: ({ address }, _, done) => done(judge(address)),
    onData(stream, session, done) {
      simpleParser(stream, (error, { subject = '', text = '', messageId = '' }) => {
        mails.push({
          to: session.envelope.rcptTo.map(({ address }) => address),
          subject,
          text,
          messageId,
        });
        done(error);
      });
    },
  });
  server.on('error', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => server.close());
  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    server,
  };
}
const refusal = (code: number, text: string): Error =>
  Object.assign(new Error(text), { responseCode: code });

let api: Api;
let world: World;
let project: string;
let passed: number;
let warnings: Record<string, unknown>[];
async function begin(
  env: Record<string, string> = {},
  more: { databaseUrl?: string } = {},
): Promise<void> {
  [passed, warnings] = [0, []];
  api = await createApi({ env: { ALLOWED_NOTIFY_HOSTS: '127.0.0.1', ...env }, ...more });
  const mine = api;
  onTestFinished(() => mine.close());
  world = await createWorld(api);
  project = await createProject(api);
}
const now = (): number => Date.now() + passed;
function pass(ms: number): void {
  passed += ms;
  api.pass(ms);
}

const ALL = ['failed', 'recovered', 'unhealthy', 'node_offline', 'disk', 'dataset', 'certificate'];
const create = (over: Record<string, unknown> = {}, as: 'admin' | 'developer' = 'admin') =>
  api.call('createNotification', {
    body: { name: 'team', kind: 'webhook', target: `${url}${SECRET_PATH}`, on: ALL, ...over },
    as,
  });

/** The loops of a control plane, which have memory. */
function plane(over: Partial<ProblemDeps & NotificationDeps> = {}) {
  const log = createLogger({
    name: 'cp',
    level: 'warn',
    format: 'json',
    destination: {
      write: (line) => void warnings.push(JSON.parse(line) as Record<string, unknown>),
    },
  });
  const failover = createFailoverWatch({ ...api, nodes: api.stores.nodes, now });
  const deps = { ...api.stores, ...api, failover, now, log, ...over };
  const [find, send] = [problems(deps), notifications(deps)];
  const { signal } = new AbortController();
  return {
    find: () => find(signal),
    send: () => send(signal),
    /** Finds problems, waits as long as changes are collected, and sends until nothing is due. */
    async round(): Promise<void> {
      await find(signal);
      pass(3_000);
      for (let i = 0; i < 5; i += 1) {
        await send(signal);
        await idle();
      }
    },
  };
}
/** Waits until no try is under way. */
const idle = (): Promise<void> =>
  vi.waitFor(
    async () => {
      const { items } = await api.stores.notifications.list({ limit: 200, cursor: null }, {});
      for (const { id } of items)
        for (const one of (
          await api.stores.notifications.deliveries(id, { limit: 50, cursor: null })
        ).items)
          expect(one.done_at === null ? one.claimed_until : null).toBeNull();
    },
    { timeout: 20_000, interval: 10 },
  );
async function fail(): Promise<string> {
  const id = await deploy(api, project);
  await tick(api, id);
  await world.work(world.builder, {
    status: 'failed',
    result: { error: { code: 'build_step_failed', message: 'npm test <!channel> failed' } },
  });
  return id;
}
const titles = (): string[] =>
  received.map(({ body }) => (JSON.parse(body) as { data: { title: string } }).data.title);
/** From the store: sessions end while a test passes days. */
async function deliveries(name = 'team') {
  const id = (await api.stores.notifications.idOf(name)) ?? '';
  const { items } = await api.stores.notifications.deliveries(id, { limit: 50, cursor: null });
  return items.map(({ message, done_at, is_sent, tries, error }) => ({
    type: message.type,
    title: message.title,
    status: done_at === null ? 'waiting' : is_sent ? 'sent' : 'failed',
    tries,
    error,
  }));
}
const shown = async (name = 'team') =>
  api.stores.notifications.get((await api.stores.notifications.idOf(name)) ?? '');

describe('a webhook', () => {
  beforeEach(() => begin(), 60_000);

  it('hears of a failed deployment once, and of the next one that is live', async () => {
    const secret = String((await create()).json['secret']);
    const berth = plane();
    await berth.round();
    expect(received).toEqual([]);
    await fail();
    await berth.round();
    expect(titles()).toEqual(['Deployment 1 of shop failed: A step of the Dockerfile failed']);
    const [first] = received;
    const body = first?.body ?? '';
    const headers = first?.headers ?? {};
    const key = Buffer.from(secret.replace('whsec_', ''), 'base64');
    const signed = createHmac('sha256', key).update(
      `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`,
    );
    expect(headers['webhook-signature']).toBe(`v1,${signed.digest('base64')}`);
    expect(JSON.parse(body)).toMatchObject({
      type: 'problem',
      data: {
        problems: [
          {
            kind: 'failed',
            state: 'open',
            detail: 'npm test <!channel> failed',
            project_ids: [project],
          },
        ],
      },
    });

    // The same problem, other deployments; then a restart, and another control plane.
    await fail();
    await berth.round();
    await plane().round();
    expect(titles()).toHaveLength(1);

    await world.live(project);
    await berth.round();
    await plane().round();
    expect(titles().slice(1)).toEqual(['Deployment 3 of shop is live']);
    expect((await deliveries()).map(({ type, status }) => [type, status])).toEqual([
      ['recovered', 'sent'],
      ['problem', 'sent'],
    ]);
  });

  it('gets what happened while no control plane ran, and hears it once from two of them', async () => {
    await create();
    await fail();
    const [one, other] = [plane(), plane()];
    await Promise.all([one.find(), other.find()]);
    pass(3_000);
    await Promise.all([one.send(), other.send()]);
    await idle();
    expect(titles()).toHaveLength(1);
  });

  it('that answers 500 for a day gets the problem and then what happened meanwhile, in order', async () => {
    await create({ on: ['failed', 'recovered'] });
    answer = () => 500;
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    await world.live(project);
    for (let hour = 0; hour < 24; hour += 1) {
      pass(60 * MINUTE);
      await berth.round();
    }
    expect((await deliveries()).map(({ status }) => status)).toEqual(['waiting']);
    expect(await shown()).toMatchObject({
      problem: expect.stringContaining('answered 500') as string,
      last_sent_at: null,
    });
    const tries = received.length;
    expect(tries).toBeGreaterThan(20);
    expect(tries).toBeLessThan(60);
    expect(new Set(received.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    received = [];
    answer = () => 200;
    pass(60 * MINUTE);
    await berth.round();
    expect(titles()).toEqual([
      'Deployment 1 of shop failed: A step of the Dockerfile failed',
      'Deployment 2 of shop is live',
    ]);
    expect(await shown()).toMatchObject({ problem: null, failing_since: null });
  });

  it('that answers nothing for three days is given up, and says why', async () => {
    await create({ on: ['failed', 'recovered'] });
    answer = () => 503;
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    pass(3 * DAY);
    await berth.round();
    expect(await deliveries()).toMatchObject([
      { status: 'failed', error: expect.stringContaining('answered 503') as string },
    ]);
    expect(warnings).toMatchObject([
      { msg: 'sending a notification failed; gave up', name: 'team' },
    ]);
    expect(JSON.stringify([warnings, await deliveries(), await shown()])).not.toContain(
      'very-secret-path',
    );
  });

  it('that does not answer delays no other one', async () => {
    await create({ name: 'hangs', target: `${url}/hangs/for/ever/and/ever` });
    await create({ name: 'works' });
    answer = ({ path }) => (path.startsWith('/hangs') ? null : 204);
    const berth = plane();
    await berth.find();
    await fail();
    await berth.find();
    pass(3_000);
    await berth.send();
    await vi.waitFor(() => expect(received.map(({ path }) => path)).toContain(SECRET_PATH));
    await world.live(project);
    await berth.find();
    pass(3_000);
    await vi.waitFor(async () => {
      await berth.send();
      expect((await deliveries('works')).map(({ status }) => status)).toEqual(['sent', 'sent']);
    });
    expect((await deliveries('hangs')).map(({ status }) => status)).toEqual(['waiting']);
  });

  it('that redirects is not followed', async () => {
    await create();
    answer = () => 302;
    const test = (await api.call('testNotification', { params: { id: 'team' }, as: 'admin' })).json;
    expect(test).toMatchObject({
      status: 'failed',
      type: 'test',
      error: expect.stringContaining('Berth follows no redirects') as string,
    });
    expect(received.map(({ path }) => path)).toEqual([SECRET_PATH]);
  });

  it('gets 10,000 problems at once as a few messages', async () => {
    await create();
    const seen = { title: 'x', detail: null, advice: null, path: null, project_ids: [] };
    const all = Array.from({ length: 10_000 }, (_, i) => ({
      kind: 'dataset' as const,
      subject: `d${i}`,
      at: null,
      isProblem: true,
      seen,
    }));
    await api.stores.problems.observe(all, { now: now(), uptime: now() });
    pass(3_000);
    const berth = plane();
    for (let i = 0; i < 20; i += 1) {
      await berth.send();
      await idle();
    }
    expect(titles()).toEqual(['5000 problems began or ended', '5000 problems began or ended']);
    expect((received[0]?.body ?? '').length).toBeLessThan(10_000);
  }, 60_000);

  it('gets at most 10 messages in 10 minutes, then a digest', async () => {
    await create();
    const berth = plane();
    const seen = (i: number) => ({
      title: `problem ${i}`,
      detail: null,
      advice: null,
      path: null,
      project_ids: [],
    });
    for (let i = 0; i < 30; i += 1) {
      await api.stores.problems.observe(
        [{ kind: 'dataset', subject: `d${i}`, at: null, isProblem: true, seen: seen(i) }],
        {
          now: now(),
          uptime: now(),
        },
      );
      pass(3_000);
      await berth.send();
      await idle();
    }
    expect(titles()).toEqual(Array.from({ length: 10 }, (_, i) => `problem ${i}`));
    pass(10 * MINUTE);
    await berth.send();
    await idle();
    expect(titles().slice(10)).toEqual(['20 problems began or ended']);
  });
});

describe('a notification that somebody changes during a try', () => {
  beforeEach(() => begin(), 60_000);
  const change = async (body: Record<string, unknown>): Promise<void> => {
    const changed = await api.call('patchNotification', {
      params: { id: 'team' },
      body,
      as: 'admin',
    });
    expect(changed.status, changed.text).toBe(200);
  };

  /** A delivery whose first three tries got 404. */
  async function afterThreeFailures(): Promise<ReturnType<typeof plane>> {
    await create({ on: ['failed'] });
    answer = () => 404;
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    for (let again = 0; again < 2; again += 1) {
      pass(10 * MINUTE);
      await berth.send();
      await idle();
    }
    return berth;
  }

  it('gives nothing up because of failures at the earlier target', async () => {
    const berth = await afterThreeFailures();
    expect(received).toHaveLength(3);
    // The fourth 404 ends a delivery.
    answer = async ({ path }) => {
      if (path === '/other') return 204;
      await change({ target: `${url}/other` });
      return 404;
    };
    pass(10 * MINUTE);
    await berth.send();
    await idle();
    expect(await shown()).toMatchObject({ failing_since: null, problem: null });
    expect(await deliveries()).toMatchObject([{ status: 'waiting', tries: 0, error: null }]);
    await berth.send();
    await idle();
    expect(received.at(-1)?.path).toBe('/other');
    expect(await deliveries()).toMatchObject([{ status: 'sent' }]);
  });

  it('counts no failure of the earlier target at the new one', async () => {
    const berth = await afterThreeFailures();
    await change({ target: `${url}/other` });
    expect(await shown()).toMatchObject({ failing_since: null, problem: null });
    await berth.send();
    await idle();
    expect(received.at(-1)?.path).toBe('/other');
    expect(await deliveries()).toMatchObject([{ status: 'waiting', tries: 1 }]);
  });

  it('does not show a success of the earlier target as one of the new target', async () => {
    await create({ on: ['failed'] });
    answer = async () => {
      await change({ target: `${url}/other` });
      return 204;
    };
    const test = (await api.call('testNotification', { params: { id: 'team' }, as: 'admin' })).json;
    expect(test).toMatchObject({ status: 'sent' });
    expect(await shown()).toMatchObject({ last_sent_at: null });
  });

  it('sends nothing about the earlier projects to the new target', async () => {
    const blog = await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    await create({ on: ['failed'] });
    const { notifications: real } = api.stores;
    const claim: typeof real.claim = async (...at) => {
      const claimed = await real.claim(...at);
      if (claimed.length > 0) await change({ projects: ['blog'], target: `${url}/other` });
      return claimed;
    };
    const berth = plane({ notifications: { ...real, claim } });
    await berth.find();
    await fail();
    await berth.find();
    pass(3_000);
    await berth.send();
    const seen = {
      title: 'blog is bad',
      detail: null,
      advice: null,
      path: null,
      project_ids: [blog],
    };
    await api.stores.problems.observe(
      [{ kind: 'failed', subject: blog, at: null, isProblem: true, seen }],
      { now: now(), uptime: now() },
    );
    pass(3_000);
    await berth.send();
    await vi.waitFor(() =>
      expect(
        received.filter(({ path, body }) => path === '/other' && body.includes('blog')),
      ).toHaveLength(1),
    );
    expect(received.filter(({ path, body }) => path === '/other' && body.includes('shop'))).toEqual(
      [],
    );
  });
});

describe('what is reported', () => {
  beforeEach(() => begin(), 60_000);

  it('is a node that went offline, with its projects, and its return after a minute', async () => {
    await world.live(project);
    await create();
    const berth = plane();
    await berth.find();
    pass(3 * MINUTE);
    await register(api);
    await berth.round();
    expect(titles()).toEqual(['Node node-1 is offline']);
    expect(received[0]?.body).toContain('Projects that run there: shop.');
    await register(api, { hostname: 'node-1', role: 'deploy' });
    await berth.round();
    expect(titles()).toHaveLength(1);
    pass(61_000);
    await register(api, { hostname: 'node-1', role: 'deploy' });
    await register(api);
    await berth.round();
    expect(titles().slice(1)).toEqual(['Node node-1 is online']);
  });

  it('is a full disk of a node, and nothing between the two limits', async () => {
    await create();
    const berth = plane();
    const disk = (free: number) => ({
      datasets: 0,
      images: 0,
      build_cache: 0,
      other: 0,
      free,
      total: 100e9,
    });
    const report = async (free: number): Promise<void> => {
      await register(api, { hostname: 'node-1', role: 'deploy', disk: disk(free) });
      await berth.round();
    };
    await report(9e9);
    expect(titles()).toEqual(['The disk of node node-1 is nearly full']);
    await report(11e9);
    pass(90_000);
    await report(11e9);
    await report(50e9);
    for (let i = 0; i < 4; i += 1) {
      pass(80_000);
      await register(api);
      await report(50e9);
    }
    expect(titles()).toEqual([
      'The disk of node node-1 is nearly full',
      'The disk of node node-1 has free space again',
    ]);
  });

  it('is a node that reports without volumes that it had, until it has them again', async () => {
    await create();
    await create({
      name: 'other',
      target: `${url}/other`,
      projects: [await createProject(api, { name: 'other', domain_prefix: 'other' })],
    });
    const berth = plane();
    const id = await register(api, { hostname: 'node-1', role: 'deploy' });
    const copy = {
      copy: 'c1',
      project_id: project,
      in_place: true,
      folders: [{ name: 'data', bytes: 7 }],
    };
    const volumes: VolumeCopy[] = [
      {
        ...{
          id: 'c1',
          project_id: project,
          project: 'shop',
          node_id: id,
          hostname: 'node-1',
          state: 'current',
          names: ['data'],
        },
        ...{
          bytes: null,
          sizes: {},
          seen: null,
          source: null,
          digest: null,
          created_at: now(),
          changed_at: now(),
        },
      },
    ];
    const plan = { ...emptyPlan(await api.stores.projects.get(project), now(), now()), volumes };
    expect(await api.stores.flow.commit(plan)).toBe('committed');
    await api.stores.volumes.report({ id, hostname: 'node-1' }, [copy], now());
    await berth.round();
    expect(titles()).toEqual([]);
    await api.stores.volumes.report({ id, hostname: 'node-1' }, [], now());
    await berth.round();
    const disk = await api.call('nodeDisk', { params: { id } });
    expect(disk.json['volumes']).toMatchObject([
      { project: 'shop', name: 'data', missing_since: expect.any(String) },
    ]);
    expect(titles()).toEqual(['Node node-1 reports without volumes that it had']);
    expect(received[0]?.body).toContain('shop');
    await api.stores.volumes.report({ id, hostname: 'node-1' }, [copy], now());
    for (let i = 0; i < 5; i += 1) {
      pass(80_000);
      await register(api);
      await register(api, { hostname: 'node-1', role: 'deploy' });
      await berth.round();
    }
    expect(titles()).toEqual([
      'Node node-1 reports without volumes that it had',
      'Node node-1 has its volumes again',
    ]);
    expect(received.filter(({ path }) => path === '/other')).toEqual([]);
  });

  it('is a certificate, and a control plane that looked earlier does not undo what another one found', async () => {
    await create();
    const cert = (problem: string | null, checked_at: number): HostCertificate => ({
      state: problem === null ? 'ok' : 'invalid',
      issuer: null,
      not_after: null,
      problem,
      checked_at,
    });
    const watching = (last: () => HostCertificate) =>
      plane({
        certificates: {
          watched: () => [{ host: 'shop.example.com', project_id: project, last: last() }],
        },
      });
    const start = now();
    let [mine, others] = [cert('expired', start), cert('expired', start)];
    const [one, other] = [watching(() => mine), watching(() => others)];
    await one.round();
    await other.round();
    expect(titles()).toEqual(['shop.example.com has no valid certificate']);
    mine = cert(null, start + MINUTE);
    await one.round();
    others = cert('expired', start + 1);
    await other.round();
    expect(titles().slice(1)).toEqual(['The certificate of shop.example.com is in order']);
  });

  it('is a problem that flaps: fewer and fewer messages', async () => {
    await create();
    const seen = { title: 'x', detail: null, advice: null, path: null, project_ids: [] };
    const berth = plane();
    const observe = (isProblem: boolean) =>
      api.stores.problems.observe(
        [{ kind: 'unhealthy', subject: 'p', at: null, isProblem, seen }],
        { now: now(), uptime: now() },
      );
    for (let i = 0; i < 120; i += 1) {
      await observe(true);
      pass(MINUTE);
      await observe(false);
      pass(150_000);
      await observe(false);
      pass(3_000);
      await berth.send();
      await idle();
      await berth.send();
      await idle();
    }
    expect(received.length).toBeLessThan(12);
    expect(received.length).toBeGreaterThan(4);
  }, 60_000);

  it('names no other project to a notification about one', async () => {
    await world.live(project);
    const seen = {
      title: 'Node n is offline',
      detail: null,
      advice: null,
      path: null,
      project_ids: [project, 'hidden-id'],
      runs: [
        { id: project, name: 'shop' },
        { id: 'hidden-id', name: 'hidden-name' },
      ],
    };
    await create({ projects: ['shop'] }, 'developer');
    await create({ name: 'all' });
    await api.stores.problems.observe(
      [{ kind: 'node_offline', subject: 'n', at: null, isProblem: true, seen }],
      {
        now: now(),
        uptime: now(),
      },
    );
    pass(3_000);
    await plane().send();
    await idle();
    const [one = '', all = ''] = received
      .map(({ body }) => body)
      .toSorted((a, b) => a.length - b.length);
    const namesIn = (body: string): boolean[] =>
      ['Projects that run there: shop', 'hidden-id', 'hidden-name'].map((text) =>
        body.includes(text),
      );
    expect([namesIn(one), namesIn(all)]).toEqual([
      [true, false, false],
      [true, true, true],
    ]);
  });

  it('is only what a notification asks for', async () => {
    const other = await createProject(api, { name: 'other', domain_prefix: 'other' });
    await create({ name: 'other-project', projects: ['other'] }, 'developer');
    await create({ name: 'health', on: ['unhealthy', 'recovered'] });
    await create({ name: 'ends', on: ['recovered'] });
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    await world.live(project);
    await berth.round();
    expect(await deliveries('other-project')).toEqual([]);
    expect(await deliveries('health')).toEqual([]);
    expect((await deliveries('ends')).map(({ title }) => title)).toEqual([
      'Deployment 2 of shop is live',
    ]);
    expect(other).not.toBe(project);
  });
});

test('a project that somebody stops is not unhealthy any more', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-notify-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  await begin({}, { databaseUrl: `sqlite:${join(folder, 'berth.db')}` });
  const database = new DatabaseSync(join(folder, 'berth.db'));
  onTestFinished(() => database.close());
  await create();
  await world.live(project);
  database.exec("update deployments set health_status = 'unhealthy', health_since = 0");
  await plane().round();
  // As a stop leaves it.
  database.exec(
    "update deployments set health_status = null, health_since = null, stopped_first = 'stopped'",
  );
  await plane().round();
  pass(3 * MINUTE);
  await plane().round();
  const titles = received.map(
    ({ body }) => (JSON.parse(body) as { data: { title: string } }).data.title,
  );
  expect(titles.filter((title) => title.includes('shop'))).toEqual([
    'shop is unhealthy',
    'The unhealthy version of shop does not run any more',
  ]);
});

test('a worker in a restart loop is told once, while the project answers', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'berth-notify-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  await begin({}, { databaseUrl: `sqlite:${join(folder, 'berth.db')}` });
  const database = new DatabaseSync(join(folder, 'berth.db'));
  onTestFinished(() => database.close());
  await create();
  await world.live(project);
  database.exec(
    `insert into instances (id, project_id, deployment_id, process, number, state, labelled, detail,
       losses, since, created_at)
     select 'w1', project_id, id, 'worker', 1, 'unhealthy', 1,
       'it restarted 5 times in the last ten minutes', '[]', 0, 0 from deployments`,
  );
  database.exec("update deployments set health_status = 'degraded', health_since = 0");
  await plane().round();
  await plane().round();
  database.exec("update instances set state = 'serving', detail = null");
  database.exec("update deployments set health_status = 'healthy', health_since = 0");
  await plane().round();
  pass(3 * MINUTE);
  await plane().round();
  const titles = received.map(
    ({ body }) => (JSON.parse(body) as { data: { title: string } }).data.title,
  );
  expect(titles.filter((title) => title.includes('shop'))).toEqual([
    'worker 1 of shop is unhealthy',
    'shop is healthy',
  ]);
});

// The columns of PostgreSQL take no fraction.
test.each([0, 0.123456, 0.999])('a pause is a whole number of milliseconds', (random) => {
  for (let tries = 0; tries < 12; tries += 1)
    expect(Number.isInteger(noticePause(tries, 1_500.5, random))).toBe(true);
});

describe('Slack and Discord', () => {
  beforeEach(() => begin(), 60_000);

  it('get text that mentions nobody', async () => {
    await create({ name: 'slack', kind: 'slack' });
    await create({ name: 'discord', kind: 'discord' });
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    const bodies = received.map(
      ({ body }) =>
        JSON.parse(body) as { text?: string; content?: string; allowed_mentions?: unknown },
    );
    expect(bodies.find(({ text }) => text !== undefined)?.text).toContain(
      'npm test &lt;!channel&gt; failed',
    );
    const discord = bodies.find(({ content }) => content !== undefined);
    expect(discord?.content).toContain(String.raw`\<!channel\>`);
    expect(discord?.allowed_mentions).toEqual({ parse: [] });
  });
});

describe('e-mail', () => {
  const email = {
    kind: 'email',
    on: ['failed', 'recovered'],
    target: 'a@example.com, b@example.com, c@example.com',
  };
  const withSmtp = (server: string) =>
    begin({ SMTP_URL: server, SMTP_FROM: 'Berth <berth@example.com>' });

  it('reaches two of three recipients if the server refuses one, and says which one', async () => {
    const { url: server, mails } = await smtp((to) =>
      to.startsWith('b@') ? refusal(550, 'no such user') : null,
    );
    await withSmtp(server);
    await create(email);
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    pass(DAY);
    await berth.round();
    expect(mails).toMatchObject([
      {
        to: ['a@example.com', 'c@example.com'],
        subject: expect.stringContaining('[Berth] Deployment 1') as string,
      },
    ]);
    expect(await deliveries()).toMatchObject([
      { status: 'sent', error: expect.stringContaining('b@example.com') as string },
    ]);
  });

  it('goes again only to the recipient that the server did not take yet', async () => {
    let isGrey = true;
    const { url: server, mails } = await smtp((to) =>
      to.startsWith('b@') && isGrey ? refusal(451, 'try later') : null,
    );
    await withSmtp(server);
    await create(email);
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    expect(await deliveries()).toMatchObject([{ status: 'waiting', tries: 1 }]);
    isGrey = false;
    pass(MINUTE);
    await berth.round();
    expect(mails.map(({ to }) => to)).toEqual([
      ['a@example.com', 'c@example.com'],
      ['b@example.com'],
    ]);
    expect(new Set(mails.map(({ messageId }) => messageId)).size).toBe(1);
    expect(await deliveries()).toMatchObject([{ status: 'sent', error: null }]);
  });

  it('waits while the server is down', async () => {
    const { url: server, server: down } = await smtp();
    await withSmtp(server);
    await new Promise<void>((resolve) => down.close(resolve));
    await create(email);
    const test = (await api.call('testNotification', { params: { id: 'team' }, as: 'admin' })).json;
    expect(test).toMatchObject({
      status: 'failed',
      error: expect.stringMatching(/ECONN(REFUSED|RESET)/) as string,
    });
    const berth = plane();
    await berth.find();
    await fail();
    await berth.round();
    expect((await deliveries())[0]).toMatchObject({ status: 'waiting', tries: 1 });
  });

  it('to a server that is slow ends after a time limit', async () => {
    const silent = (await import('node:net')).createServer(() => undefined);
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void silent.close());
    const { port } = silent.address() as AddressInfo;
    const send = createSendMail({
      url: `smtp://127.0.0.1:${port}`,
      from: 'berth@example.com',
      totalMs: 300,
    });
    const mail = { id: 'x', subject: 's', text: 't', to: ['a@example.com'] };
    expect(await send(mail, mail.to, new AbortController().signal)).toMatchObject({
      error: { why: expect.stringContaining('0.3 s') as string },
    });
  });
});

describe('the API', () => {
  beforeEach(() => begin(), 60_000);

  it('shows the secret once and never the target', async () => {
    const made = await create();
    const read = async () =>
      (await api.call('getNotification', { params: { id: 'team' }, as: 'admin' })).json;
    expect(made.status).toBe(201);
    expect(made.json['secret']).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(made.json['target']).toBe(`${url}/…path`);
    expect(
      JSON.stringify([await read(), (await api.call('listNotifications', { as: 'admin' })).json]),
    ).not.toMatch(/whsec_|very-secret/);
    expect(
      (await api.call('listNotificationDeliveries', { params: { id: 'team' }, as: 'admin' })).json[
        'items'
      ],
    ).toEqual([]);
    const [row] = (await api.stores.notifications.list({ limit: 1, cursor: null }, {})).items;
    expect(JSON.stringify(row)).not.toMatch(/whsec_|very-secret/);
  });

  it('keeps developers to projects, and hides the others from them', async () => {
    expect((await create({}, 'developer')).status).toBe(403);
    await create();
    expect(
      (await create({ name: 'mine', projects: ['shop'] }, 'developer')).json['projects'],
    ).toEqual([project]);
    const list = await api.call('listNotifications', { as: 'developer' });
    expect((list.json['items'] as { name: string }[]).map(({ name }) => name)).toEqual(['mine']);
    for (const route of [
      'getNotification',
      'deleteNotification',
      'testNotification',
      'listNotificationDeliveries',
    ] as const)
      expect((await api.call(route, { params: { id: 'team' }, as: 'developer' })).status).toBe(404);
    expect(
      (
        await api.call('patchNotification', {
          params: { id: 'mine' },
          body: { projects: [] },
          as: 'developer',
        })
      ).status,
    ).toBe(403);
  });

  it('shows people only notifications whose projects they all see, and lets only developers of all of them change it', async () => {
    const user = await api.stores.users.findByEmail('developer@example.com');
    const other = await api.stores.users.findByEmail('viewer@example.com');
    const setMember = async (role: string | null) => {
      const members = [
        role === null ? { user_id: other?.id, role: 'viewer' } : { user_id: user?.id, role },
      ];
      expect(
        (await api.call('patchProject', { as: 'admin', params: { id: 'shop' }, body: { members } }))
          .status,
      ).toBe(200);
    };
    await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    await create({ name: 'both', projects: ['shop', 'blog'] }, 'developer');
    await create({ name: 'blog-only', projects: ['blog'] }, 'developer');
    const named = async () =>
      (
        (await api.call('listNotifications', { as: 'developer', query: { limit: 1 } })).json[
          'items'
        ] as { name: string }[]
      ).map(({ name }) => name);
    const READS = ['getNotification', 'listNotificationDeliveries'] as const;
    const WRITES = ['patchNotification', 'testNotification', 'deleteNotification'] as const;
    const statuses = (
      routes: readonly ((typeof READS)[number] | (typeof WRITES)[number])[],
      id: string,
    ) =>
      Promise.all(
        routes.map(async (route) => {
          const body = route === 'patchNotification' ? { body: { on: ['failed'] } } : {};
          return (await api.call(route, { params: { id }, as: 'developer', ...body })).status;
        }),
      );
    await setMember('viewer');
    expect(await statuses(READS, 'both')).toEqual([200, 200]);
    expect(await statuses(WRITES, 'both')).toEqual([403, 403, 403]);
    expect((await create({ name: 'x', projects: ['shop'] }, 'developer')).status).toBe(403);
    await setMember(null);
    expect([...(await statuses(READS, 'both')), ...(await statuses(WRITES, 'both'))]).toEqual([
      404, 404, 404, 404, 404,
    ]);
    const texts = await Promise.all(
      ['both', 'none'].map(
        async (id) =>
          (await api.call('getNotification', { params: { id }, as: 'developer' })).json['detail'],
      ),
    );
    expect(texts[0]).toBe(texts[1]);
    expect(await named()).toEqual(['blog-only']);
    expect(
      (await create({ name: 'x', projects: ['shop'] }, 'developer')).json['errors'],
    ).toMatchObject([{ field: 'projects[0]', rule: 'exists' }]);
    const moved = await api.call('patchNotification', {
      params: { id: 'blog-only' },
      body: { projects: ['blog', 'shop'] },
      as: 'developer',
    });
    expect(moved.status).toBe(422);
    expect(
      (await api.call('getNotification', { params: { id: 'both' }, as: 'admin' })).status,
    ).toBe(200);
  });

  it('shows a token that is limited to projects only notifications about them, and lets it change none', async () => {
    await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    await create({ name: 'all' });
    await create({ name: 'both', projects: ['shop', 'blog'] });
    await create({ name: 'shop-only', projects: ['shop'] });
    const body = {
      name: 'ci',
      role: 'developer',
      projects: ['shop'],
      expires_at: new Date(now() + DAY).toISOString(),
    };
    const token = String((await api.call('createToken', { as: 'admin', body })).json['token']);
    const limited = { as: null, headers: { authorization: `Bearer ${token}` } };
    const list = (await api.call('listNotifications', limited)).json['items'] as { name: string }[];
    expect(list.map(({ name }) => name)).toEqual(['shop-only']);
    expect(
      (await api.call('getNotification', { ...limited, params: { id: 'shop-only' } })).status,
    ).toBe(200);
    for (const id of ['all', 'both'])
      expect((await api.call('getNotification', { ...limited, params: { id } })).status).toBe(404);
    const patch = { ...limited, params: { id: 'shop-only' }, body: { projects: [] } };
    expect((await api.call('patchNotification', patch)).status).toBe(403);
  });

  it('sends and shows nothing about projects that a change took away', async () => {
    await createProject(api, { name: 'blog', domain_prefix: 'blog' });
    const blog = String(
      (await api.call('getProject', { params: { id: 'blog' }, as: 'admin' })).json['id'],
    );
    await create();
    await create({ name: 'shop-only', projects: ['shop'] });
    answer = () => 500;
    const berth = plane();
    await berth.find();
    const seen = {
      title: 'Node n is offline',
      detail: null,
      advice: null,
      path: null,
      project_ids: [project, blog],
      runs: [
        { id: project, name: 'shop' },
        { id: blog, name: 'blog' },
      ],
    };
    await fail();
    await berth.round();
    await api.stores.problems.observe(
      [{ kind: 'node_offline', subject: 'n', at: null, isProblem: true, seen }],
      {
        now: now(),
        uptime: now(),
      },
    );
    answer = () => 204;
    pass(20 * MINUTE);
    await berth.round();
    answer = () => 500;
    for (const kind of ['failed', 'unhealthy'] as const)
      await api.stores.problems.observe(
        [
          {
            kind,
            subject: 'x',
            at: null,
            isProblem: true,
            seen: { ...seen, runs: [], title: 'shop is bad', project_ids: [project] },
          },
        ],
        { now: now(), uptime: now() },
      );
    for (const subject of ['m', 'l'])
      await api.stores.problems.observe(
        [{ kind: 'node_offline', subject, at: null, isProblem: true, seen }],
        {
          now: now(),
          uptime: now(),
        },
      );
    pass(20 * MINUTE);
    await berth.round();
    received = [];
    for (const id of ['team', 'shop-only'])
      expect(
        (
          await api.call('patchNotification', {
            params: { id },
            body: { projects: ['blog'] },
            as: 'admin',
          })
        ).status,
      ).toBe(200);
    const shown = await Promise.all(
      ['team', 'shop-only'].map((id) =>
        api.call('listNotificationDeliveries', { params: { id }, as: 'developer' }),
      ),
    );
    expect(JSON.stringify(shown.map(({ json }) => json))).not.toContain('shop ');
    answer = () => 204;
    pass(20 * MINUTE);
    await berth.round();
    pass(20 * MINUTE);
    await berth.round();
    expect(received.filter(({ body }) => /\bshop\b/.test(body) || body.includes(project))).toEqual(
      [],
    );
    expect(
      received.filter(({ body }) => body.includes('Projects that run there: blog.')),
    ).not.toEqual([]);
  });

  it.each([
    ['http://example.com/x', 'https'],
    ['https://localhost/x', 'private'],
    ['https://10.1.2.3/x', 'private'],
    ['https://[::1]/x', 'private'],
    ['https://[::ffff:127.0.0.1]/x', 'private'],
    ['https://[::ffff:7f00:1]/x', 'private'],
    ['https://[64:ff9b::7f00:1]/x', 'private'],
    ['https://0x0a000001/x', 'private'],
    ['https://167772161/x', 'private'],
    ['https://012.0.0.1/x', 'private'],
    ['https://10.1/x', 'private'],
    ['https://10.0.0.1./x', 'private'],
    ['https://LOCALHOST./x', 'private'],
    ['https://user:pass@example.com/x', 'userinfo'],
    ['ftp://example.com/x', 'format'],
    ['nothing', 'format'],
  ])('refuses the target %s', async (target, rule) => {
    const refused = await create({ target });
    expect(refused.status).toBe(422);
    expect(refused.json['errors']).toMatchObject([{ field: 'target', rule }]);
  });

  it('refuses a taken name, an unknown project, no kind of problem, and e-mail without a server', async () => {
    await create();
    expect((await create()).json['errors']).toMatchObject([{ field: 'name', rule: 'taken' }]);
    expect((await create({ name: 'b', projects: ['nobody'] })).json['errors']).toMatchObject([
      { field: 'projects[0]', rule: 'exists' },
    ]);
    expect((await create({ name: 'b', on: [] })).status).toBe(422);
    expect(
      (await create({ name: 'b', kind: 'email', target: 'a@example.com' })).json['errors'],
    ).toMatchObject([{ rule: 'smtp' }]);
  });

  it('limits tests of one person and to one recipient, over all notifications', async () => {
    for (let i = 0; i < 12; i += 1)
      await create({ name: `n${i}`, target: i < 6 ? url : `${url}/${i}` });
    const tests = (as: 'admin' | 'developer', name: string) =>
      api.call('testNotification', { params: { id: name }, as });
    for (let i = 0; i < 10; i += 1) expect((await tests('admin', `n${i}`)).status).toBe(200);
    const refused = await tests('admin', 'n10');
    expect([
      refused.status,
      refused.json['code'],
      Number(refused.headers['retry-after']) > 0,
    ]).toEqual([429, 'too_many_attempts', true]);
    pass(MINUTE + 1_000);
    expect((await tests('admin', 'n10')).status).toBe(200);
  });

  it('limits tests, and changes a target', async () => {
    await create();
    for (let i = 0; i < 6; i += 1)
      expect(
        (await api.call('testNotification', { params: { id: 'team' }, as: 'admin' })).json[
          'status'
        ],
      ).toBe('sent');
    expect(
      (await api.call('testNotification', { params: { id: 'team' }, as: 'admin' })).status,
    ).toBe(429);
    const changed = await api.call('patchNotification', {
      params: { id: 'team' },
      body: { target: `${url}/other`, name: 'ops' },
      as: 'admin',
    });
    expect(changed.json).toMatchObject({ name: 'ops', target: `${url}/…` });
    pass(MINUTE);
    await api.call('testNotification', { params: { id: 'ops' }, as: 'admin' });
    expect(received.at(-1)?.path).toBe('/other');
    expect(
      (await api.call('deleteNotification', { params: { id: 'ops' }, as: 'admin' })).status,
    ).toBe(204);
    expect((await api.call('getNotification', { params: { id: 'ops' }, as: 'admin' })).status).toBe(
      404,
    );
  });
});
