/**
 * Every verb: its help with an example, its exit code for each kind of failure, and --json as the
 * only thing on stdout.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createWorld, type World } from '../../control-plane/test/api/deployed.ts';
import type { Api } from '../../control-plane/test/api/harness.ts';
import { EXAMPLES } from '../src/commands/examples.ts';
import { COMMANDS } from '../src/commands/table.ts';
import { ADMIN, PASSWORD, type Person, person, serveOnce, signedIn } from './support.ts';

const share = mkdtempSync(join(tmpdir(), 'berth-share-'));
const served = serveOnce({
  env: { DATASET_NFS_BASE_PATH: share, ALLOWED_NOTIFY_HOSTS: '127.0.0.1' },
});
afterAll(() => rmSync(share, { recursive: true }));

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/**
 * The arguments of the example: without the program before a pipe and without a file for standard
 * input.
 */
function argvOf(name: string): string[] {
  const [line = ''] = EXAMPLES[name] ?? [];
  const command = /berth (?!.*\bberth )([^<)]*)/.exec(line)?.[1] ?? '';
  return [...command.matchAll(/"([^"]*)"|(\S+)/g)].map(
    ([, quoted, plain]) => quoted ?? plain ?? '',
  );
}
/** Adds options before the `--` of a command that runs another one. */
function withOptions(name: string, ...options: readonly string[]): string[] {
  const argv = argvOf(name);
  const at = argv.includes('--') ? argv.indexOf('--') : argv.length;
  return argv.toSpliced(at, 0, ...options);
}
const LOCAL = ['context list', 'context use', 'context remove', 'completion'];
/** They sign in or out, or run until a key is pressed. */
const OWN = ['login', 'logout', 'mcp'];
const remote = COMMANDS.filter(({ routes }) => routes.length > 0)
  .map((c) => c.name)
  .filter((name) => !LOCAL.includes(name) && !OWN.includes(name));

test('every command has an example that begins with it, and no example is left over', () => {
  expect(Object.keys(EXAMPLES).toSorted()).toEqual(COMMANDS.map((c) => c.name).toSorted());
  for (const name of Object.keys(EXAMPLES))
    expect(`${argvOf(name).join(' ')} `, name).toContain(`${name} `);
});

test.each(COMMANDS)(
  'berth $name --help shows what it does and the example',
  async ({ name, summary }) => {
    const [line = '', meaning = ''] = EXAMPLES[name] ?? [];
    const { code, out } = await person().berth([...name.split(' '), '--help']);
    expect(code).toBe(0);
    expect(out.replaceAll(/\s+/g, ' ')).toContain(summary.replaceAll(/\s+/g, ' '));
    expect(out).toContain(line);
    expect(out).toContain(meaning);
  },
);

describe('exit codes', () => {
  /** Answers everything with one problem. */
  const refusing = (status: number, code: string): Promise<string> =>
    listening(
      createServer((_request, reply) => {
        reply.writeHead(status, { 'content-type': 'application/problem+json' });
        reply.end(JSON.stringify({ type: 'about:blank', title: 'No', status, detail: 'no', code }));
      }),
    );

  const NOBODY = async (): Promise<string> => 'http://127.0.0.1:9';

  test.each([
    ['nobody listens', 3, NOBODY],
    ['401', 4, () => refusing(401, 'unauthenticated')],
    ['403', 4, () => refusing(403, 'forbidden')],
    ['404', 1, () => refusing(404, 'not_found')],
    ['503', 3, () => refusing(503, 'unavailable')],
  ] as const)(
    '%s: every verb exits with %i and prints one problem document on stderr alone',
    { timeout: 60_000 },
    async (_, exit, at) => {
      const env = { BERTH_URL: await at(), BERTH_TOKEN: 'berthpat_x' };
      const who = person();
      writeFileSync(join(who.cwd, '.env'), 'A=1\n');
      for (const name of remote) {
        const given = { env, stdin: 'value\nvalue', sleep: async () => undefined };
        const yes = (COMMANDS.find((c) => c.name === name)?.options ?? []).some((o) =>
          o.flags.includes('--yes'),
        )
          ? ['--yes']
          : [];
        const json = await who.berth(withOptions(name, ...yes, '--json'), given);
        expect({ name, code: json.code, out: json.out }, json.err).toEqual({
          name,
          code: exit,
          out: '',
        });
        expect(JSON.parse(json.err), name).toMatchObject({
          exit_code: exit,
          code: expect.any(String),
        });
        if (at !== NOBODY) continue;
        const text = await who.berth(withOptions(name, ...yes), given);
        expect({ name, code: text.code, out: text.out }).toEqual({ name, code: exit, out: '' });
        expect(text.err, name).toMatch(/^berth: \S/m);
      }
    },
  );

  test('a wrong option: every verb exits with 2', async () => {
    const env = { BERTH_URL: 'http://127.0.0.1:9', BERTH_TOKEN: 'berthpat_x' };
    for (const { name } of COMMANDS) {
      const { code, out, err } = await person().berth(withOptions(name, '--nonsense', '--json'), {
        env,
      });
      expect({ name, code, out }).toEqual({ name, code: 2, out: '' });
      expect(JSON.parse(err), name).toMatchObject({ code: 'usage', exit_code: 2 });
    }
  });
});

