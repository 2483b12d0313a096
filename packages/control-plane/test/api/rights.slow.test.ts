/**
 * Rights on projects: every route of people, with every role, scope and membership. The calls are
 * derived from the route table, so a new route is tested without a change here. If a derived call
 * does not reach the handler, the test says that INPUTS needs an entry.
 */
import { request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Route } from '@berth/wire/route';
import { ROUTES, type RouteName } from '@berth/wire/routes';
import { ROLES, type Role } from '@berth/wire/vocabulary';
import { Type } from 'typebox';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Message } from '../../src/domain/notifications/notifications.ts';
import { sampleOf } from '../../src/api/openapi/samples.ts';
import {
  type Api,
  createApi,
  createProject,
  deploy,
  type Input,
  onceOnly,
  type Reply,
  register,
  rulesOf,
} from './harness.ts';

const row = (name: RouteName): Route => ROUTES[name];
const names = (Object.keys(ROUTES) as RouteName[]).filter((name) =>
  (ROLES as readonly string[]).includes(ROUTES[name].who),
);
const inScope = (...scopes: Route['scope'][]): RouteName[] =>
  names.filter((name) => scopes.includes(row(name).scope));

/** Input of routes for which the values of the samples do not reach the handler. */
const INPUTS: Partial<Record<RouteName, Omit<Input, 'as'>>> = {
  patchProject: { body: { branch: 'next' } },
  putEnv: { params: { name: 'A_VARIABLE' } },
  deleteEnv: { params: { name: 'A_VARIABLE' } },
  rollback: { body: { deployment_id: 'nothing' } },
};

/**
 * On another engine, one route of each scope and role: the check is the same code for all, and the
 * handlers do not run.
 */
const some = (list: readonly RouteName[]): RouteName[] =>
  onceOnly.of(list, (name) => `${row(name).scope} ${row(name).who}`);

type Target = { project: string; deployment: string };
/** The call of a route about this project. */
function inputOf(name: RouteName, target: Target): Omit<Input, 'as'> {
  const { params, query, body, scope } = row(name);
  const given = INPUTS[name];
  const id = scope === 'deployment' ? target.deployment : target.project;
  const fields =
    params !== undefined && Type.IsObject(params) ? Object.keys(params.properties) : [];
  const others = Object.fromEntries(
    fields.filter((field) => field !== 'id').map((field) => [field, 'other']),
  );
  const isFiltered =
    query !== undefined && Type.IsObject(query) && Object.hasOwn(query.properties, 'project_id');
  return {
    ...(body === undefined ? {} : { body: sampleOf(body) }),
    ...given,
    params: { ...others, ...given?.params, id },
    query: { ...given?.query, ...(isFiltered ? { project_id: target.project } : {}) },
  };
}

/**
 * Returns the status and the text of an answer, without the parts that differ between any two
 * requests.
 */
const said = (reply: Reply, target: Target): unknown => {
  const text = JSON.stringify({ ...reply.json, request_id: undefined })
    .replaceAll(target.project, 'ID')
    .replaceAll(target.deployment, 'ID');
  return [reply.status, text];
};

let api: Api;
let open: Target;
let hidden: Target;
const NOTHING: Target = { project: 'nothing', deployment: 'nothing' };
const userId = async (role: Role): Promise<string> =>
  (await api.stores.users.findByEmail(`${role}@example.com`))?.id ?? '';
const setMembers = async (
  id: string,
  members: { user_id: string; role: string }[],
  as: Role = 'admin',
): Promise<Reply> => api.call('patchProject', { as, params: { id }, body: { members } });
async function target(name: string): Promise<Target> {
  const project = await createProject(api, { name, domain_prefix: name });
  return { project, deployment: await deploy(api, project) };
}
async function start(): Promise<void> {
  api = await createApi();
  open = await target('open-one');
  hidden = await target('hidden-one');
  await api.call('patchProject', {
    as: 'admin',
    params: { id: open.project },
    body: { exec_role: 'developer' },
  });
  // Only a user who is none of the three roles is a member.
  const other = await api.stores.users.create(
    { email: 'other@example.com', role: 'viewer', password_hash: null },
    Date.now(),
  );
  expect((await setMembers(hidden.project, [{ user_id: other.id, role: 'viewer' }])).status).toBe(
    200,
  );
}
const limitedToken = async (as: Role, projects: string[], role: Role = as): Promise<Input> => {
  const body = {
    name: 'ci',
    role,
    projects,
    expires_at: new Date(Date.now() + 86_400_000).toISOString(),
  };
  const made = await api.call('createToken', { as, body });
  expect(made.status, made.text).toBe(201);
  return { as: null, headers: { authorization: `Bearer ${String(made.json['token'])}` } };
};

