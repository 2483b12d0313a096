/** The log of a deployment as pages and as a stream, on real connections. */
import { get, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, createApi, rulesOf, withBuild } from './harness.ts';

let api: Api;
let base = '';
let build: Awaited<ReturnType<typeof withBuild>>;
let token = '';
beforeAll(async () => {
  api = await createApi();
  base = await api.listen();
  build = await withBuild(api);
  token = (await api.call('agentStart', { params: { id: build.task } })).json[
    'lease_token'
  ] as string;
  await say('one', 'two', 'three');
});
afterAll(() => api.close());

const say = (...texts: string[]) =>
  api.call('agentLogs', {
    params: { id: build.task },
    body: { lines: texts.map((text) => ({ stream: 'stdout', text })) },
    headers: { 'x-lease-token': token },
  });

type Event = { id?: string; event: string; data: { text?: string; seq?: number; status?: string } };
type Stream = {
  events: Event[];
  comments: string[];
  response: IncomingMessage;
  ended: Promise<void>;
  close(): void;
};

function open(id: string, headers: Record<string, string> = {}, query = ''): Promise<Stream> {
  return new Promise((resolve, reject) => {
    const request = get(
      `${base}/api/deployments/${id}/logs${query}`,
      {
        agent: false,
        headers: {
          accept: 'text/event-stream',
          authorization: `Bearer ${api.token('viewer')}`,
          ...headers,
        },
      },
      (response) => {
        const events: Event[] = [];
        const comments: string[] = [];
        let rest = '';
        response.setEncoding('utf8').on('data', (chunk: string) => {
          const blocks = (rest + chunk).split('\n\n');
          rest = blocks.pop() ?? '';
          for (const block of blocks) {
            if (block.startsWith(':')) comments.push(block);
            else events.push(eventOf(block));
          }
        });
        const ended = new Promise<void>((done) => response.on('close', done));
        response.on('error', () => undefined);
        resolve({ events, comments, response, ended, close: () => request.destroy() });
      },
    );
    request.on('error', reject);
  });
}

function eventOf(block: string): Event {
  const fields = Object.fromEntries(
    block.split('\n').map((l) => [l.slice(0, l.indexOf(':')), l.slice(l.indexOf(':') + 2)]),
  );
  return {
    ...(fields['id'] === undefined ? {} : { id: fields['id'] }),
    event: fields['event'] ?? '',
    data: JSON.parse(fields['data'] ?? 'null') as Event['data'],
  };
}
const textsOf = (s: Stream): unknown[] =>
  s.events.filter((e) => e.event === 'line').map((e) => e.data.text);

describe('pages', () => {
  const page = (query: Record<string, number | string>) =>
    api.call('deploymentLogs', { params: { id: build.deployment }, query });
  test('continue where the last page ended', async () => {
    const first = await page({ limit: 2 });
    expect((first.json['lines'] as { text: string }[]).map((l) => l.text)).toEqual(['one', 'two']);
    const second = await page({ after: first.json['next'] as number });
    expect((second.json['lines'] as { text: string }[]).map((l) => l.text)).toEqual(['three']);
    const third = await page({ after: second.json['next'] as number });
    expect(third.json).toEqual({ lines: [], next: second.json['next'] });
  });
  test.each([
    [{ after: -1 }, 'after:minimum'],
    [{ after: 'x' }, 'after:type'],
    [{ after: 1.5 }, 'after:type'],
    [{ limit: 5001 }, 'limit:maximum'],
  ] as const)('%j is 422', async (query, rule) => {
    expect(rulesOf(await page(query as Record<string, number | string>))).toEqual([rule]);
  });
  test('of an unknown deployment get 404', async () => {
    expect((await api.call('deploymentLogs', { params: { id: 'nobody' } })).status).toBe(404);
    expect(
      (
        await api.call('deploymentLogs', {
          params: { id: 'nobody' },
          headers: { accept: 'text/event-stream' },
        })
      ).status,
    ).toBe(404);
    expect(
      (
        await api.call('deploymentLogs', {
          params: { id: build.deployment },
          as: null,
          headers: { accept: 'text/event-stream' },
        })
      ).status,
    ).toBe(401);
  });
});

