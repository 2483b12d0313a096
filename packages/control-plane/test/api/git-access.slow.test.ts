/**
 * Deploy keys, git tokens, trusted host keys and build settings, through the API and as an agent
 * gets them.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { BUILD_SETTINGS, GIT_ACCESS, type GitAccess } from '@berth/wire/git';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Api, createApi, type Reply, tick, onceOnly } from './harness.ts';

const SSH = 'git@git.example.org:team/shop.git';
const HTTPS = 'https://git.example.org/team/shop.git';
const TOKEN = 'glpat-canary-0123456789';
const FP = (char: string): string => `SHA256:${char.repeat(43)}`;

let api: Api;
beforeEach(async () => {
  api = await createApi();
});
afterEach(() => api.close());

async function project(git_url: string, over: Record<string, unknown> = {}): Promise<string> {
  const { status, json } = await api.call('createProject', {
    body: { name: 'shop', git_url, domain_prefix: 'shop', ...over },
  });
  expect(status).toBe(201);
  return json['id'] as string;
}
async function builder(
  capabilities: string[] | null = [GIT_ACCESS, BUILD_SETTINGS],
  hostname = 'b1',
): Promise<string> {
  const body = {
    hostname,
    role: 'builder',
    host_ip: '10.0.0.9',
    max_storage: 1e12,
    ...(capabilities === null ? {} : { agent_version: '1', capabilities }),
  };
  return (await api.call('agentRegister', { body })).json['id'] as string;
}
/** Requests a deployment and lets the scheduler look at it. */
async function deploy(id: string): Promise<Reply> {
  const { json } = await api.call('createDeployment', { params: { id }, body: {} });
  await tick(api, json['id'] as string);
  return api.call('getDeployment', { params: { id: json['id'] as string } });
}
async function claim(
  node_id: string,
): Promise<{ task: Record<string, unknown>; git: GitAccess | undefined }> {
  const { text } = await api.call('agentTasks', { query: { node_id } });
  const [task] = JSON.parse(text) as Record<string, unknown>[];
  if (task === undefined) throw new Error('no task');
  const { json } = await api.call('agentStart', { params: { id: task['id'] as string } });
  return { task, git: json['git'] as GitAccess | undefined };
}
const events = async (): Promise<string[]> =>
  ((await api.call('events')).json['items'] as { kind: string; message: string }[]).map(
    (e) => `${e.kind} ${e.message}`,
  );

describe('a deploy key', () => {
  it('is a key that OpenSSH reads, of which the API returns only the public part', async () => {
    const id = await project(SSH);
    const created = await api.call('createDeployKey', { params: { id: 'shop' } });
    expect(created).toMatchObject({
      status: 201,
      headers: { location: `/api/projects/${id}/deploy-key` },
    });
    expect(Object.keys(created.json).sort()).toEqual(['created_at', 'fingerprint', 'public_key']);
    expect((await api.call('getDeployKey', { params: { id }, as: 'viewer' })).json).toEqual(
      created.json,
    );

    const node = await builder();
    await deploy(id);
    const { git, task } = await claim(node);
    expect(git?.deploy_key?.fingerprint).toBe(created.json['fingerprint']);
    expect(JSON.stringify(task)).not.toContain('PRIVATE');
    const dir = await mkdtemp(join(tmpdir(), 'berth-key-'));
    try {
      const path = join(dir, 'key');
      await writeFile(path, git?.deploy_key?.private_key ?? '', { mode: 0o600 });
      const run = promisify(execFile);
      expect((await run('ssh-keygen', ['-y', '-P', '', '-f', path])).stdout.trim()).toBe(
        created.json['public_key'],
      );
      expect((await run('ssh-keygen', ['-l', '-f', path])).stdout).toContain(
        created.json['fingerprint'],
      );
    } finally {
      await rm(dir, { recursive: true });
    }
  });

  it('is replaced by a repeated call and ends with DELETE', async () => {
    const id = await project(SSH);
    const first = await api.call('createDeployKey', { params: { id } });
    const second = await api.call('createDeployKey', { params: { id } });
    expect(second.json['fingerprint']).not.toBe(first.json['fingerprint']);
    expect((await api.call('getDeployKey', { params: { id } })).json).toEqual(second.json);
    expect((await api.call('deleteDeployKey', { params: { id } })).status).toBe(204);
    expect((await api.call('getDeployKey', { params: { id } })).status).toBe(404);
    expect((await api.call('deleteDeployKey', { params: { id } })).status).toBe(404);
    expect(await events()).toContain(
      'project.deploy_key_deleted project shop: deploy key deleted: ' +
        (second.json['fingerprint'] as string),
    );
  });

  it('is sealed for its project: the private key is in no column, and a copied row opens in no other project', async () => {
    const id = await project(SSH);
    await api.call('createDeployKey', { params: { id } });
    const other = (
      await api.call('createProject', {
        body: { name: 'other', git_url: SSH, domain_prefix: 'other' },
      })
    ).json['id'] as string;
    const stolen = await api.stores.deployKeys.get(id);
    if (stolen === null) throw new Error('no key');
    expect(stolen.sealed).not.toContain('PRIVATE');
    await api.stores.deployKeys.put({ ...stolen, project_id: other });
    const node = await builder();
    await deploy(other);
    const { text } = await api.call('agentTasks', { query: { node_id: node } });
    const [task] = JSON.parse(text) as { id: string }[];
    expect((await api.call('agentStart', { params: { id: task?.id ?? '' } })).json['code']).toBe(
      'secrets_locked',
    );
  });

  it('needs a developer', async () => {
    const id = await project(SSH);
    for (const name of ['createDeployKey', 'deleteDeployKey', 'deleteGitToken'] as const)
      expect((await api.call(name, { params: { id }, as: 'viewer' })).status).toBe(403);
  });
});