describe('a project that the caller may not see', () => {
  beforeAll(start, 120_000);
  afterAll(() => api.close());
  const single = some(inScope('project', 'deployment', 'query'));
  const people = single.flatMap((name) =>
    (['viewer', 'developer'] as const).map((role) => [name, role] as const),
  );

  test.each(people)(
    '%s gives the %s the same answer as one that does not exist',
    async (name, role) => {
      const reply = await api.call(name, { as: role, ...inputOf(name, hidden) });
      const nothing = await api.call(name, { as: role, ...inputOf(name, NOTHING) });
      expect(said(reply, hidden)).toEqual(said(nothing, NOTHING));
      if (ROLES.indexOf(role) < ROLES.indexOf(row(name).who as Role))
        return expect(reply.status).toBe(403);
      const isReached = row(name).scope === 'query' ? reply.status === 422 : reply.status === 404;
      expect(isReached, `${name} answered ${reply.text}: add its input to INPUTS`).toBe(true);
    },
  );

  test.each(single.filter((name) => row(name).who !== 'admin'))(
    '%s finds a project that the caller may see',
    async (name) => {
      const reply = await api.call(name, {
        as: 'developer',
        ...inputOf(name, open),
        headers: { 'if-match': '"stale"' },
      });
      expect(reply.text).not.toContain(`no project has the id or name “${open.project}”`);
      expect([401, 403, 500]).not.toContain(reply.status);
    },
  );

  test.each(single)('%s with a token that is limited to another project', async (name) => {
    const token = await limitedToken('admin', [hidden.project], 'developer');
    const reply = await api.call(name, {
      ...token,
      ...inputOf(name, open),
      headers: token.headers ?? {},
    });
    if (row(name).who === 'admin') expect(reply.status).toBe(403);
    else expect(reply.status).toBe(row(name).scope === 'query' ? 422 : 404);
  });

  test.each(
    inScope('list', 'none').filter(
      (name) => row(name).method === 'GET' && row(name).streams !== true,
    ),
  )('%s does not name it', async (name) => {
    const node = await register(api, {
      role: 'deploy',
      containers: [
        {
          name: 'berth-hidden-one-1',
          labels: { 'berth.project': hidden.project, 'berth.project_name': 'hidden-one' },
          host_port: null,
          state: 'running',
        },
      ],
    });
    const params = { id: node, host: 'github.com' };
    const admin = await api.call(name, { as: 'admin', params });
    const callers: Input[] = [
      { as: 'viewer' },
      { as: 'developer' },
      await limitedToken('admin', [open.project], 'developer'),
    ];
    for (const caller of callers) {
      const reply = await api.call(name, { ...caller, params });
      for (const word of [hidden.project, hidden.deployment, 'hidden-one'])
        expect(reply.text, name).not.toContain(word);
    }
    if (['listProjects', 'listDeployments', 'events', 'listNodes', 'getNode'].includes(name))
      expect(admin.text).toContain(hidden.project);
  });

  test.each(some(inScope('list', 'none', 'new').filter((name) => row(name).method !== 'GET')))(
    '%s is refused for a token that is limited to projects',
    async (name) => {
      const token = await limitedToken('developer', [open.project]);
      const { body, params } = row(name);
      const fields =
        params !== undefined && Type.IsObject(params) ? Object.keys(params.properties) : [];
      const reply = await api.call(name, {
        ...token,
        params: Object.fromEntries(fields.map((field) => [field, 'x'])),
        ...(body === undefined ? {} : { body: sampleOf(body) }),
      });
      expect([reply.status, reply.json['code']]).toEqual([403, 'forbidden']);
    },
  );

  test('a look into a repository for it is refused as for one that does not exist', async () => {
    const ask = (project_id: string) =>
      api.call('createRepositoryLook', { as: 'developer', body: { project_id } });
    expect(rulesOf(await ask(hidden.project))).toEqual(['project_id:exists']);
    expect(said(await ask('hidden-one'), hidden)).toEqual(said(await ask('nothing'), NOTHING));
    expect((await ask('open-one')).status).toBe(200);
  });

  test('a conflict with its name or prefix does not say more than that they are taken', async () => {
    const reply = await api.call('createProject', {
      as: 'developer',
      body: {
        name: 'hidden-one',
        domain_prefix: 'hidden-one',
        git_url: 'https://git.example.com/a.git',
      },
    });
    expect(reply.status).toBe(409);
    expect(reply.text).not.toContain(hidden.project);
    expect(rulesOf(reply)).toEqual(['name:taken', 'domain_prefix:taken']);
  });
});

