/**
 * Secrets of a project: write-only, bound to names that env does not have, changed by one person at
 * a time with If-Match.
 */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createKeyRing } from '../../src/secrets/key-ring.ts';
import { createVault } from '../../src/secrets/vault.ts';
import type { ProjectVault } from '../../src/domain/secrets/vault.ts';
import { createWorld } from './deployed.ts';
import {
  type Api,
  createApi,
  createProject,
  projectsNamed,
  type Input,
  type Reply,
  rulesOf,
  onceOnly,
} from './harness.ts';

const CANARY = 'canary-3b91e7d0c5';
let api: Api;
beforeAll(async () => {
  api = await createApi();
});
afterAll(() => api.close());

const project = projectsNamed('s', () => api);
const put = (id: string, name: string, body: unknown, more: Input = {}): Promise<Reply> =>
  api.call('putSecret', { params: { id, name }, body, ...more });
const list = async (id: string): Promise<{ name: string; fingerprint: string }[]> =>
  (await api.call('listSecrets', { params: { id } })).json['items'] as {
    name: string;
    fingerprint: string;
  }[];
const remove = (id: string, name: string, more: Input = {}): Promise<Reply> =>
  api.call('deleteSecret', { params: { id, name }, ...more });
const move = (id: string, name: string, more: Input = {}): Promise<Reply> =>
  api.call('importSecret', { params: { id, name }, ...more });
const etagOf = async (id: string): Promise<string> =>
  String((await api.call('getProject', { params: { id }, as: 'developer' })).headers['etag']);
const everything = async (): Promise<string> => {
  const replies = await Promise.all([
    api.call('events', { query: { limit: 1000 } }),
    api.call('audit', { query: { limit: 200 }, as: 'admin' }),
    api.call('listProjects'),
    api.call('metrics'),
    api.call('readyz'),
  ]);
  return replies.map(({ text }) => text).join('\n');
};