describe('--json', () => {
  let who: Person;
  let world: World;
  beforeAll(async () => {
    who = await signedIn(served.url);
    world = await createWorld(served.api);
  }, 60_000);
  const done = new Set<string>();

  /** Runs a command and returns its objects. stdout has nothing else. */
  async function run(
    line: string,
    given: Parameters<Person['berth']>[1] & { by?: Person } = {},
  ): Promise<Record<string, unknown>> {
    const argv = line.split(' ');
    const { code, out, err } = await (given.by ?? who).berth([...argv, '--json'], given);
    expect({ line, code, err }).toEqual({ line, code: 0, err: '' });
    const objects = out
      .trimEnd()
      .split('\n')
      .filter((text) => text !== '')
      .map((text) => JSON.parse(text) as Record<string, unknown>);
    for (const name of COMMANDS.map((c) => c.name))
      if (`${line} `.startsWith(`${name} `)) done.add(name);
    return objects.at(-1) ?? {};
  }
  const call = async (...given: Parameters<Api['call']>): Promise<Record<string, unknown>> =>
    (await served.api.call(...given)).json;

  test('every verb prints JSON and nothing else', { timeout: 60_000 }, async () => {
    const stdin = { stdin: 'value' };
    const shop = String(
      (
        await run(
          'project create shop --git-url https://git.example.com/shop.git --drain-seconds 0 ' +
            '--no-link',
        )
      )['id'],
    );
    for (const line of [
      'project list',
      'project look https://git.example.com/shop.git',
      'project look --project shop',
      'project show shop',
      'project edit shop --cpus 1',
      'process set worker --project shop --count 2 --replace rolling',
      'process list shop',
      'process remove worker --project shop --yes',
      'link shop',
      'placement shop',
      'whoami',
      'version',
    ])
      await run(line);
    await run('env set MODE --project shop', stdin);
    await run('env set KEY --project shop', stdin);
    await run('secret import KEY --project shop');
    await run('env import - --project shop', { stdin: 'COLOR=blue\n' });
    for (const line of [
      'env list shop',
      'env unset MODE --project shop',
      'secret list shop',
      'secret show KEY --project shop',
    ])
      await run(line);
    await run('secret set OTHER --project shop', stdin);
    await run('secret unset OTHER --yes --project shop');
    for (const line of [
      'deploy-key create shop',
      'deploy-key show shop',
      'deploy-key delete shop --yes',
    ])
      await run(line);
    await run('git-token set shop', stdin);
    for (const line of ['git-token show shop', 'git-token delete shop --yes']) await run(line);
    const key = 'SHA256:uNiVztksCsDhcc0u9e8BrVMM0KnSuPSLXyA8TfPl5eQ';
    for (const line of [
      `git-host trust git.example.com ${key} --type ssh-ed25519`,
      'git-host show git.example.com',
      'git-host list',
      'git-host delete git.example.com --yes',
    ])
      await run(line);

    for (const line of [
      'add www.shop.example --project shop',
      'list shop',
      'remove www.shop.example --yes --project shop',
      'check shop',
    ])
      await run(`domain ${line}`);

    await run('notification create team --kind webhook --on failed,recovered --projects shop', {
      stdin: await listening(createServer((_request, reply) => reply.end())),
    });
    for (const line of [
      'list',
      'show team',
      'edit team --on failed',
      'test team',
      'deliveries team',
      'delete team --yes',
    ])
      await run(`notification ${line}`);

    const first = await world.live(shop);
    await world.live(shop);
    for (const line of [
      'status shop',
      'status --all',
      'logs shop',
      'open shop',
      'deployment list shop',
      `deployment show ${first}`,
      'events',
      'events --limit 1',
      'metrics shop',
      'ps shop',
      'ps --all',
      'scale web=1 --project shop',
      'placement shop --instances',
      'clean-up',
    ])
      await run(line);
    await run(`deployment watch ${first}`);
    await run('deployment watch --project shop');
    const back = String((await run('rollback shop --detach'))['deployment_id']);
    await run(`cancel ${back}`);
    await run(`deploy shop --detach`);
    await run('cancel shop');
    for (const line of [
      'restart shop --detach',
      'cancel shop',
      'stop shop',
      'start shop --detach',
      'cancel shop',
    ])
      await run(line);

    const hook = await run('hook create shop --forge generic');
    await call('receiveHook', {
      params: { id: shop },
      headers: { authorization: `Bearer ${String(hook['secret'])}` },
      as: null,
      body: {},
    });
    const { items } = (await run('hook deliveries shop')) as { items: { id: string }[] };
    for (const line of [
      'hook show shop',
      `hook delivery ${items[0]?.id} --project shop`,
      `hook redeliver ${items[0]?.id} --project shop`,
      'hook delete shop --yes',
    ])
      await run(line);

    for (const line of [
      'node list',
      'node show node-1',
      'node cordon node-1',
      'node uncordon node-1',
      'node label node-1 zone=a',
      'node label node-1 zone-',
      'node cache node-1',
      'node disk node-1',
      'node volumes node-1',
      `node reset-secret ${world.home}`,
    ])
      await run(line);
    const made = await run('node join-token --role builder');
    for (const line of ['node join-token list', `node join-token delete ${String(made['id'])}`])
      await run(line);
    const admission = await run('node admission create --hostname node-9 --role deploy');
    for (const line of ['node admission list', `node admission delete ${String(admission['id'])}`])
      await run(line);
    for (const line of ['config check', 'config show shop']) await run(line);
    // Runs and jobs need an agent.
    for (const { name } of COMMANDS) if (/^(run|runs|job)\b/.test(name)) done.add(name);
    mkdirSync(join(share, 'prices'));
    await run('dataset create prices --nfs-path prices');
    for (const line of [
      'dataset list',
      'dataset show prices',
      'dataset edit prices --name tariffs',
      'dataset versions tariffs',
      'dataset history tariffs',
      'dataset scan tariffs',
    ])
      await run(line);
    await run('node drain node-1');

    await run('user create ada@example.com --role developer --password', { stdin: PASSWORD });
    for (const line of [
      'user list',
      'user show ada@example.com',
      'user edit ada@example.com --role viewer',
    ])
      await run(line);
    for (const line of ['list', 'add ada@example.com', 'remove ada@example.com --yes'])
      await run(`project members ${line} --project shop`);
    const ada = person();
    await run(`login ${served.url} --email ada@example.com`, { by: ada, stdin: PASSWORD });
    const { host } = new URL(served.url);
    for (const line of ['context list', `context use ${host}`, 'completion bash'])
      await run(line, { by: ada });
    await run('user password', { by: ada, stdin: `${PASSWORD}\n${PASSWORD} new` });
    await run(`login ${served.url} --email ada@example.com`, { by: ada, stdin: `${PASSWORD} new` });
    await run('logout', { by: ada });
    await run(`login ${served.url} --email ada@example.com`, { by: ada, stdin: `${PASSWORD} new` });
    await run(`context remove ${host}`, { by: ada });
    await run('user delete ada@example.com --yes');
    const token = await run('token create ci');
    for (const line of [
      'token list',
      `token delete ${String(token['id'])}`,
      'device list',
      'audit',
    ])
      await run(line);
    await run('dataset delete tariffs --yes');
    await run('node delete node-1 --yes --force yes');
    await run('project delete shop --yes');

    // mcp speaks its own protocol; device delete needs a gateway (e2e); prewarm and diff
    // (dataset-diff.test.ts) need versions of a dataset, the deletion of volumes a node with some
    // (e2e), `node removed` a contract-only node (contract-only.test.ts), and `domain free` a host
    // that a project gave up (domains.test.ts), `failover` a node that is silent (failover.test.ts).
    // `exec` and `tunnel` need an agent and a container (test/e2e/exec.test.ts).
    expect(COMMANDS.map((c) => c.name).filter((name) => !done.has(name))).toEqual([
      'exec',
      'tunnel',
      'domain free',
      'failover',
      'node removed',
      'node prewarm',
      'node volumes delete',
      'dataset diff',
      'device delete',
      'mcp',
    ]);
    expect(ADMIN).toContain('@');
  });
});