describe('the role of a member', () => {
  beforeAll(start, 120_000);
  afterAll(() => api.close());
  const single = some(
    inScope('project', 'deployment').filter((name) => row(name).who === 'developer'),
  );

  test.each(single)('%s is 403 for a developer who is a viewer in the project', async (name) => {
    await setMembers(hidden.project, [{ user_id: await userId('developer'), role: 'viewer' }]);
    const reply = await api.call(name, { as: 'developer', ...inputOf(name, hidden) });
    expect([reply.status, reply.json['code']]).toEqual([403, 'forbidden']);
    expect(reply.json['detail']).toContain('your role in this project is viewer');
  });
  test.each(single)('%s is 403 for a viewer who is a developer in the project', async (name) => {
    await setMembers(hidden.project, [{ user_id: await userId('viewer'), role: 'developer' }]);
    expect((await api.call(name, { as: 'viewer', ...inputOf(name, hidden) })).status).toBe(403);
  });
  test('decides whether variables are shown, in lists too', async () => {
    await api.call('patchProject', {
      as: 'admin',
      params: { id: hidden.project },
      body: { env: { A: 'value-of-a' } },
    });
    const seen = async (role: string) => {
      await setMembers(hidden.project, [{ user_id: await userId('developer'), role }]);
      const one = await api.call('getProject', { as: 'developer', params: { id: 'hidden-one' } });
      const all = await api.call('listProjects', {
        as: 'developer',
        query: { name: 'hidden-one' },
      });
      return [
        one.text.includes('value-of-a'),
        all.text.includes('value-of-a'),
        all.text.includes(hidden.project),
      ];
    };
    expect(await seen('developer')).toEqual([true, true, true]);
    expect(await seen('viewer')).toEqual([false, false, true]);
  });
});

