/**
 * The feed of events: pages, the live stream, what each role sees. And a held request for a
 * deployment.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  onceOnly,
  register,
  rulesOf,
  tick,
} from './harness.ts';

let api: Api;
let url = '';
beforeAll(async () => {
  api = await createApi();
  url = await api.listen();
});
afterAll(() => api.close());

type Item = { seq: number; kind: string; message: string; user_id?: string };
const read = async (query: Record<string, number> = {}, as: 'viewer' | 'admin' = 'viewer') => {
  const { json } = await api.call('events', { query, as });
  return json as unknown as { items: Item[]; next: number; gap: boolean };
};
/** Reads frames of a stream up to the given number. */
async function frames(
  path: string,
  headers: Record<string, string>,
  many: number,
  meanwhile: () => Promise<unknown> = async () => {},
) {
  const end = new AbortController();
  const timer = setTimeout(() => end.abort(new Error('too few frames')), 9_000);
  try {
    const response = await fetch(url + path, {
      signal: end.signal,
      headers: {
        accept: 'text/event-stream',
        authorization: `Bearer ${api.token('viewer')}`,
        ...headers,
      },
    });
    expect([response.status, response.headers.get('content-type')]).toEqual([
      200,
      'text/event-stream; charset=utf-8',
    ]);
    await meanwhile();
    let text = '';
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk as Uint8Array).toString();
      const all = text.split('\n\n').slice(0, -1);
      if (all.length >= many)
        return all.map((frame) => ({
          id: /^id: (\d+)$/m.exec(frame)?.[1] ?? null,
          ...(JSON.parse(/^data: (.*)$/m.exec(frame)?.[1] ?? '{}') as Item),
        }));
    }
    throw new Error(`the stream ended after ${text}`);
  } finally {
    clearTimeout(timer);
    end.abort();
  }
}

describe('pages', () => {
  test('continue after a number, and end at `next`', async () => {
    const start = (await read()).next;
    const id = await createProject(api, {
      name: 'paged',
      domain_prefix: 'paged',
      env: { TOKEN: 'hush' },
    });
    await api.call('patchProject', { params: { id }, body: { env: { TOKEN: 'hushed' } } });
    const page = await read({ after: start });
    expect(page.items.map((event) => event.kind)).toEqual(['project.created', 'project.changed']);
    expect(page.items.map((event) => event.seq)).toEqual(
      [...page.items.map((event) => event.seq)].sort((a, b) => a - b),
    );
    expect(JSON.stringify(page)).not.toContain('hush');
    expect([page.gap, page.next]).toEqual([false, page.items.at(-1)?.seq]);
    const rest = await read({ after: start, limit: 1 });
    expect((await read({ after: rest.next })).items).toEqual(page.items.slice(1));
    expect(await read({ after: page.next })).toEqual({ items: [], next: page.next, gap: false });
  });
  test('go back from the newest event, and `previous` ends with the oldest one', async () => {
    const own = await createApi();
    onTestFinished(() => own.close());
    for (const name of ['one', 'two', 'three'])
      await createProject(own, { name, domain_prefix: name });
    const page = async (query: Record<string, number>) =>
      (await own.call('events', { query })).json as unknown as {
        items: Item[];
        next: number;
        previous?: number;
      };
    const all = (await page({ after: 0 })).items;
    const newest = await page({ limit: 2 });
    expect([newest.items, newest.previous]).toEqual([all.slice(-2), all.at(-2)?.seq]);
    const seen = [...newest.items];
    for (let { previous } = newest; previous !== undefined; ) {
      const earlier = await page({ limit: 2, before: previous });
      seen.unshift(...earlier.items);
      previous = earlier.previous;
    }
    expect(seen).toEqual(all);
  });
  test('`find` searches the kind and the message in any case, and no event that the caller may not see', async () => {
    await createProject(api, { name: 'needle', domain_prefix: 'needle' });
    await api.call('createUser', { body: { email: 'Needle@example.com', role: 'viewer' } });
    const kinds = async (find: string, as: 'viewer' | 'admin') =>
      (
        (await api.call('events', { query: { find, limit: 1 }, as })).json as unknown as {
          items: Item[];
        }
      ).items.map(({ kind }) => kind);
    expect(await kinds('NEEDLE', 'admin')).toEqual(['user.created']);
    expect(await kinds('NEEDLE', 'viewer')).toEqual(['project.created']);
    expect(await kinds('project.CREATED needle', 'viewer')).toEqual([]);
    expect(await kinds('%', 'admin')).toEqual([]);
  });
  test.each([
    [{ after: 1, before: 2 }, 'application/json', 'before:exclusive'],
    [{ before: 2 }, 'text/event-stream', 'before:stream'],
    [{ find: 'shop' }, 'text/event-stream', 'find:stream'],
  ])('%j as %s is refused: %s', async (query, accept, problem) => {
    const reply = await api.call('events', { query, headers: { accept }, as: 'viewer' });
    expect([reply.status, rulesOf(reply)]).toEqual([422, [problem]]);
  });
  test('events of users are for admins; other readers skip them', async () => {
    const start = (await read()).next;
    await api.call('createUser', { body: { email: 'seen@example.com', role: 'viewer' } });
    const [admin, viewer] = [await read({ after: start }, 'admin'), await read({ after: start })];
    expect(admin.items.map((event) => event.kind)).toEqual(['user.created']);
    expect(viewer).toEqual({ items: [], next: admin.next, gap: false });
  });
  test('a person hears of a change of the own role, which decides what the pages offer', async () => {
    const { id } = (await api.call('me', { as: 'viewer' })).json as unknown as { id: string };
    const start = (await read()).next;
    for (const role of ['developer', 'viewer'])
      await api.call('patchUser', { params: { id }, body: { role } });
    expect(
      (await read({ after: start })).items.map((event) => [event.kind, event.user_id]),
    ).toEqual([
      ['user.changed', id],
      ['user.changed', id],
    ]);
  });
  test('a reader who missed removed events first gets a gap', async () => {
    const { next } = await read();
    const page = await read({ after: next + 1_000 }, 'admin');
    expect([page.gap, page.items[0]]).toEqual([
      true,
      expect.objectContaining({ kind: 'gap', seq: page.items[1]?.seq }),
    ]);
  });
});

