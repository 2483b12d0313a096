/** Hooks over HTTP: what forges send, what strangers learn, and what people see. */
import { createHmac, randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import { FORGES } from '@berth/wire/hook';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createDeliveryBodies } from '../../src/api/hooks/body.ts';
import { checkSignature } from '../../src/api/hooks/signatures.ts';
import {
  type Api,
  checkProblem,
  createApi,
  createProject,
  register,
  type Reply,
  sha,
  tick,
  onceOnly,
} from './harness.ts';

let api: Api;
let project: string;
beforeEach(async () => {
  api = await createApi();
  project = await createProject(api);
});
afterEach(() => api.close());

const TIP = sha('tip');
const PUSH = { ref: 'refs/heads/main', before: sha('old'), after: TIP, commits: [] };
const hex = (secret: string, body: string | Buffer): string =>
  createHmac('sha256', secret).update(body).digest('hex');

async function createHook(forge: (typeof FORGES)[number], secret?: string): Promise<string> {
  const reply = await api.call('putHook', {
    params: { id: project },
    body: { forge, ...(secret === undefined ? {} : { secret }) },
  });
  expect(reply.status, reply.text).toBe(200);
  return secret ?? String(reply.json['secret']);
}
async function send(
  headers: Record<string, string>,
  body: string | Buffer = JSON.stringify(PUSH),
  id = project,
): Promise<Reply> {
  const answer = await api.server.inject({
    method: 'POST',
    url: `/api/hooks/${id}`,
    headers: { 'content-type': 'application/json', ...headers },
    payload: body,
  });
  const text = answer.body;
  return {
    status: answer.statusCode,
    headers: answer.headers,
    text,
    json: text === '' ? {} : (JSON.parse(text) as Reply['json']),
  };
}
const github = (
  secret: string,
  body: string,
  event = 'push',
  id = randomBytes(8).toString('hex'),
): Record<string, string> => ({
  'x-github-event': event,
  'x-github-delivery': id,
  'x-hub-signature-256': `sha256=${hex(secret, body)}`,
});
async function deliveries(): Promise<Record<string, unknown>[]> {
  const reply = await api.call('listDeliveries', { params: { id: project } });
  expect(reply.status, reply.text).toBe(200);
  return reply.json['items'] as Record<string, unknown>[];
}
/** Refused deliveries are stored after the answer. */
const refusals = (count: number): Promise<Record<string, unknown>[]> =>
  vi.waitFor(async () => {
    const refused = (await deliveries()).filter((d) => d['verdict'] === 'refused');
    expect(refused).toHaveLength(count);
    return refused;
  });

describe('a hook', () => {
  it('shows its address and its secret once; the secret is sealed in the database', async () => {
    const put = await api.call('putHook', { params: { id: project }, body: { forge: 'github' } });
    expect(put.json).toMatchObject({
      forge: 'github',
      url: `http://berth.localhost:8000/api/hooks/${project}`,
      refused: 0,
    });
    const secret = String(put.json['secret']);
    expect(secret).toMatch(/^[\w-]{43}$/);
    const shown = await api.call('getHook', { params: { id: project } });
    expect(shown.text).not.toContain(secret);
    expect(shown.json).not.toHaveProperty('secret');
    expect(JSON.stringify(await api.stores.hooks.get(project))).not.toContain(secret);
  });
  it('that gets the forge’s own secret does not show it', async () => {
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    expect(
      (await api.call('putHook', { params: { id: project }, body: { forge: 'gitlab', secret } }))
        .json['secret'],
    ).toBeNull();
    const wrong = await api.call('putHook', {
      params: { id: project },
      body: { forge: 'gitlab', secret: 'whsec_not base64 at all' },
    });
    expect(wrong.status).toBe(422);
    const short = await api.call('putHook', {
      params: { id: project },
      body: { forge: 'gitlab', secret: 'whsec_c2hvcnQtc2VjcmV0' },
    });
    expect(short.json['errors']).toMatchObject([{ field: 'secret', rule: 'standard' }]);
  });
  it('can be replaced: the earlier secret is not valid any more', async () => {
    const [first, second] = [await createHook('github'), await createHook('github')];
    const body = JSON.stringify(PUSH);
    expect((await send(github(first, body))).status).toBe(404);
    expect((await send(github(second, body))).status).toBe(202);
  });
  it('leaves an event when it is set and when it is deleted, like a deploy key', async () => {
    await createHook('gitlab');
    await api.call('deleteHook', { params: { id: project } });
    const events = (await api.call('events', { query: { limit: 1000 } })).json['items'] as {
      kind: string;
      project_id?: string;
    }[];
    const kinds = events.filter((event) => event.project_id === project).map(({ kind }) => kind);
    expect(kinds.slice(-2)).toEqual(['project.hook_set', 'project.hook_deleted']);
  });
  it('can be deleted with its deliveries', async () => {
    const secret = await createHook('github');
    await send(github(secret, JSON.stringify(PUSH)));
    expect((await api.call('deleteHook', { params: { id: project } })).status).toBe(204);
    expect((await send(github(secret, JSON.stringify(PUSH)))).status).toBe(404);
    for (const name of ['getHook', 'deleteHook', 'listDeliveries'] as const)
      expect((await api.call(name, { params: { id: project } })).status).toBe(404);
  });
});