describe('members', () => {
  beforeEach(async () => {
    await start();
    return () => api.close();
  });

  test('are set by admins alone', async () => {
    for (const as of ['viewer', 'developer'] as const)
      expect((await setMembers(open.project, [], as)).status).toBe(403);
    const body = {
      name: 'x',
      domain_prefix: 'x',
      git_url: 'https://git.example.com/a.git',
      members: [],
    };
    expect((await api.call('createProject', { as: 'developer', body })).status).toBe(403);
    expect((await api.call('createProject', { as: 'admin', body })).status).toBe(201);
  });
  onceOnly.each([
    [[{ user_id: 'nobody', role: 'viewer' }], 'members[0].user_id:exists'],
    [[{ user_id: 'nobody', role: 'admin' }], 'members[0].role:enum'],
    [
      Array.from({ length: 2 }, () => ({ user_id: 'nobody', role: 'viewer' })),
      'members[1].user_id:unique',
    ],
  ])('%j is 422', async (members, rule) => {
    expect(rulesOf(await setMembers(open.project, members))).toEqual([rule]);
  });
  test('the deletion of the last member does not open the project', async () => {
    const [viewer, developer] = [await userId('viewer'), await userId('developer')];
    const both = [viewer, developer].map((user_id) => ({ user_id, role: 'viewer' }));
    await setMembers(hidden.project, both);
    const membersNow = async () => (await api.stores.projects.get(hidden.project)).members;
    expect((await api.call('deleteUser', { params: { id: viewer } })).status).toBe(204);
    expect(await membersNow()).toEqual([{ user_id: developer, role: 'viewer' }]);
    expect((await api.call('deleteUser', { params: { id: developer } })).status).toBe(204);
    expect(await membersNow()).toEqual([{ user_id: developer, role: 'viewer' }]);
    // A new user of the same address is another one.
    const again = await api.stores.users.create(
      { email: 'developer@example.com', role: 'developer', password_hash: null },
      Date.now(),
    );
    await api.signIn('developer');
    expect(
      (await api.call('getProject', { as: 'developer', params: { id: hidden.project } })).status,
    ).toBe(404);
    expect(
      (
        await setMembers(hidden.project, [
          ...(await membersNow()),
          { user_id: again.id, role: 'viewer' },
        ] as never)
      ).status,
    ).toBe(200);
    expect(
      (await api.call('getProject', { as: 'developer', params: { id: hidden.project } })).status,
    ).toBe(200);
  });
  test('events of a deleted project stay hidden', async () => {
    await api.call('deleteProject', { params: { id: hidden.project } });
    await api.driver.advance(hidden.deployment, { type: 'project_deleted' }).catch(() => {});
    await api.stores.projects.removeIfGone(hidden.project);
    const seen = async (as: Role) =>
      (await api.call('events', { as, query: { limit: 1000 } })).text.includes('hidden-one');
    expect([await seen('admin'), await seen('developer')]).toEqual([true, false]);
    await api.stores.projects.sweep(Date.now());
    expect(await seen('developer')).toBe(false);
  });
  test('pages of lists are filled with what the caller may see', async () => {
    for (let i = 0; i < 6; i++) {
      const { project } = await target(`team-${i}`);
      if (i % 2 === 0)
        await setMembers(project, [{ user_id: await userId('viewer'), role: 'viewer' }]);
    }
    const pages: string[][] = [];
    for (let cursor: string | null = ''; cursor !== null; ) {
      const reply: Reply = await api.call('listProjects', {
        as: 'developer',
        query: { limit: 2, ...(cursor === '' ? {} : { cursor }) },
      });
      pages.push((reply.json['items'] as { name: string }[]).map(({ name }) => name));
      cursor = reply.json['next_cursor'] as string | null;
    }
    expect(pages).toEqual([
      ['open-one', 'team-1'],
      ['team-3', 'team-5'],
    ]);
    const deployments = await api.call('listDeployments', { as: 'developer', query: { limit: 4 } });
    expect([
      (deployments.json['items'] as unknown[]).length,
      deployments.json['next_cursor'],
    ]).toEqual([4, null]);
  });
  test.each([
    ['few', 3],
    // More than 100: the store reads the list in another way.
    ['many', 103],
  ])(
    'pages of deployments of %s visible projects are those of an admin without the hidden ones',
    async (_, count) => {
      const visible: string[] = [open.project];
      for (let i = 1; i < count; i++)
        visible.push(await createProject(api, { name: `team-${i}`, domain_prefix: `team-${i}` }));
      for (const id of [
        ...visible.slice(0, 3),
        hidden.project,
        ...visible.slice(0, 2),
        hidden.project,
        visible[1] ?? '',
      ])
        expect(
          (await api.call('createDeployment', { as: 'admin', params: { id }, body: {} })).status,
        ).toBe(201);
      const list = async (as: Role, query: object, limit: number): Promise<string[]> => {
        const seen: string[] = [];
        for (let cursor: string | null = ''; cursor !== null; ) {
          const reply: Reply = await api.call('listDeployments', {
            as,
            query: { ...query, limit, ...(cursor === '' ? {} : { cursor }) },
          });
          const items = reply.json['items'] as { id: string; project_id: string }[];
          cursor = reply.json['next_cursor'] as string | null;
          // A page is full until the last one.
          if (as !== 'admin' && cursor !== null) expect(items).toHaveLength(limit);
          seen.push(
            ...items.filter(({ project_id }) => project_id !== hidden.project).map(({ id }) => id),
          );
        }
        return seen;
      };
      for (const query of [{}, { status: 'pending' }, { status: 'superseded' }]) {
        const all = await list('admin', query, 200);
        expect(all.length).toBeGreaterThan(2);
        expect(await list('developer', query, 2)).toEqual(all);
      }
    },
  );
  test('a replayed answer is 404 for a creator who may not see the project any more', async () => {
    const body = { name: 'mine', domain_prefix: 'mine', git_url: 'https://git.example.com/a.git' };
    const create = () =>
      api.call('createProject', { as: 'developer', body, headers: { 'idempotency-key': 'k' } });
    const made = await create();
    expect((await create()).headers['idempotent-replayed']).toBe('true');
    await setMembers(String(made.json['id']), [
      { user_id: await userId('viewer'), role: 'viewer' },
    ]);
    expect((await create()).status).toBe(404);
    const key = { 'idempotency-key': 'd' };
    const again = () =>
      api.call('createDeployment', {
        as: 'developer',
        params: { id: open.project },
        headers: key,
        body: {},
      });
    expect((await again()).status).toBe(201);
    await setMembers(open.project, [{ user_id: await userId('viewer'), role: 'viewer' }]);
    expect((await again()).status).toBe(404);
  });
  test('the replayed answer of a new notification is 404 for a creator who may not see one of its projects any more', async () => {
    const body = {
      name: 'team',
      kind: 'webhook',
      target: 'https://hooks.example.com/x',
      on: ['failed'],
      projects: ['open-one'],
    };
    const create = () =>
      api.call('createNotification', {
        as: 'developer',
        body,
        headers: { 'idempotency-key': 'n' },
      });
    expect((await create()).status).toBe(201);
    expect((await create()).headers['idempotent-replayed']).toBe('true');
    await setMembers(open.project, [{ user_id: await userId('viewer'), role: 'viewer' }]);
    const replayed = await create();
    const gone = await api.call('getNotification', { as: 'developer', params: { id: 'team' } });
    expect([replayed.status, replayed.json['detail']]).toEqual([404, gone.json['detail']]);
  });
  test('deliveries of the time when a notification was about other projects do not name them', async () => {
    const body = {
      name: 'all',
      kind: 'webhook',
      target: 'https://hooks.example.com/x',
      on: ['failed'],
    };
    const { id } = (await api.call('createNotification', { as: 'admin', body })).json as {
      id: string;
    };
    const about = (project: string, title: string): Message => {
      const seen = { title, detail: null, advice: null, path: null, project_ids: [project] };
      const item = {
        kind: 'failed' as const,
        subject: project,
        is_over: false,
        seen,
        opened_at: 1,
        at: 1,
      };
      return { type: 'problem', title, items: [item], total: 1, at: 1 };
    };
    await api.stores.notifications.addTest(
      id,
      about(hidden.project, 'Deployment 1 of hidden-one failed'),
      1,
    );
    await api.stores.notifications.addTest(
      id,
      about(open.project, 'Deployment 1 of open-one failed'),
      1,
    );
    await api.call('patchNotification', {
      as: 'admin',
      params: { id },
      body: { projects: ['open-one'] },
    });
    const titles = async (as: Role): Promise<unknown[]> => {
      const { json } = await api.call('listNotificationDeliveries', { as, params: { id } });
      return (json['items'] as { title: string }[]).map(({ title }) => title);
    };
    expect(await titles('admin')).toEqual([
      'Deployment 1 of open-one failed',
      'Deployment 1 of hidden-one failed',
    ]);
    expect(await titles('developer')).toEqual([
      'Deployment 1 of open-one failed',
      'about projects that you may not see',
    ]);
  });
  test('a list of notifications has those whose projects the caller sees, and none of a deleted project', async () => {
    const make = (name: string, projects: string[]) =>
      api.call('createNotification', {
        as: 'admin',
        body: {
          name,
          kind: 'webhook',
          target: 'https://hooks.example.com/x',
          on: ['failed'],
          projects,
        },
      });
    for (const [name, projects] of [
      ['all', []],
      ['both', ['open-one', 'hidden-one']],
      ['hidden', ['hidden-one']],
      ['open', ['open-one']],
    ] as const)
      expect((await make(name, [...projects])).status).toBe(201);
    const seen = async (as: Input): Promise<string[]> =>
      ((await api.call('listNotifications', as)).json['items'] as { name: string }[]).map(
        ({ name }) => name,
      );
    expect(await seen({ as: 'admin' })).toEqual(['all', 'both', 'hidden', 'open']);
    expect(await seen({ as: 'developer' })).toEqual(['open']);
    expect(await seen(await limitedToken('admin', [hidden.project], 'developer'))).toEqual([
      'hidden',
    ]);
    await api.call('deleteProject', { params: { id: open.project } });
    await api.driver.advance(open.deployment, { type: 'project_deleted' }).catch(() => {});
    await api.stores.projects.removeIfGone(open.project);
    expect(await seen({ as: 'developer' })).toEqual([]);
  });
  test('a dataset names only those of its projects that the caller may see', async () => {
    const dataset = await api.stores.datasets.create(
      { name: 'photos', nfs_path: 'photos' },
      Date.now(),
    );
    const datasets = [{ dataset_id: dataset.id, mode: 'dependency' }];
    for (const { project } of [open, hidden])
      await api.call('patchProject', { as: 'admin', params: { id: project }, body: { datasets } });
    const reply = await api.call('deleteDataset', { as: 'developer', params: { id: dataset.id } });
    expect(reply.json).toMatchObject({ code: 'dataset_in_use' });
    expect(reply.json['detail']).toContain('project open-one, 1 project that you may not see');
  });
});