describe('a stream', () => {
  onceOnly.test(
    'is refused to a person who holds 100 requests of any kind, and not to others',
    async () => {
      const other = await createApi();
      const address = await other.listen();
      const deployment = await deploy(other, await createProject(other, {}));
      const end = new AbortController();
      const open = (path: string, role: 'viewer' | 'developer') =>
        fetch(address + path, {
          signal: end.signal,
          headers: { accept: 'text/event-stream', authorization: `Bearer ${other.token(role)}` },
        });
      try {
        const paths = Array.from({ length: 100 }, (_, i) =>
          i % 2 === 0 ? '/api/events' : `/api/deployments/${deployment}/logs`,
        );
        expect(
          new Set(
            (await Promise.all(paths.map((path) => open(path, 'developer')))).map(
              ({ status }) => status,
            ),
          ),
        ).toEqual(new Set([200]));
        const refused = await open('/api/events', 'developer');
        expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([
          429,
          'too_many_requests',
        ]);
        expect((await open('/api/events', 'viewer')).status).toBe(200);
      } finally {
        end.abort();
        await other.close();
      }
    },
  );
  test('sends new events, with their number as id', async () => {
    const got = await frames('/api/events', {}, 1, () =>
      createProject(api, { name: 'live', domain_prefix: 'live' }),
    );
    expect(got).toEqual([
      expect.objectContaining({ kind: 'project.created', id: String(got[0]?.seq) }),
    ]);
  });
  test('continues after Last-Event-ID, which overrides `after`', async () => {
    const { items } = await read({ after: 0 });
    const [first, second] = items.slice(-2);
    const got = await frames('/api/events?after=0', { 'last-event-id': String(first?.seq) }, 1);
    expect(got[0]?.seq).toBe(second?.seq);
  });
  test('sends a gap without an id, so that a reader who reconnects gets it again', async () => {
    const { next } = await read();
    const [gap] = await frames('/api/events', { 'last-event-id': String(next + 1_000) }, 1);
    expect(gap).toMatchObject({ kind: 'gap', id: null });
  });
});

describe('GET of a deployment with wait', () => {
  test('is held until the deployment changes', async () => {
    await register(api);
    const id = await deploy(api, await createProject(api, { name: 'held', domain_prefix: 'held' }));
    const first = await api.call('getDeployment', { params: { id } });
    const etag = String(first.headers['etag']);
    let answered = false;
    const held = api
      .call('getDeployment', {
        params: { id },
        query: { wait: 25 },
        headers: { 'if-none-match': etag },
      })
      .finally(() => (answered = true));
    await expect
      .poll(async () => (await api.call('metrics', {})).text)
      .toMatch(/kind="deployments"\} 1/);
    expect(answered).toBe(false);
    await tick(api, id);
    const { status, json, headers } = await held;
    expect([status, json['status']]).toEqual([200, 'building']);
    expect(headers['etag']).not.toBe(etag);
  });
  test('gets 304 after the wait time, and an immediate answer without an ETag or with an old one', async () => {
    const id = await deploy(
      api,
      await createProject(api, { name: 'still', domain_prefix: 'still' }),
    );
    const { headers } = await api.call('getDeployment', { params: { id }, query: { wait: 25 } });
    const etag = String(headers['etag']);
    const call = (tag: string, wait: number) =>
      api.call('getDeployment', {
        params: { id },
        query: { wait },
        headers: { 'if-none-match': tag },
      });
    expect((await call(etag, 0)).status).toBe(304);
    expect((await call(etag, 0.05)).status).toBe(304);
    expect((await call('"old"', 25)).status).toBe(200);
  });
});

onceOnly.test('GET /api/version names the running versions', async () => {
  const { json } = await api.call('version', {});
  expect(json).toEqual({
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
    commit: null,
    node: process.versions.node,
    schema: expect.stringMatching(/^\d{4}_/),
    oldest_agent: expect.stringMatching(/^\d+\.\d+\.\d+$/),
  });
});