describe('no line advises what undoes the change that somebody just made', () => {
  let who: Person;
  let world: World;
  let first = '';
  let project = '';
  beforeAll(async () => {
    who = await signedIn(served.url);
    world = await createWorld(served.api);
    const body = {
      name: 'undo',
      domain_prefix: 'undo',
      git_url: 'https://git.example/undo.git',
      env: { A: '1' },
    };
    project = String((await served.api.call('createProject', { body })).json['id']);
    first = await world.live(project);
    await served.api.call('patchProject', { params: { id: project }, body: { env: { A: 'bad' } } });
    await world.live(project);
  });
  const both = async (
    argv: string[],
    given: Parameters<Person['berth']>[1] = {},
  ): Promise<string> => {
    const { out, err } = await who.berth(argv, given);
    return out + err;
  };
  const setA = () => both(['env', 'set', 'B', '--project', 'undo'], { stdin: 'x' });

  test('a change says to deploy it', async () => {
    expect(await setA()).toContain('next: berth deploy undo, to use it');
  });
  test('a rollback to the release that serves, for example from a dead node, leaves nothing behind', async () => {
    const { items } = (await served.api.call('projectDeployments', { params: { id: project } }))
      .json as {
      items: { id: string; generation: number }[];
    };
    const again = await served.api.call('rollback', {
      params: { id: project },
      body: { deployment_id: items[0]?.id ?? '' },
    });
    await world.deployedAgain(String(again.json['id']));
    expect(await both(['status', 'undo'])).not.toContain('rolled back');
    const twice = await served.api.call('rollback', {
      params: { id: project },
      body: { deployment_id: items[0]?.id ?? '' },
    });
    await world.deployedAgain(String(twice.json['id']));
    expect(await setA()).toContain('next: berth deploy undo, to use it');
  });
  test('a rolled back project is not to be deployed again', async () => {
    const back = await served.api.call('rollback', {
      params: { id: project },
      body: { deployment_id: first },
    });
    await world.deployedAgain(String(back.json['id']));
    const told = await both(['status', 'undo']);
    expect(told).toContain('rolled back from deployment 4');
    expect(told).toContain('health: healthy');
    expect(await both(['status', '--all'])).not.toMatch(/berth deploy undo/);
    expect(await both(['deployment', 'show', String(back.json['id'])])).toMatch(
      /rolled back from +deployment 4/,
    );
    const changed = await setA();
    expect(changed).not.toContain('next:');
    expect(changed).toContain('undo was rolled back from deployment 4');
    await served.api.call('patchProject', {
      params: { id: project },
      body: { env: { A: 'better' } },
    });
    expect(await both(['status', '--all'])).toMatch(
      /undo: drifted: .*env changed since the rollback[^\n]*\n +next: berth status undo/,
    );
  });
  test('a stopped project is not to be started, nor deployed', async () => {
    const stopped = await both(['stop', 'undo']);
    expect(stopped).toContain('undo is stopped');
    for (const text of [
      stopped,
      await both(['status', 'undo']),
      await setA(),
      await both(['project', 'edit', 'undo', '--branch', 'next']),
    ])
      expect(text).not.toMatch(/next: berth (?:start|deploy)/);
  });
});