describe('tokens that are limited to projects', () => {
  beforeEach(async () => {
    await start();
    return () => api.close();
  });
  test.each([
    [{ projects: [] }, 'projects:min_items'],
    [{ projects: ['nothing'] }, 'projects[0]:exists'],
    [{ projects: ['hidden-one'] }, 'projects[0]:exists'],
    [{ projects: ['open-one'], role: 'admin' }, 'role:above_own'],
  ])('%j is 422', async (more, rule) => {
    const body = {
      name: 'ci',
      role: 'viewer',
      expires_at: new Date(Date.now() + 86_400_000).toISOString(),
      ...more,
    };
    expect(rulesOf(await api.call('createToken', { as: 'developer', body }))).toEqual([rule]);
  });
  test('see nothing after their projects are deleted', async () => {
    const token = await limitedToken('admin', ['hidden-one'], 'developer');
    expect((await api.call('listProjects', token)).json['items']).toHaveLength(1);
    await api.call('deleteProject', { params: { id: hidden.project } });
    await api.stores.projects.removeIfGone(hidden.project);
    expect((await api.call('getProject', { ...token, params: { id: 'open-one' } })).status).toBe(
      404,
    );
    expect((await api.call('listProjects', token)).text).not.toContain('open-one');
  });
  test('lose what their owner loses', async () => {
    const token = await limitedToken('developer', ['open-one']);
    expect((await api.call('getProject', { ...token, params: { id: 'open-one' } })).status).toBe(
      200,
    );
    await setMembers(open.project, [{ user_id: await userId('viewer'), role: 'viewer' }]);
    expect((await api.call('getProject', { ...token, params: { id: 'open-one' } })).status).toBe(
      404,
    );
  });
  test('do not list tokens', async () => {
    expect(
      (await api.call('listTokens', await limitedToken('developer', ['open-one']))).status,
    ).toBe(403);
  });
});