onceOnly.describe('a delivery is accepted from', () => {
  const body = JSON.stringify(PUSH);
  const accepted = async (headers: Record<string, string>, text = body): Promise<void> => {
    const reply = await send(headers, text);
    expect(reply.status, reply.text).toBe(202);
    expect(reply.headers['location']).toBe(
      `/api/projects/${project}/hook/deliveries/${String(reply.json['id'])}`,
    );
    expect(await deliveries()).toMatchObject([
      { id: reply.json['id'], event: 'push', branch: 'main', commit: TIP, verdict: null },
    ]);
  };
  it('GitHub', async () => accepted(github(await createHook('github'), body)));
  it('GitHub as a form', async () => {
    const secret = await createHook('github');
    const form = new URLSearchParams({ payload: body }).toString();
    await accepted(
      { ...github(secret, form), 'content-type': 'application/x-www-form-urlencoded' },
      form,
    );
  });
  it('GitLab with a token', async () =>
    accepted({
      'x-gitlab-event': 'Push Hook',
      'x-gitlab-token': await createHook('gitlab'),
      'x-gitlab-event-uuid': 'u1',
    }));
  it('GitLab with a signing token', async () => {
    const key = randomBytes(32);
    await createHook('gitlab', `whsec_${key.toString('base64')}`);
    const time = String(Math.floor(Date.now() / 1000));
    const right = createHmac('sha256', key).update(`m1.${time}.${body}`).digest('base64');
    await accepted({
      'x-gitlab-event': 'Push Hook',
      'webhook-id': 'm1',
      'webhook-timestamp': time,
      'webhook-signature': `v1,${randomBytes(32).toString('base64')} v1,${right}`,
    });
  });
  it('Gitea', async () =>
    accepted({
      'x-gitea-event': 'push',
      'x-gitea-signature': hex(await createHook('gitea'), body),
    }));
  it('Forgejo', async () =>
    accepted({
      'x-forgejo-event': 'push',
      'x-forgejo-signature': hex(await createHook('forgejo'), body),
    }));
  it('Forgejo with the headers of Gitea', async () =>
    accepted({
      'x-gitea-event': 'push',
      'x-gitea-signature': hex(await createHook('forgejo'), body),
    }));
  it('Bitbucket Cloud', async () => {
    const text = JSON.stringify({
      actor: { type: 'user' },
      push: {
        changes: [
          {
            old: null,
            new: { type: 'branch', name: 'main', target: { type: 'commit', hash: TIP } },
            created: true,
          },
        ],
      },
    });
    await accepted(
      {
        'x-event-key': 'repo:push',
        'x-hub-signature': `sha256=${hex(await createHook('bitbucket'), text)}`,
      },
      text,
    );
  });
  it('Bitbucket Data Center', async () => {
    const ref = { id: 'refs/heads/main', displayId: 'main', type: 'BRANCH' };
    const text = JSON.stringify({
      eventKey: 'repo:refs_changed',
      changes: [
        { ref, refId: 'refs/heads/main', fromHash: sha('old'), toHash: TIP, type: 'UPDATE' },
      ],
    });
    await accepted(
      {
        'x-event-key': 'repo:refs_changed',
        'x-hub-signature': `sha256=${hex(await createHook('bitbucket'), text)}`,
      },
      text,
    );
  });
  it('a script with a bearer token', async () =>
    accepted({ authorization: `bearer ${await createHook('generic')}` }));
  it('a script without a body: the branch is checked', async () => {
    const reply = await send({ authorization: `Bearer ${await createHook('generic')}` }, '');
    expect(reply.status).toBe(202);
    expect(await deliveries()).toMatchObject([
      { event: 'push', branch: null, commit: null, verdict: null },
    ]);
  });
  it('a script without a body and without a content type', async () => {
    const secret = await createHook('generic');
    const answer = await api.server.inject({
      method: 'POST',
      url: `/api/hooks/${project}`,
      headers: { authorization: `Bearer ${secret}` },
    });
    expect(answer.statusCode).toBe(202);
  });
});