describe('a secret', () => {
  test('is listed with who set it, when and how, and no answer, event or audit entry has its value', async () => {
    const id = await project();
    const answer = await put(id, 'TOKEN', { value: CANARY });
    expect([answer.status, answer.json]).toEqual([
      200,
      {
        name: 'TOKEN',
        fingerprint: expect.stringMatching(/^[0-9a-f]{16}$/),
        scope: 'run',
        as: 'env',
        set_by: 'developer@example.com',
        set_at: expect.any(String),
      },
    ]);
    expect((await put(id, 'CERT', { value: CANARY, as: 'file' })).json).toMatchObject({
      as: 'file',
      scope: 'run',
    });
    expect((await put(id, 'NPM', { value: CANARY, scope: 'build' })).json).toMatchObject({
      scope: 'build',
    });
    expect((await list(id)).map(({ name }) => name)).toEqual(['CERT', 'NPM', 'TOKEN']);
    const read = await api.call('getSecret', { params: { id, name: 'TOKEN' } });
    expect(read.json).toEqual(answer.json);
    for (const text of [answer.text, read.text, await everything()])
      expect(text).not.toContain(CANARY);
    expect(await everything()).toContain('secret_set TOKEN (env)');
  });

  test('has a new fingerprint after a new value alone; equal values of two names have two', async () => {
    const id = await project();
    const print = async (name: string, value: string): Promise<unknown> =>
      (await put(id, name, { value })).json['fingerprint'];
    const first = await print('A', CANARY);
    expect(await print('A', CANARY)).toBe(first);
    expect(await print('A', 'other')).not.toBe(first);
    expect(await print('B', CANARY)).not.toBe(first);
  });

  test.each([
    ['64 KiB', 'x'.repeat(65_536)],
    ['64 KiB of two-byte characters', 'é'.repeat(32_768)],
    ['newlines', '-----BEGIN\nabc\r\n-----END\n'],
    ['the mark of redaction', '***'],
    ['only a space', ' '],
  ])('%s is a value', async (_, value) => {
    const id = await project();
    expect((await put(id, 'A', { value })).status).toBe(200);
    const [sealed] = await api.stores.secrets.sealed(id, ['A']);
    expect((await vaultOf(id)).open('secret:A', sealed?.sealed ?? '').toString()).toBe(value);
  });

  onceOnly.each([
    ['A', { value: '' }, 'value:min_length'],
    ['A', { value: 'x'.repeat(65_537) }, 'value:max_length'],
    ['A', { value: 'é'.repeat(32_769) }, 'value:max_bytes'],
    ['A', { value: 'x\u0000' }, 'value:no_nul'],
    ['A', { value: '\ud800' }, 'value:utf8'],
    ['A', { value: 'x', scope: 'both' }, 'scope:enum'],
    ['A', { value: 'x', as: 'argument' }, 'as:enum'],
    ['A', { value: 'x', name: 'B' }, 'name:unknown_field'],
    ['A', {}, 'value:required'],
    ['A', { value: null }, 'value:type'],
    ['A-B', { value: 'x' }, 'name:env_name'],
    ['1A', { value: 'x' }, 'name:env_name'],
    ['A'.repeat(201), { value: 'x' }, 'name:max_length'],
  ])('%s with a wrong body is 422 %s', async (name, body, rule) => {
    const reply = await put(await project(), name, body);
    expect([reply.status, rulesOf(reply)]).toEqual([422, [rule]]);
  });

  test('an error never repeats the value: broken JSON, a value in the wrong place', async () => {
    const id = await project();
    const broken = await api.call('putSecret', {
      params: { id, name: 'A' },
      raw: `{"value": "${CANARY}`,
    });
    const bare = await api.call('putSecret', { params: { id, name: 'A' }, raw: CANARY });
    const wrong = await put(id, 'A', { value: { [CANARY.replaceAll('-', '_')]: 1 } });
    expect([broken.status, bare.status, wrong.status]).toEqual([400, 400, 422]);
    for (const { text } of [broken, bare, wrong]) expect(text).not.toMatch(/canary|3b91e7/);
  });

  test('too many, or too large together, are refused; replacing one is not', async () => {
    const id = await project();
    for (let i = 0; i < 16; i++)
      expect((await put(id, `A${i}`, { value: 'x'.repeat(65_536) })).status).toBe(200);
    expect(rulesOf(await put(id, 'B', { value: 'x' }))).toEqual(['value:max_bytes']);
    expect((await put(id, 'A0', { value: 'y'.repeat(65_536) })).status).toBe(200);
    const many = await project();
    for (let i = 0; i < 100; i++) await put(many, `A${i}`, { value: 'x' });
    expect(rulesOf(await put(many, 'B', { value: 'x' }))).toEqual(['name:max_items']);
    expect((await put(many, 'A0', { value: 'y' })).status).toBe(200);
  });

  test('is deleted with 204; then it is 404', async () => {
    const id = await project();
    await put(id, 'A', { value: CANARY });
    expect((await remove(id, 'A')).status).toBe(204);
    expect(await list(id)).toEqual([]);
    for (const reply of [
      await remove(id, 'A'),
      await api.call('getSecret', { params: { id, name: 'A' } }),
    ])
      expect([reply.status, reply.json['code']]).toEqual([404, 'not_found']);
  });

  test('is not changed in a project that is being deleted, and goes with it', async () => {
    const id = await project();
    await put(id, 'A', { value: CANARY });
    await api.call('deleteProject', { params: { id } });
    for (const reply of [
      await put(id, 'A', { value: 'x' }),
      await remove(id, 'A'),
      await move(id, 'A'),
    ])
      expect(reply.json['code']).toBe('being_deleted');
    expect(await api.stores.projects.removeIfGone(id)).toBe(true);
    expect(await api.stores.secrets.list(id)).toEqual([]);
    expect((await put(id, 'A', { value: 'x' })).status).toBe(404);
  });
});