describe('a git token', () => {
  const set = (id: string, body: Record<string, unknown> = { token: TOKEN }): Promise<Reply> =>
    api.call('putGitToken', { params: { id }, body });

  it('is returned to nobody and reaches the builder only with the claim', async () => {
    const id = await project(HTTPS);
    const answer = await set(id, {
      token: TOKEN,
      username: 'bot',
      api_url: 'https://git.example.org/api/v1',
    });
    expect(answer.json).toMatchObject({
      host: 'git.example.org',
      username: 'bot',
      api_url: 'https://git.example.org/api/v1',
    });
    const read = await api.call('getGitToken', { params: { id }, as: 'admin' });
    const node = await builder();
    const deployment = await deploy(id);
    const { git, task } = await claim(node);
    expect(git?.token).toEqual({ host: 'git.example.org', username: 'bot', token: TOKEN });
    for (const shown of [
      answer.text,
      read.text,
      deployment.text,
      JSON.stringify(task),
      (await events()).join(),
    ])
      expect(shown).not.toContain(TOKEN);
  });

  onceOnly.each([
    ['http', 'http://git.example.org/team/shop.git', { field: 'token', rule: 'https' }],
  ])('is refused for an %s address', async (_, url, problem) => {
    const answer = await set(await project(url));
    expect(answer.status).toBe(422);
    expect(answer.json['errors']).toMatchObject([problem]);
  });

  onceOnly.each([
    'http://api.example.org',
    'ftp://x',
    'https://u:p@api.example.org',
    'https://api.example.org/?x=1',
    'nonsense',
  ])('is refused with the api_url %s', async (api_url) => {
    expect(
      (await set(await project(HTTPS), { token: TOKEN, api_url })).json['errors'],
    ).toMatchObject([{ field: 'api_url' }]);
  });

  onceOnly.each([
    { token: '' },
    { token: 'a b' },
    { token: 'a\nb' },
    { token: TOKEN, username: 'a:b' },
    { token: TOKEN, more: 1 },
  ])('is refused as %j', async (body) => {
    const answer = await set(await project(HTTPS), body);
    expect(answer.status).toBe(422);
    expect(answer.text).not.toContain(TOKEN);
  });

  it('is deleted when the project moves to another host, with an event, and stays on the same host', async () => {
    const id = await project('https://git.example.org:8443/a.git');
    const patch = (git_url: string): Promise<Reply> =>
      api.call('patchProject', { params: { id }, body: { git_url } });
    await set(id);
    await patch('https://git.example.org:8443/b.git');
    await patch('git@git.example.org:b.git');
    expect((await api.call('getGitToken', { params: { id } })).status).toBe(200);
    const http = await patch('http://git.example.org/b.git');
    expect(http.status).toBe(422);
    expect(http.json['errors']).toMatchObject([{ field: 'git_url', rule: 'https' }]);
    await patch('https://git.example.org:9443/b.git');
    expect((await api.call('getGitToken', { params: { id } })).status).toBe(404);
    expect((await events()).join('\n')).toContain(
      'project.git_token_deleted project shop: git token for git.example.org:8443 deleted, ' +
        'because git_url has another host now: https://git.example.org:9443/b.git',
    );
  });

  it('does not go to another host than the one that it was set for', async () => {
    const move = async (id: string): Promise<void> => {
      const body = { git_url: 'https://git.evil.example/team/shop.git' };
      expect((await api.call('patchProject', { params: { id }, body })).status).toBe(200);
    };
    let during = async (_id: string): Promise<void> => undefined;
    await api.close();
    api = await createApi({
      stores: (real) => ({
        ...real,
        gitTokens: {
          ...real.gitTokens,
          async put(...given) {
            await during(given[0].project_id);
            return real.gitTokens.put(...given);
          },
        },
      }),
    });
    const id = await project(HTTPS);
    const etag = String(
      (await api.call('getProject', { params: { id }, as: 'developer' })).headers['etag'],
    );
    const put = (headers: Record<string, string> = {}) =>
      api.call('putGitToken', { params: { id }, body: { token: TOKEN }, headers });
    during = move;
    const moved = await put();
    expect([moved.status, moved.json['code']]).toEqual([409, 'wrong_state']);
    expect(moved.json['detail']).toContain('git.evil.example');
    during = async () => undefined;
    // The person read the project before it moved.
    expect((await put({ 'if-match': etag })).status).toBe(412);
    expect((await api.call('getGitToken', { params: { id } })).status).toBe(404);
    const present = String(
      (await api.call('getProject', { params: { id }, as: 'developer' })).headers['etag'],
    );
    expect((await put({ 'if-match': present })).json['host']).toBe('git.evil.example');
  });
  it('does not reach a build of an earlier address', async () => {
    const id = await project(HTTPS);
    const node = await builder();
    await deploy(id);
    await api.call('patchProject', {
      params: { id },
      body: { git_url: 'https://other.example.org/team/shop.git' },
    });
    await set(id);
    expect((await claim(node)).git?.token).toBeUndefined();
  });
});