describe('open streams', () => {
  beforeAll(start, 120_000);
  afterAll(() => api.close());

  /**
   * Opens a stream of the route, takes the right away, and returns what the stream sent after that
   * and whether it ended.
   */
  onceOnly.each(inScope('project', 'deployment').filter((name) => row(name).streams === true))(
    '%s ends when the rights end',
    async (name) => {
      await setMembers(hidden.project, [{ user_id: await userId('viewer'), role: 'viewer' }]);
      await api.server.listen({ port: 0, host: '127.0.0.1' }).catch(() => {});
      const { port } = api.server.server.address() as AddressInfo;
      const path = row(name).path.replace(
        ':id',
        row(name).scope === 'deployment' ? hidden.deployment : hidden.project,
      );
      const headers = {
        authorization: `Bearer ${api.token('viewer')}`,
        accept: 'text/event-stream',
      };
      const ended = await new Promise<boolean>((resolve, reject) => {
        const request = httpRequest({ port, path, headers }, (response) => {
          expect(response.statusCode).toBe(200);
          response.once('end', () => resolve(true)).resume();
          void setMembers(hidden.project, [{ user_id: 'gone', role: 'viewer' }]).then(async () => {
            await setMembers(hidden.project, [
              { user_id: await userId('developer'), role: 'viewer' },
            ]);
          });
        });
        request.once('error', reject).end();
      });
      expect(ended).toBe(true);
    },
    60_000,
  );
  test('the stream of events leaves out a project from the moment on at which the rights end', async () => {
    const member = { user_id: await userId('viewer'), role: 'viewer' };
    await setMembers(hidden.project, [member]);
    await api.server.listen({ port: 0, host: '127.0.0.1' }).catch(() => {});
    const { port } = api.server.server.address() as AddressInfo;
    const headers = { authorization: `Bearer ${api.token('viewer')}`, accept: 'text/event-stream' };
    const text = await new Promise<string>((resolve, reject) => {
      let seen = '';
      const request = httpRequest({ port, path: '/api/events', headers }, (response) => {
        response.on('data', (chunk: Buffer) => {
          seen += chunk.toString();
          if (!seen.includes('project open-one changed')) return;
          request.destroy();
          resolve(seen);
        });
        void (async () => {
          const patch = (id: string, body: object) =>
            api.call('patchProject', { as: 'admin', params: { id }, body });
          await setMembers(hidden.project, [
            { user_id: await userId('developer'), role: 'viewer' },
          ]);
          await patch(hidden.project, { branch: 'secret-branch' });
          await patch(open.project, { branch: 'main' });
        })();
      });
      request.once('error', (error) => reject(error)).end();
    });
    expect(text).not.toContain(hidden.project);
  }, 60_000);
});