describe('two people', () => {
  test('who set one secret at once: the last one wins, and both are in the audit log', async () => {
    const id = await project();
    const before = (
      (await api.call('audit', { query: { limit: 200 }, as: 'admin' })).json['items'] as object[]
    ).length;
    const replies = await Promise.all(['first', 'second'].map((value) => put(id, 'A', { value })));
    expect(replies.map((r) => r.status)).toEqual([200, 200]);
    const prints = replies.map((r) => r.json['fingerprint']);
    expect(prints).toContain((await list(id))[0]?.fingerprint);
    const audit = (await api.call('audit', { query: { limit: 200 }, as: 'admin' })).json[
      'items'
    ] as { action: string; target: string }[];
    expect(audit.length).toBe(before + 2);
    expect(audit.slice(0, 2)).toMatchObject([
      { action: 'putSecret', target: id },
      { action: 'putSecret', target: id },
    ]);
  });

  test('with If-Match: one of 20 wins, the others get 412', async () => {
    const id = await project();
    const headers = { 'if-match': await etagOf(id) };
    const all = await Promise.all(
      Array.from({ length: 20 }, (_, i) => put(id, `K${i}`, { value: 'x' }, { headers })),
    );
    expect(all.filter((r) => r.status === 200)).toHaveLength(1);
    expect(all.filter((r) => r.json['code'] === 'changed_meanwhile')).toHaveLength(19);
    expect((await remove(id, 'K0', { headers })).status).toBe(412);
    const won = all.find((r) => r.status === 200);
    expect(won?.headers['etag']).toBe(await etagOf(id));
    expect(
      (await remove(id, String(won?.json['name']), { headers: { 'if-match': await etagOf(id) } }))
        .status,
    ).toBe(204);
  });
});

describe('a name that env has', () => {
  test('is 409 in both directions, whatever the scope', async () => {
    const id = await project({ A: '1' });
    const conflict = {
      status: 409,
      json: { code: 'env_conflict', errors: [{ field: 'name', rule: 'env_conflict' }] },
    };
    expect(await put(id, 'A', { value: CANARY })).toMatchObject(conflict);
    expect(await put(id, 'A', { value: CANARY, scope: 'build' })).toMatchObject(conflict);
    await put(id, 'B', { value: CANARY, scope: 'build' });
    for (const reply of [
      await api.call('putEnv', { params: { id, name: 'B' }, body: { value: 'x' } }),
      await api.call('patchProject', { params: { id }, body: { env: { B: 'x', C: 'y' } } }),
    ])
      expect(reply).toMatchObject({
        status: 409,
        json: { code: 'env_conflict', errors: [{ field: 'env.B', rule: 'env_conflict' }] },
      });
    // The refused change left no trace, and the other changes still work.
    expect(
      (await api.call('patchProject', { params: { id }, body: { env: { B: null, C: 'y' } } })).json[
        'env'
      ],
    ).toEqual({
      A: '1',
      C: 'y',
    });
  });

  test('set at once as env and as secret: exactly one succeeds', async () => {
    for (let i = 0; i < 10; i++) {
      const id = await project();
      const replies = await Promise.all([
        put(id, 'A', { value: 'x' }),
        api.call('putEnv', { params: { id, name: 'A' }, body: { value: 'x' } }),
      ]);
      expect(replies.map((r) => r.status).sort((a, b) => a - b)).toEqual([200, 409]);
    }
  });
});