describe('an agent that cannot use them', () => {
  it.each([
    ['a contract-only agent', null, 'it implements only the contract'],
    ['an earlier agent', ['node_secret'], 'it is of an earlier version; update it'],
  ])('%s fails the deployment before anything starts', async (_, capabilities, why) => {
    const id = await project(SSH, { build_target: 'web', submodules: false });
    await api.call('createDeployKey', { params: { id } });
    await builder(capabilities);
    const { json } = await deploy(id);
    expect(json).toMatchObject({ status: 'failed', error: { code: 'agent_cannot' } });
    const { message } = json['error'] as { message: string };
    expect(message).toContain(
      'its agent cannot use the deploy key of the project or apply build_target, submodules',
    );
    expect(message).toContain(why);
  });

  it('gets no access in the answer to its claim, and its payload is the one of before', async () => {
    const id = await project(HTTPS);
    const node = await builder(null);
    await deploy(id);
    const { git, task } = await claim(node);
    expect(git).toBeUndefined();
    expect(Object.keys(task['payload'] as object).sort()).toEqual(
      [
        'allowed_git_hosts',
        'branch',
        'commit',
        'dockerfile_path',
        'git_url',
        'image_repository',
        'project',
        'project_id',
      ].sort(),
    );
  });

  it('is passed over for one that can', async () => {
    const id = await project(SSH);
    await api.call('createDeployKey', { params: { id } });
    await builder(null, 'a-old');
    const able = await builder([GIT_ACCESS], 'z-new');
    await deploy(id);
    expect((await claim(able)).git?.deploy_key).toBeDefined();
  });
});