describe('a delivery is skipped', () => {
  onceOnly.each([
    ['for another branch', 'push', { ...PUSH, ref: 'refs/heads/topic' }, /to topic/],
    ['for a tag', 'push', { ...PUSH, ref: 'refs/tags/v1' }, /tag/],
    ['for a deleted branch', 'push', { ...PUSH, after: '0'.repeat(40) }, /deleted/],
    ['for a ping', 'ping', { zen: 'x' }, /ping/],
    ['for a pull request', 'pull_request', {}, /merge request/],
  ])('%s', async (_, event, payload, reason) => {
    const secret = await createHook('github');
    const body = JSON.stringify(payload);
    expect((await send(github(secret, body, event), body)).status).toBe(202);
    expect(await deliveries()).toMatchObject([
      { verdict: 'skipped', reason: expect.stringMatching(reason) },
    ]);
  });
  it('if its id was seen in the last 7 days, and accepted after that', async () => {
    const secret = await createHook('github');
    const body = JSON.stringify(PUSH);
    await send(github(secret, body, 'push', 'same'));
    expect((await send(github(secret, body, 'push', 'same'))).status).toBe(202);
    expect(await deliveries()).toMatchObject([
      { verdict: 'skipped', reason: expect.stringContaining('already arrived') },
      { verdict: null },
    ]);
    api.pass(7 * 86_400_000 + 1000);
    await send(github(secret, body, 'push', 'same'));
    // The token of the test has expired by now.
    expect((await api.stores.hooks.pushes(project))?.waiting).toMatchObject([
      { forge_id: null },
      { forge_id: 'same' },
    ]);
  });
  it('once if it arrives several times at once', async () => {
    const secret = await createHook('github');
    const body = JSON.stringify(PUSH);
    await Promise.all(Array.from({ length: 5 }, () => send(github(secret, body, 'push', 'same'))));
    expect((await deliveries()).filter((d) => d['verdict'] === null)).toHaveLength(1);
  });
});

