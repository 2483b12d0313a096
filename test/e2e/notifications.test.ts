/**
 * Notifications of a real control plane, to a webhook and to an SMTP server: a problem is told
 * once, also if the control plane is killed before it told it, and its end once.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { startHandAgent } from '@berth/testbed/hand-agent';
import { type Platform, startPlatform } from '@berth/testbed/platform';
import { waitFor } from '@berth/testbed/wait';
import { simpleParser } from 'mailparser';
import { SMTPServer } from 'smtp-server';
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startEcho } from './echo.ts';

type Post = { path: string; headers: Record<string, string>; body: string };
type Content = {
  type: string;
  data: {
    title: string;
    problems: { kind: string; state: string; url: string; project_ids: string[] }[];
  };
};

const stops: (() => Promise<unknown>)[] = [];
const ports: Record<string, number> = {};
const posts: Post[] = [];
const mails: { to: string[]; subject: string; body: string }[] = [];
let berth: Platform;
let webhook: string;
/** A port of this machine that no target names. */
let inside: string;

async function startWebhook(): Promise<string> {
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const path = request.url ?? '';
      posts.push({ path, headers: request.headers as Record<string, string>, body });
      if (path === '/moved') response.setHeader('location', `${inside}/secrets`);
      response.writeHead(path === '/moved' ? 307 : 204).end();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(async () => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function startSmtp(): Promise<string> {
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onRcptTo: ({ address }, _, done) =>
      done(
        address.startsWith('gone@')
          ? Object.assign(new Error('no such user'), { responseCode: 550 })
          : null,
      ),
    onData(stream, session, done) {
      simpleParser(stream, (error, { subject = '', text: body = '' }) => {
        mails.push({ to: session.envelope.rcptTo.map(({ address }) => address), subject, body });
        done(error);
      });
    },
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  stops.push(() => new Promise<void>((resolve) => server.close(resolve)));
  return `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`;
}

beforeAll(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'berth-notifications-'));
  stops.push(() => rm(dir, { recursive: true, force: true }));
  [webhook, inside] = [await startWebhook(), await startWebhook()];
  berth = await startPlatform({
    dir,
    registry: { address: '127.0.0.1:5000', user: '', password: '' },
    proxy: 'built-in',
    agents: [],
    env: {
      ALLOWED_NOTIFY_HOSTS: '127.0.0.1',
      SMTP_URL: await startSmtp(),
      SMTP_FROM: 'Berth <berth@example.com>',
    },
  });
  stops.push(() => berth.stop());
  const agent = await startHandAgent({
    url: berth.url,
    secret: berth.agentSecret,
    registerMs: 1_000,
    ports,
  });
  stops.push(() => agent.stop());
});
afterAll(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
});

const create = (name: string, kind: 'webhook' | 'email', target: string) =>
  berth.api.call('createNotification', {
    body: { name, kind, target, on: ['failed', 'recovered'] },
  });
const deliveries = async (id: string) =>
  (await berth.api.call('listNotificationDeliveries', { params: { id }, query: {} })).items;

test('a failed deployment is told once to each target, signed, and so is its end', async () => {
  const { secret } = await create('hook', 'webhook', `${webhook}/hook`);
  await create('mail', 'email', 'ann@example.com, gone@example.com, bob@example.com');
  const shop = await berth.createProject({
    name: 'shop',
    git_url: 'https://git.example.com/shop.git',
    domain_prefix: 'shop',
  });
  const failed = await berth.settled(await berth.deploy(shop));
  expect(failed.status).toBe('failed');
  // Changes of 2 seconds are collected first, so nothing was sent yet.
  await berth.controlPlane.crash();
  expect([posts, mails]).toEqual([[], []]);
  await berth.controlPlane.start();
  const told = (number: number) => () =>
    Promise.resolve(posts.length >= number && mails.length >= number);
  await waitFor('both targets heard of the problem', told(1), { deadlineMs: 60_000 });
  // The same problem again.
  expect((await berth.settled(await berth.deploy(shop))).status).toBe('failed');

  const app = await startEcho('shop');
  stops.push(() => app.stop());
  ports['shop'] = app.port;
  expect((await berth.settled(await berth.deploy(shop))).status).toBe('running');
  await waitFor('both targets heard of its end', told(2), { deadlineMs: 60_000 });

  // Throws if the signature is wrong or old.
  const contents = posts.map(
    ({ body, headers }) => new Webhook(secret ?? '').verify(body, headers) as Content,
  );
  const problem = { kind: 'failed', project_ids: [shop.id] };
  expect(contents).toMatchObject([
    {
      type: 'problem',
      data: {
        title: expect.stringContaining('shop failed'),
        problems: [
          { ...problem, state: 'open', url: `${berth.publicUrl}/deployments/${failed.id}` },
        ],
      },
    },
    { type: 'recovered', data: { problems: [{ ...problem, state: 'over' }] } },
  ]);
  const { body = '', headers = {} } = posts[0] ?? {};
  expect(() => new Webhook(secret ?? '').verify(body.replace('shop', 'blog'), headers)).toThrow(
    'No matching signature found',
  );
  const to = ['ann@example.com', 'bob@example.com'];
  expect(mails).toMatchObject([
    { to, subject: expect.stringContaining('shop failed') },
    { to, subject: expect.stringContaining('Over: ') },
  ]);
  const ended = async (id: string): Promise<unknown> =>
    (await deliveries(id)).map(({ type, status, error }) => [type, status, error]);
  await waitFor('the mails are sent', async () =>
    (await deliveries('mail')).every(({ status }) => status === 'sent'),
  );
  expect(await ended('hook')).toEqual([
    ['recovered', 'sent', null],
    ['problem', 'sent', null],
  ]);
  expect(await ended('mail')).toEqual([
    ['recovered', 'sent', expect.stringContaining('gone@example.com')],
    ['problem', 'sent', expect.stringContaining('gone@example.com')],
  ]);
});

test('a redirect to another port of the machine is not followed', async () => {
  await create('moved', 'webhook', `${webhook}/moved`);
  const tested = await berth.api.call('testNotification', { params: { id: 'moved' } });
  expect(tested).toMatchObject({
    status: 'failed',
    error: expect.stringContaining('follows no redirects'),
  });
  expect(posts.at(-1)?.path).toBe('/moved');
});