describe('a git host', () => {
  const trust = (
    host: string,
    fingerprint: string,
    more: Record<string, unknown> = {},
  ): Promise<Reply> => api.call('putGitHost', { params: { host }, body: { fingerprint, ...more } });

  it('of the known forges is pinned, for every builder', async () => {
    const { json } = await api.call('listGitHosts', { as: 'viewer' });
    const hosts = json['items'] as { host: string; keys: { source: string }[] }[];
    expect(hosts.map((h) => h.host)).toEqual([
      'bitbucket.org',
      'codeberg.org',
      'github.com',
      'gitlab.com',
    ]);
    expect(hosts.every((h) => h.keys.every((key) => key.source === 'berth'))).toBe(true);
    const id = await project(SSH);
    const node = await builder();
    await deploy(id);
    const { git } = await claim(node);
    expect(git?.hosts.find((h) => h.host === 'github.com')?.fingerprints).toContain(
      'SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU',
    );
    expect(git?.hosts.some((h) => h.host === 'git.example.org')).toBe(false);
  });

  it('is trusted by an admin only', async () => {
    expect(
      (
        await api.call('putGitHost', {
          params: { host: 'h' },
          body: { fingerprint: FP('a') },
          as: 'developer',
        })
      ).status,
    ).toBe(403);
    expect((await trust('Git.Example.org:22', FP('a'))).json).toMatchObject({
      host: 'git.example.org',
      keys: [
        { fingerprint: FP('a'), key_type: null, source: 'admin', added_by: 'admin@example.com' },
      ],
    });
    expect((await trust('git.example.org:2222', FP('b'))).json['host']).toBe(
      'git.example.org:2222',
    );
    expect((await api.call('deleteGitHost', { params: { host: 'git.example.org' } })).status).toBe(
      204,
    );
    expect((await api.call('getGitHost', { params: { host: 'git.example.org' } })).status).toBe(
      404,
    );
    expect(
      (await api.call('getGitHost', { params: { host: 'git.example.org:2222' } })).status,
    ).toBe(200);
  });

  onceOnly.each(['-oProxyCommand=x', 'a b', 'a:0', 'a:99999', 'a/b', 'user@host', '[::1'])(
    'is refused as %s',
    async (host) => {
      expect((await trust(host, FP('a'))).json['errors']).toMatchObject([{ field: 'host' }]);
    },
  );
  onceOnly.each(['SHA256:short', `MD5:${'a'.repeat(43)}`, FP('!')])(
    'is refused with the fingerprint %s',
    async (fingerprint) => {
      expect((await trust('h', fingerprint)).status).toBe(422);
    },
  );

  it('has one key of each type: a new one replaces the old one, also a pinned one', async () => {
    await trust('h', FP('a'), { key_type: 'ssh-ed25519' });
    await trust('h', FP('b'), { key_type: 'ssh-rsa' });
    const { json } = await trust('h', FP('c'), { key_type: 'ssh-ed25519' });
    expect(
      (json['keys'] as { fingerprint: string }[]).map((key) => key.fingerprint).sort(),
    ).toEqual([FP('b'), FP('c')]);
    expect((await events()).at(-1)).toBe(
      `git_host.trusted host key ${FP('c')} of h is trusted now; it replaces ${FP('a')}`,
    );
    const github = (await trust('github.com', FP('d'), { key_type: 'ssh-ed25519' })).json[
      'keys'
    ] as {
      fingerprint: string;
      source: string;
    }[];
    expect(github.filter((key) => key.source === 'berth')).toHaveLength(2);
    await api.call('deleteGitHost', { params: { host: 'github.com' } });
    expect(
      ((await api.call('getGitHost', { params: { host: 'github.com' } })).json['keys'] as unknown[])
        .length,
    ).toBe(3);
  });

  it('shows what it presented to a builder, and takes the type of the key from there', async () => {
    const id = await project(SSH);
    const node = await builder();
    await trust('git.example.org', FP('a'));
    await deploy(id);
    const { task } = await claim(node);
    const seen = (fingerprint: string, key_type: string) => ({
      host: 'git.example.org',
      fingerprint,
      key_type,
    });
    const host_keys = [seen(FP('a'), 'ssh-rsa'), seen(FP('b'), 'ssh-ed25519')];
    const claimed = await api.stores.tasks.get(task['id'] as string);
    const headers = { 'x-lease-token': String(claimed.lease_token) };
    const body = {
      status: 'failed',
      result: { error: { code: 'git_host_changed', message: 'x' } },
      host_keys,
    };
    expect(
      (await api.call('agentComplete', { params: { id: claimed.id }, headers, body })).status,
    ).toBe(200);
    const { json } = await api.call('getGitHost', { params: { host: 'git.example.org' } });
    expect(json).toMatchObject({
      keys: [{ fingerprint: FP('a'), key_type: 'ssh-rsa' }],
      presented: [{ fingerprint: FP('b'), key_type: 'ssh-ed25519' }],
    });
    expect((await trust('git.example.org', FP('b'))).json).toMatchObject({
      keys: [{}, { key_type: 'ssh-ed25519' }],
      presented: [],
    });
  });
});