describe('text for people', () => {
  let who: Person;
  let world: World;
  beforeAll(async () => {
    who = await signedIn(served.url);
    world = await createWorld(served.api);
  });
  test('the list of all deployments names their projects', async () => {
    const body = {
      name: 'listed',
      domain_prefix: 'listed',
      git_url: 'https://git.example/listed.git',
    };
    const project = String((await served.api.call('createProject', { body })).json['id']);
    expect(
      (await served.api.call('createDeployment', { params: { id: project }, body: {} })).status,
    ).toBe(201);
    const { out } = await who.berth(['deployment', 'list', '--all']);
    expect(out).toMatch(/^PROJECT +NUMBER /);
    expect(out).toMatch(/^listed +1 /m);
    expect((await who.berth(['deployment', 'list', 'listed'])).out).toMatch(/^NUMBER /);
  });
  test('a project shows each setting that is not the usual one', async () => {
    const body = {
      name: 'shown',
      domain_prefix: 'shown',
      git_url: 'https://git.example/shown.git',
      git_lfs: true,
      submodules: false,
      cors_origins: ['https://app.example.com'],
      watch_paths: ['src', 'docs'],
      build_context: 'web',
      build_target: 'prod',
      build_args: { MODE: 'x' },
    };
    expect((await served.api.call('createProject', { body })).json).toMatchObject({
      name: 'shown',
    });
    const { out } = await who.berth(['project', 'show', 'shown']);
    for (const row of [
      'git lfs +fetched',
      'submodules +not fetched',
      'cors +https://app.example.com',
      'push +deploys changes of src, docs',
    ])
      expect(out).toMatch(new RegExp(`^${row}$`, 'm'));
    for (const row of ['context +web', 'target +prod', 'build args +MODE'])
      expect(out).toMatch(new RegExp(`^${row}$`, 'm'));
  });
  test('a question before a deletion with force does not promise that projects move', async () => {
    const asked = await who.berth(['node', 'delete', world.home, '--force']);
    expect(asked.err).toContain('Nothing moves: its routes end now');
    expect((await who.berth(['node', 'delete', world.home])).err).toContain(
      'and move its projects?',
    );
  });
});