describe('a delivery is refused', () => {
  const body = JSON.stringify(PUSH);
  it('with the same answer as an unknown project, whatever is wrong', async () => {
    const secret = await createHook('github');
    const replies = [
      await send(github('another secret', body)),
      await send({ 'x-github-event': 'push' }),
      await send({ ...github(secret, body), 'x-hub-signature-256': 'sha256=' }),
      await send(github(secret, `${body} `)),
      await send({ 'x-gitlab-token': secret, 'x-gitlab-event': 'Push Hook' }),
      await send({ 'x-gitea-signature': hex(secret, body), 'x-gitea-event': 'push' }),
      await send({ ...github('another secret', body), 'content-encoding': 'gzip' }),
      await send({
        ...github('another secret', body),
        'content-type': 'text/x-odd; charset=nothing',
      }),
      await send({ ...github('another secret', body), 'content-type': 'odd' }),
    ];
    const unknown = await send(github(secret, body), body, 'no-such-project');
    checkProblem(unknown);
    const shape = (reply: Reply, id: string): unknown => [
      reply.status,
      { ...reply.json, request_id: '', detail: String(reply.json['detail']).replace(id, 'ID') },
      Object.keys(reply.headers).sort(),
    ];
    for (const reply of replies)
      expect(shape(reply, project)).toEqual(shape(unknown, 'no-such-project'));
    // The other two carried no proof or no readable content type: they are not stored.
    expect(await refusals(7)).toMatchObject(
      Array.from({ length: 7 }, () => ({ event: expect.any(String), deployment_id: null })),
    );
  });
  onceOnly.test('after the same reads for a known and an unknown project', async () => {
    const reads: string[] = [];
    const counted = <T extends object>(store: T, name: string): T =>
      new Proxy(store, {
        get(target, key, self) {
          const value: unknown = Reflect.get(target, key, self);
          if (typeof value !== 'function') return value;
          return (...args: unknown[]): unknown => {
            reads.push(`${name}.${String(key)}`);
            return Reflect.apply(value, target, args);
          };
        },
      });
    const own = await createApi({
      stores: (real) => ({
        ...real,
        hooks: counted(real.hooks, 'hooks'),
        projects: counted(real.projects, 'projects'),
      }),
    });
    try {
      const id = await createProject(own);
      await own.call('putHook', { params: { id }, body: { forge: 'github' } });
      const readsOf = async (given: string): Promise<string[]> => {
        reads.length = 0;
        const url = `/api/hooks/${given}`;
        expect(
          (
            await own.server.inject({
              method: 'POST',
              url,
              headers: github('wrong', body),
              payload: body,
            })
          ).statusCode,
        ).toBe(404);
        return reads.filter((read) => read !== 'hooks.refuse');
      };
      expect(await readsOf(id)).toEqual(await readsOf('no-such-project'));
    } finally {
      await own.close();
    }
  });
  onceOnly.each(FORGES)('by %s without its header', async (forge) => {
    await createHook(forge);
    const proof =
      forge === 'gitlab' ? { 'x-hub-signature': 'sha256=0' } : { 'x-gitlab-token': 'x' };
    expect((await send(proof)).status).toBe(404);
    const [refused] = await refusals(1);
    expect(refused?.['reason']).toMatch(/is missing/);
  });
  it('by its own family, even if another family would accept it', async () => {
    const forgejo = await createHook('forgejo');
    expect(
      (await send({ 'x-forgejo-signature': 'wrong', 'x-gitea-signature': hex(forgejo, body) }))
        .status,
    ).toBe(404);
    const generic = await createHook('generic');
    expect((await send({ ...github(generic, body), authorization: 'Bearer wrong' })).status).toBe(
      404,
    );
    expect((await refusals(2)).map((d) => d['reason'])).toEqual([
      'the header authorization has a wrong secret',
      'the signature in x-forgejo-signature is wrong',
    ]);
  });
  it('if a signed time is old, in the future or missing', async () => {
    const key = randomBytes(32);
    await createHook('gitlab', `whsec_${key.toString('base64')}`);
    const seconds = Math.floor(Date.now() / 1000);
    const at = (time: string): Record<string, string> => ({
      'webhook-id': 'm1',
      'webhook-timestamp': time,
      'webhook-signature': `v1,${createHmac('sha256', key).update(`m1.${time}.${body}`).digest('base64')}`,
    });
    for (const time of [String(seconds - 400), String(seconds + 400), '', 'soon'])
      expect((await send(at(time))).status).toBe(404);
    // The token in plain text belongs to another family.
    expect((await send({ 'x-gitlab-token': `whsec_${key.toString('base64')}` })).status).toBe(404);
    const reasons = (await refusals(5)).map((d) => String(d['reason']));
    expect(
      reasons.filter((r) =>
        r.startsWith('the time in webhook-timestamp differs from the clock of Berth by'),
      ),
    ).toHaveLength(2);
  });
  it('and stored 20 times; more are counted', async () => {
    await createHook('github');
    for (let i = 0; i < 45; i++) await send(github('wrong', body));
    await refusals(20);
    await vi.waitFor(async () =>
      expect((await api.call('getHook', { params: { id: project } })).json['refused']).toBe(45),
    );
  });
  it('with 429 after 60 in a minute from one network, whatever the project; valid deliveries are accepted and do not count', async () => {
    const secret = await createHook('github');
    for (let i = 0; i < 80; i++) expect((await send(github(secret, body))).status).toBe(202);
    for (let i = 0; i < 60; i++)
      expect(
        (await send(github('wrong', body), body, i % 2 === 0 ? project : 'nowhere')).status,
      ).toBe(404);
    for (const id of [project, 'nowhere'])
      expect((await send(github('wrong', body), body, id)).status).toBe(429);
    // Strangers who share the address of a forge do not shut out its signed deliveries.
    for (let i = 0; i < 5; i++) expect((await send(github(secret, body))).status).toBe(202);
    expect((await send({ 'x-github-event': 'push' })).status).toBe(429);
    // Past the limit the work for one delivery is bounded, for known and unknown projects alike.
    const large = Buffer.alloc(1_048_577, ' ');
    const signed = {
      'x-github-event': 'push',
      'x-hub-signature-256': `sha256=${hex(secret, large)}`,
    };
    for (const id of [project, 'nowhere']) expect((await send(signed, large, id)).status).toBe(429);
    expect((await send(github('wrong', body))).status).toBe(429);
    api.pass(61_000);
    expect((await send(github(secret, body))).status).toBe(202);
  });
  it('if its project is being deleted', async () => {
    const secret = await createHook('github');
    await api.stores.projects.markDeleting(project, Date.now());
    expect((await send(github(secret, body))).status).toBe(404);
  });
});

