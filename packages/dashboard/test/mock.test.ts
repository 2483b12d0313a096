/**
 * The mock answers as the route table says, so that a page that works with it works with a control
 * plane.
 */
import { Value } from 'typebox/value';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Deployment } from '@berth/wire/deployment';
import type { Route } from '@berth/wire/route';
import { ROUTES } from '@berth/wire/routes';
import { serveMock } from '../mock/serve.ts';

let mock: Awaited<ReturnType<typeof serveMock>>;
beforeAll(async () => {
  mock = await serveMock(null);
});
afterAll(() => mock.stop());

const ask = (
  path: string,
  {
    scenario = 'usual',
    role = 'admin',
    ...init
  }: Omit<RequestInit, 'headers'> & {
    headers?: Record<string, string>;
    scenario?: string;
    role?: string;
  } = {},
) =>
  fetch(`${mock.url}${path}`, {
    ...init,
    headers: { ...init.headers, cookie: `mock_scenario=${scenario}; mock_role=${role}` },
  });
const json = { 'content-type': 'application/json' };

/** An id for `:id` of a path, by the collection before it. */
const IDS: Readonly<Record<string, string>> = {
  projects: 'p-explorer',
  deployments: 'dep-explorer-14',
  runs: 'run-1',
  nodes: 'node-b',
  datasets: 'stations',
  users: 'u-grace',
  notifications: 'no-pager',
  'repository-looks': 'l-0',
};
const READS = Object.entries(ROUTES as Record<string, Route>).filter(
  ([, { method, who, path, answer }]) =>
    method === 'GET' &&
    who !== 'agent' &&
    who !== 'gateway' &&
    answer !== undefined &&
    !/:(?!id\b)/.test(path),
);

describe('answers', () => {
  it('covers the reads of people', () => expect(READS.length).toBeGreaterThan(40));

  it.each(READS)('%s fits its schema', async (_name, { path, answer }) => {
    const collection = /\/api\/([\w-]+)\/:id/.exec(path)?.[1] ?? '';
    const at = path
      .replace(':id', IDS[collection] ?? 'x')
      .replace('/api/placement', '/api/placement?project_id=p-explorer')
      .replace(/compare$/, 'compare?from=2&to=3');
    for (const [scenario, role] of [
      ['usual', 'admin'],
      ['hostile', 'admin'],
      ['large', 'developer'],
      ['usual', 'viewer'],
    ] as const) {
      const response = await ask(at, { scenario, role });
      const body: unknown = await response.json();
      if (response.status === 403) {
        expect(body).toMatchObject({ code: 'forbidden' });
        continue;
      }
      expect(response.status, JSON.stringify(body)).toBe(200);
      if (answer !== undefined) expect([...Value.Errors(answer, body)].slice(0, 3)).toEqual([]);
    }
  });

  it('empty lists have no items', async () => {
    for (const path of [
      '/api/projects',
      '/api/nodes',
      '/api/datasets',
      '/api/deployments',
      '/api/notifications',
    ])
      expect(await (await ask(path, { scenario: 'empty' })).json()).toEqual({
        items: [],
        next_cursor: null,
      });
  });

  it('large has 5,000 projects and 100,000 deployments, 2,000 of them of one project', async () => {
    type Page = { items: { id: string }[]; next_cursor: string | null };
    const count = async (path: string): Promise<number> => {
      let total = 0;
      for (let cursor: string | null = ''; cursor !== null; ) {
        const page = (await (
          await ask(`${path}?limit=200${cursor === '' ? '' : `&cursor=${cursor}`}`, {
            scenario: 'large',
          })
        ).json()) as Page;
        total += page.items.length;
        cursor = page.next_cursor;
      }
      return total;
    };
    expect(await count('/api/projects')).toBe(5_000);
    expect(await count('/api/projects/shop/deployments')).toBe(2_002);
    const last = (await (
      await ask('/api/deployments?limit=1&cursor=100000', { scenario: 'large' })
    ).json()) as Page;
    expect(last.items).toHaveLength(1);
  });
});

describe('rules', () => {
  it('a viewer may not deploy, and the answer says why', async () => {
    const response = await ask('/api/projects/shop/deployments', {
      method: 'POST',
      role: 'viewer',
    });
    expect([response.status, await response.json()]).toEqual([
      403,
      expect.objectContaining({ detail: 'your role is viewer; this needs developer' }),
    ]);
  });

  it('a body is checked by the schema of its route', async () => {
    const response = await ask('/api/projects', {
      method: 'POST',
      headers: json,
      body: JSON.stringify({ name: 'No Name', git_url: 'x', domain_prefix: 'x' }),
    });
    expect([response.status, await response.json()]).toEqual([
      422,
      expect.objectContaining({ errors: [expect.objectContaining({ field: 'name' })] }),
    ]);
  });

  it('a change of somebody else is 412', async () => {
    const { headers } = await ask('/api/projects/reports');
    const patch = () =>
      ask('/api/projects/reports', {
        method: 'PATCH',
        headers: { ...json, 'if-match': headers.get('etag') ?? '' },
        body: '{"branch":"next"}',
      });
    expect((await patch()).status).toBe(200);
    expect((await patch()).status).toBe(412);
  });

  it('nothing answers in the scenario away', async () =>
    expect((await ask('/api/projects', { scenario: 'away' })).status).toBe(502));

  it('a deployment is requested and builds; events tell it', async () => {
    const stop = new AbortController();
    const events = await ask('/api/events', {
      headers: { accept: 'text/event-stream' },
      signal: stop.signal,
    });
    const started = (await (
      await ask('/api/projects/shop/deployments', { method: 'POST' })
    ).json()) as Deployment;
    expect(started.status).toBe('pending');
    const reader = (events.body as ReadableStream<Uint8Array>).getReader();
    let text = '';
    while (!text.includes('deployment.building'))
      text += new TextDecoder().decode((await reader.read()).value);
    stop.abort();
    expect(
      ((await (await ask(`/api/deployments/${started.id}`)).json()) as Deployment).status,
    ).toBe('building');
  });
});