describe('host keys that a builder trusted before', () => {
  const send = (node_id: string, keys: unknown[]): Promise<Reply> =>
    api.call('agentKnownHosts', { query: { node_id }, body: { keys } });
  const key = (host: string, char: string) => ({
    host,
    key_type: 'ssh-ed25519',
    fingerprint: FP(char),
  });

  it('are not taken from a builder that joined later', async () => {
    const node = await builder();
    expect((await send(node, [key('evil.example.org', 'e')])).json).toEqual({ imported: 0 });
    expect((await api.call('getGitHost', { params: { host: 'evil.example.org' } })).status).toBe(
      404,
    );
  });
});

describe('build settings', () => {
  it('have defaults, are merged by key and hidden from viewers', async () => {
    const id = await project(HTTPS);
    const get = async (as: 'viewer' | 'developer'): Promise<Record<string, unknown>> =>
      (await api.call('getProject', { params: { id }, as })).json;
    expect(await get('developer')).toMatchObject({
      build_context: '.',
      build_target: null,
      build_args: {},
      submodules: true,
    });
    await api.call('patchProject', { params: { id }, body: { build_args: { A: '1', B: '2' } } });
    await api.call('patchProject', {
      params: { id },
      body: {
        build_args: { A: null, C: '3' },
        build_context: 'app',
        build_target: 'web',
        submodules: false,
      },
    });
    expect(await get('developer')).toMatchObject({
      build_args: { B: '2', C: '3' },
      build_context: 'app',
      build_target: 'web',
      submodules: false,
    });
    const seen = await get('viewer');
    expect(seen).toMatchObject({ build_arg_names: ['B', 'C'] });
    expect(seen).not.toHaveProperty('build_args');
  });

  onceOnly.each([
    [{ build_context: '../x' }, 'build_context', 'no_parent'],
    [{ build_context: '/x' }, 'build_context', 'relative'],
    [{ build_context: '-x' }, 'build_context', 'no_leading_dash'],
    [{ build_context: 'a\\b' }, 'build_context', 'no_backslash'],
    [{ build_context: ' ' }, 'build_context', 'folder'],
    [{ build_target: '--push' }, 'build_target', 'pattern'],
    [
      { build_args: { BUILDKIT_SYNTAX: 'evil/frontend' } },
      'build_args.BUILDKIT_SYNTAX',
      'reserved',
    ],
    [{ build_args: { BERTH_SECRET_NPM: 'x' } }, 'build_args.BERTH_SECRET_NPM', 'reserved'],
    [
      { build_args: { buildkit_cache_mount_ns: 'x' } },
      'build_args.buildkit_cache_mount_ns',
      'reserved',
    ],
    [{ build_args: { 'A-B': 'x' } }, 'build_args.A-B', 'env_name'],
    [
      { build_args: Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`A${i}`, ''])) },
      'build_args',
      'max_properties',
    ],
    [
      {
        build_args: Object.fromEntries(
          Array.from({ length: 5 }, (_, i) => [`A${i}`, 'x'.repeat(32_000)]),
        ),
      },
      'build_args',
      'max_bytes',
    ],
  ])('%j are refused', async (body, field, rule) => {
    const id = await project(HTTPS);
    const answer = await api.call('patchProject', { params: { id }, body });
    expect(answer.status).toBe(422);
    expect(answer.json['errors']).toMatchObject([{ field, rule }]);
  });

  it('go to the builder with the settings of the deployment, and only those that are set', async () => {
    const id = await project(HTTPS, { build_context: './app/', build_args: { V: '1' } });
    const node = await builder();
    await deploy(id);
    const { task } = await claim(node);
    expect(task['payload']).toMatchObject({ build_context: './app/', build_args: { V: '1' } });
    expect(task['payload']).not.toHaveProperty('build_target');
    expect(task['payload']).not.toHaveProperty('submodules');
  });
});