onceOnly.describe('a large delivery', () => {
  const MIB = 1_048_576;
  it('of 25 MiB is verified and accepted; the branch is checked', async () => {
    const secret = await createHook('github');
    const body = Buffer.alloc(25 * MIB, ' ');
    const reply = await send(
      { 'x-github-event': 'push', 'x-hub-signature-256': `sha256=${hex(secret, body)}` },
      body,
    );
    expect(reply.status, reply.text).toBe(202);
    expect(await deliveries()).toMatchObject([{ event: 'push', branch: null, verdict: null }]);
  });
  onceOnly.each([['an unknown project'], ['a known project']])(
    'of 26 MiB for %s gets 413',
    async (which) => {
      const secret = await createHook('github');
      const body = Buffer.alloc(26 * MIB, ' ');
      const id = which === 'a known project' ? project : 'nowhere';
      expect(
        (await send({ 'x-hub-signature-256': `sha256=${hex(secret, body)}` }, body, id)).status,
      ).toBe(413);
      expect((await send({}, body, id)).status).toBe(413);
    },
  );
  it('that breaks off is the client’s mistake, not an error of Berth', async () => {
    // Node.js destroys the body with this error when the connection ends.
    const body = Readable.from(['the beginning']).once('data', () =>
      body.destroy(new Error('aborted')),
    );
    const check = checkSignature('github', { secret: 's', headers: {}, now: 0 });
    await expect(createDeliveryBodies().read(body, check)).rejects.toMatchObject({
      code: 'bad_request',
    });
  });
  it('that is long on its way is judged by the settings and the secret of its end', async () => {
    const address = await api.server.listen({ host: '127.0.0.1', port: 0 });
    const body = JSON.stringify({ ...PUSH, ref: 'refs/heads/release' });
    async function slowly(change: () => Promise<unknown>): Promise<number> {
      const headers = { 'content-type': 'application/json', ...github(secret, body) };
      async function* parts(): AsyncGenerator<Buffer> {
        yield Buffer.from(body.slice(0, 20));
        // The server has read the hook when it waits for the rest.
        await vi.waitFor(() => expect(reads).toHaveBeenCalled());
        await change();
        yield Buffer.from(body.slice(20));
      }
      const reads = vi.spyOn(api.stores.projects, 'get');
      const request = {
        method: 'POST',
        body: parts(),
        duplex: 'half',
        headers,
      } as unknown as RequestInit;
      const { status } = await fetch(`${address}/api/hooks/${project}`, request);
      reads.mockRestore();
      return status;
    }
    const secret = await createHook('github');
    const changes = { params: { id: project }, body: { branch: 'release' } };
    expect(await slowly(() => api.call('patchProject', changes))).toBe(202);
    expect(await deliveries()).toMatchObject([{ branch: 'release', verdict: null }]);
    expect(await slowly(() => createHook('github'))).toBe(404);
  });
  it('of 26 MiB without a length gets 413', async () => {
    const address = await api.server.listen({ host: '127.0.0.1', port: 0 });
    async function* chunks(): AsyncGenerator<Buffer> {
      for (let i = 0; i < 26; i++) yield Buffer.alloc(MIB);
    }
    const request = {
      method: 'POST',
      body: chunks(),
      duplex: 'half',
      headers: { 'x-gitlab-token': 'x' },
    } as unknown as RequestInit;
    const answer = await fetch(`${address}/api/hooks/${project}`, request);
    expect(answer.status).toBe(413);
  });
});

describe('redeliver', () => {
  const body = JSON.stringify(PUSH);
  const redeliver = (delivery: unknown): Promise<Reply> =>
    api.call('redeliver', { params: { id: project, delivery: String(delivery) } });
  it('repeats a delivery although its id was seen', async () => {
    const secret = await createHook('github');
    const { json } = await send(github(secret, body, 'push', 'same'));
    const again = await redeliver(json['id']);
    expect(again.status, again.text).toBe(201);
    expect(again.headers['location']).toBe(
      `/api/projects/${project}/hook/deliveries/${String(again.json['id'])}`,
    );
    expect(again.json).toMatchObject({ event: 'push', branch: 'main', commit: TIP, verdict: null });
    expect(
      (
        await api.call('getDelivery', {
          params: { id: project, delivery: String(again.json['id']) },
        })
      ).json,
    ).toEqual(again.json);
  });
  it('skips what it skipped before, and refuses a refused delivery', async () => {
    const secret = await createHook('github');
    const { json } = await send(github(secret, body, 'ping'));
    expect((await redeliver(json['id'])).json).toMatchObject({ verdict: 'skipped', event: 'ping' });
    await send(github('wrong', body));
    const [refused] = await refusals(1);
    expect((await redeliver(refused?.['id'])).json['code']).toBe('wrong_state');
    expect((await redeliver('unknown')).status).toBe(404);
  });
});