describe('the stream', () => {
  test('begins with the state and the existing lines, then sends new ones', async () => {
    const s = await open(build.deployment);
    expect(s.response.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
    });
    await expect.poll(() => textsOf(s)).toEqual(['one', 'two', 'three']);
    expect(s.events[0]).toMatchObject({ event: 'state', data: { status: 'building' } });
    expect(s.events[1]).toMatchObject({ event: 'line', id: '1', data: { seq: 1 } });
    await say('four\nfive');
    await expect
      .poll(() => textsOf(s), { interval: 10 })
      .toEqual(['one', 'two', 'three', 'four\nfive']);
    expect((await api.call('metrics')).text).toContain('berth_http_requests_held{kind="logs"} 1');
    s.close();
    await expect
      .poll(async () => (await api.call('metrics')).text)
      .toContain('berth_http_requests_held{kind="logs"} 0');
  });
  test('continues after Last-Event-ID or `after`; an invalid value is ignored', async () => {
    const resumed = await open(build.deployment, { 'last-event-id': '2' });
    await expect.poll(() => textsOf(resumed)).toEqual(['three', 'four\nfive']);
    resumed.close();
    const after = await open(build.deployment, { 'last-event-id': 'rubbish' }, '?after=3');
    await expect.poll(() => textsOf(after)).toEqual(['four\nfive']);
    after.close();
  });
  test('a client that does not read uses no memory and gets everything later', async () => {
    const big = 'x'.repeat(15_000);
    const s = await open(build.deployment, { 'last-event-id': '4' });
    s.response.pause();
    for (let i = 0; i < 12; i++)
      await say(...Array.from({ length: 60 }, (_, n) => `${i * 60 + n} ${big}`));
    s.response.resume();
    await expect.poll(() => textsOf(s).length, { timeout: 8_000 }).toBe(720);
    expect(textsOf(s).map((t) => Number(String(t).split(' ')[0]))).toEqual(
      Array.from({ length: 720 }, (_, i) => i),
    );
    s.close();
  });
  test('ends by itself when the deployment is settled, after the last line', async () => {
    const s = await open(build.deployment, { 'last-event-id': '700' });
    await say('last words');
    await api.call('agentComplete', {
      params: { id: build.task },
      body: {
        status: 'failed',
        result: { error: { code: 'build_step_failed', message: 'RUN false' } },
      },
      headers: { 'x-lease-token': token },
    });
    await s.ended;
    expect(s.events.at(-1)).toMatchObject({
      event: 'end',
      data: { status: 'failed', error: { code: 'build_step_failed' } },
    });
    expect(textsOf(s)).toContain('last words');
    expect(s.events.findLastIndex((e) => e.event === 'line')).toBeLessThan(s.events.length - 1);
    const late = await open(build.deployment, { 'last-event-id': '730' });
    await late.ended;
    expect(late.events.map((e) => e.event).filter((e) => e !== 'line')).toEqual(['state', 'end']);
  });
  test('ends at once when the server closes', async () => {
    const other = await createApi();
    const own = await withBuild(other);
    const address = await other.listen();
    const ended = new Promise<number>((resolve, reject) => {
      get(
        `${address}/api/deployments/${own.deployment}/logs`,
        {
          headers: {
            accept: 'text/event-stream',
            authorization: `Bearer ${other.token('viewer')}`,
          },
        },
        (response) => {
          response.once('data', () => {
            const started = performance.now();
            response.on('close', () => resolve(performance.now() - started));
            other.close().catch(reject);
          });
        },
      ).on('error', reject);
    });
    expect(await ended).toBeLessThan(1_500);
    await other.close();
  });
});