describe('import', () => {
  test('moves the value at once: the secret has it, and neither env nor earlier deployments have it', async () => {
    const id = await project({ A: CANARY, B: 'kept' });
    await api.call('createDeployment', { params: { id } });
    const reply = await move(id, 'A');
    expect([reply.status, reply.json]).toMatchObject([201, { name: 'A', scope: 'run', as: 'env' }]);
    expect(reply.headers['location']).toBe(`/api/projects/${id}/secrets/A`);
    expect(reply.text).not.toContain(CANARY);
    const after = await api.call('getProject', { params: { id }, as: 'developer' });
    expect(after.json['env']).toEqual({ B: 'kept' });
    expect(reply.headers['etag']).toBe(after.headers['etag']);
    const [deployment] = (
      await api.stores.deployments.list({ project_id: id }, { limit: 1, cursor: null })
    ).items;
    expect((await api.stores.deployments.get(deployment?.id ?? '')).settings.env).toEqual({
      B: 'kept',
    });
    const [sealed] = await api.stores.secrets.sealed(id, ['A']);
    expect((await vaultOf(id)).open('secret:A', sealed?.sealed ?? '').toString()).toBe(CANARY);
    expect(await everything()).toContain('secret_set A (env) from its environment variable');
    expect(await everything()).not.toContain(CANARY);
  });

  test('also takes the value out of a rollback that is being requested', async () => {
    let during = async (): Promise<void> => undefined;
    const changing = await createApi({
      stores: (real) => ({
        ...real,
        flow: {
          ...real.flow,
          async facts(...of) {
            await during();
            return real.flow.facts(...of);
          },
        },
      }),
    });
    onTestFinished(() => changing.close());
    const id = await createProject(changing, { env: { A: CANARY } });
    const world = await createWorld(changing);
    await world.live(id);
    const second = await world.live(id);
    during = async () => {
      during = async () => undefined;
      expect((await changing.call('importSecret', { params: { id, name: 'A' } })).status).toBe(201);
    };
    const reply = await changing.call('rollback', {
      params: { id },
      body: { deployment_id: second },
    });
    expect(reply.status, reply.text).toBe(201);
    expect((await changing.stores.deployments.get(String(reply.json['id']))).settings.env).toEqual(
      {},
    );
  });

  test('of an absent variable is 404; of an empty one 422; with a stale ETag 412; none changes anything', async () => {
    const id = await project({ A: '' });
    expect((await move(id, 'B')).status).toBe(404);
    // A name that every JavaScript object has.
    expect((await move(id, 'constructor')).status).toBe(404);
    expect(rulesOf(await move(id, 'A'))).toEqual(['value:min_length']);
    expect((await move(id, 'A', { headers: { 'if-match': '"old"' } })).status).toBe(412);
    expect((await api.call('getProject', { params: { id }, as: 'developer' })).json['env']).toEqual(
      { A: '' },
    );
    expect(await list(id)).toEqual([]);
  });

  test('takes an Idempotency-Key: a repeated request gets the same answer', async () => {
    const id = await project({ A: CANARY });
    const headers = { 'idempotency-key': 'import-1' };
    const [one, two] = [await move(id, 'A', { headers }), await move(id, 'A', { headers })];
    expect([one.status, two.status, two.text, two.headers['idempotent-replayed']]).toEqual([
      201,
      201,
      one.text,
      'true',
    ]);
  });
});

test('a viewer sees names and fingerprints, and changes nothing', async () => {
  const id = await project({ B: 'x' });
  await put(id, 'A', { value: CANARY });
  const read = await api.call('listSecrets', { params: { id }, as: 'viewer' });
  expect(read.json['items']).toMatchObject([{ name: 'A', fingerprint: expect.any(String) }]);
  const as = 'viewer' as const;
  for (const reply of [
    await put(id, 'A', { value: 'x' }, { as }),
    await remove(id, 'A', { as }),
    await move(id, 'B', { as }),
  ])
    expect(reply.status).toBe(403);
});

/** Opens what the API sealed, with the key of the harness. */
function vaultOf(id: string): Promise<ProjectVault> {
  const ring = createKeyRing([Buffer.alloc(32, 7)]);
  return createVault({ keys: api.stores.projectKeys, ring: () => ring, now: () => 1 }).of(id);
}