describe('a push', () => {
  async function pushed(): Promise<string> {
    const secret = await createHook('github');
    const { json } = await send(github(secret, JSON.stringify(PUSH)));
    await api.driver.checkPushes(project);
    return String(json['id']);
  }
  const deliveryNow = async (id: string) =>
    (await api.call('getDelivery', { params: { id: project, delivery: id } })).json;

  it('is checked by a builder and deployed', async () => {
    const node = await register(api, { capabilities: ['look'] });
    const id = await pushed();
    expect(await deliveryNow(id)).toMatchObject({ verdict: null });
    const [task] = (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as {
      id: string;
      kind: string;
      payload: object;
    }[];
    expect(task).toMatchObject({
      kind: 'look',
      payload: {
        branch: 'main',
        git_url: 'https://git.example.com/shop.git',
        watch_paths: [],
        bases: [],
      },
    });
    const params = { id: String(task?.id) };
    const claim = await api.call('agentStart', { params });
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    const report = {
      status: 'completed',
      commit: TIP,
      commit_message: 'hello',
      result: { skip_mark: null, changes: [] },
    };
    expect(
      (await api.call('agentComplete', { params, body: { status: 'completed' }, headers })).status,
    ).toBe(422);
    expect(
      (
        await api.call('agentComplete', {
          params,
          body: { ...report, result: { skip_mark: 7 } },
          headers,
        })
      ).status,
    ).toBe(422);
    expect((await api.call('agentComplete', { params, body: report, headers })).status).toBe(200);
    // The same report again has no further effect.
    expect((await api.call('agentComplete', { params, body: report, headers })).status).toBe(200);
    const delivery = await deliveryNow(id);
    expect(delivery).toMatchObject({ verdict: 'deployed', reason: null });
    const deployment = await api.call('getDeployment', {
      params: { id: String(delivery['deployment_id']) },
    });
    expect(deployment.json).toMatchObject({
      trigger: 'hook',
      commit: TIP,
      created_by: { kind: 'hook', id, name: 'github' },
      branch: 'main',
    });
    await tick(api, String(delivery['deployment_id']));
    const [build] = (await api.call('agentTasks', { query: { node_id: node } }))
      .json as unknown as { payload: { commit: string } }[];
    expect(build?.payload.commit).toBe(TIP);
  });
  it('is deployed without a look if no builder can look', async () => {
    await register(api);
    const delivery = await deliveryNow(await pushed());
    expect(delivery).toMatchObject({
      verdict: 'deployed',
      reason: expect.stringContaining('not looked'),
    });
  });
  it('of a deleted project: the look ends, and its report is refused', async () => {
    const node = await register(api, { capabilities: ['look'] });
    await pushed();
    const [task] = (await api.call('agentTasks', { query: { node_id: node } })).json as unknown as {
      id: string;
    }[];
    const claim = await api.call('agentStart', { params: { id: String(task?.id) } });
    expect((await api.call('deleteProject', { params: { id: project } })).status).toBe(202);
    const body = { status: 'completed', commit: TIP, result: { skip_mark: null, changes: [] } };
    const headers = { 'x-lease-token': String(claim.json['lease_token']) };
    expect(
      (await api.call('agentComplete', { params: { id: String(task?.id) }, body, headers })).status,
    ).toBe(409);
    expect(await api.stores.projects.removeIfGone(project)).toBe(true);
    expect(await api.stores.hooks.waiting()).toEqual([]);
  });
});

it('watch_paths are relative globs without “..”', async () => {
  const patch = (watch_paths: string[]) =>
    api.call('patchProject', { params: { id: project }, body: { watch_paths } });
  expect((await patch(['src/**', 'package.json', 'docs'])).json['watch_paths']).toEqual([
    'src/**',
    'package.json',
    'docs',
  ]);
  for (const path of ['/src', '../x', 'a\\b', ' ', 'a\nb'])
    expect((await patch([path])).status, path).toBe(422);
});
