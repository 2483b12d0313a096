/**
 * `berth project create`: values that nobody gave come from the repository, if a builder can read
 * it.
 */
import { REPOSITORY_LOOK_CAPABILITY, type RepositoryFound } from '@berth/wire/repository-look';
import { beforeAll, describe, expect, test } from 'vitest';
import { register } from '../../control-plane/test/api/harness.ts';
import { proposalsOf } from '../src/project/proposals.ts';
import { type Person, type Result, serveOnce, signedIn } from './support.ts';

const file = (path: string, ports: number[], stages: Record<string, number[]> = {}) => ({
  path,
  ports,
  targets: Object.entries(stages).map(([name, of]) => ({ name, ports: of })),
});
const FOUND: RepositoryFound = {
  default_branch: 'trunk',
  branches: ['trunk'],
  branches_left_out: 0,
  branch: 'trunk',
  commit: 'a'.repeat(40),
  dockerfiles: [file('web/Dockerfile', [3000])],
  dockerfiles_left_out: 0,
  submodules: false,
  lfs: false,
};
const nobody = async (): Promise<null> => null;

describe('proposals', () => {
  test.each<
    [string, Partial<RepositoryFound>, Parameters<typeof proposalsOf>[1], object, string[]]
  >([
    [
      'everything',
      {},
      {},
      { branch: 'trunk', dockerfile_path: 'web/Dockerfile', container_port: 3000 },
      [],
    ],
    [
      'nothing that was given',
      {},
      { branch: 'trunk', dockerfile_path: 'web/Dockerfile', container_port: 1 },
      {},
      [],
    ],
    [
      'the port of the given Dockerfile',
      {},
      { branch: 'trunk', dockerfile_path: 'web/Dockerfile' },
      { container_port: 3000 },
      [],
    ],
    ['no port of another Dockerfile', {}, { branch: 'trunk', dockerfile_path: 'other' }, {}, []],
    [
      'the port of the given stage',
      { dockerfiles: [file('Dockerfile', [1], { web: [9000] })] },
      { branch: 'trunk', build_target: 'web' },
      { container_port: 9000 },
      [],
    ],
    [
      'nothing that equals the defaults',
      { branch: 'main', dockerfiles: [file('Dockerfile', [8080])] },
      {},
      {},
      [],
    ],
    [
      'a hint for several Dockerfiles',
      { dockerfiles: [file('a/Dockerfile', [1]), file('b/Dockerfile', [2])] },
      { branch: 'trunk' },
      {},
      ['choose a Dockerfile with --dockerfile-path: a/Dockerfile, b/Dockerfile'],
    ],
    [
      'the usual Dockerfile of several',
      { dockerfiles: [file('Dockerfile', [1]), file('b/Dockerfile', [2])] },
      { branch: 'x' },
      { container_port: 1 },
      [],
    ],
    [
      'a hint for several ports',
      { dockerfiles: [file('Dockerfile', [3000, 9090])] },
      { branch: 'trunk' },
      {},
      ['choose a port with --container-port: Dockerfile exposes 3000, 9090'],
    ],
    [
      'the usual port of several',
      { dockerfiles: [file('Dockerfile', [3000, 8080])] },
      { branch: 'trunk' },
      {},
      [],
    ],
    [
      'a hint for a branch that is not pushed',
      { branch: null, dockerfiles: [] },
      { branch: 'mine' },
      {},
      ['the repository has no branch mine yet; push it'],
    ],
    [
      'a hint without a Dockerfile',
      { dockerfiles: [] },
      { branch: 'trunk' },
      {},
      ['trunk has no Dockerfile'],
    ],
  ])('%s', async (_what, found, wanted, taken, hints) => {
    expect(await proposalsOf({ ...FOUND, ...found }, wanted, nobody)).toEqual({ taken, hints });
  });

  test('a person chooses one of several, and the port of the chosen Dockerfile', async () => {
    const found = {
      ...FOUND,
      dockerfiles: [file('Dockerfile', [1]), file('b/Dockerfile', [2, 3])],
    };
    const asked: [string, unknown][] = [];
    const last = async <T>(question: string, of: readonly T[]): Promise<T | null> => {
      asked.push([question, of]);
      return of.at(-1) ?? null;
    };
    expect((await proposalsOf(found, { branch: 'trunk' }, last)).taken).toEqual({
      dockerfile_path: 'b/Dockerfile',
      container_port: 3,
    });
    expect(asked).toEqual([
      ['Dockerfile', ['Dockerfile', 'b/Dockerfile']],
      ['Port', [2, 3]],
    ]);
  });
});

describe('berth project create', () => {
  const served = serveOnce();
  let who: Person;
  let builder: string;
  beforeAll(async () => {
    who = await signedIn(served.url);
  }, 60_000);
  const join = async (): Promise<void> => {
    builder = await register(served.api, { capabilities: [REPOSITORY_LOOK_CAPABILITY] });
  };
  const tasks = async (): Promise<{ id: string; payload: { branch: string | null } }[]> =>
    (await served.api.call('agentTasks', { query: { node_id: builder, wait: 20 } }))
      .json as unknown as [];

  /**
   * Runs the command while a builder answers its look. Returns its result, the project and the
   * branch that was read.
   */
  async function create(
    name: string,
    options: string[],
    report: object,
  ): Promise<Result & { project: object; branch: string | null }> {
    const running = who.berth([
      'project',
      'create',
      name,
      '--git-url',
      `https://git.example.com/${name}.git`,
      '--no-link',
      ...options,
    ]);
    const [task] = await tasks();
    const { json } = await served.api.call('agentStart', { params: { id: String(task?.id) } });
    const headers = { 'x-lease-token': String(json['lease_token']) };
    expect(
      (
        await served.api.call('agentComplete', {
          params: { id: String(task?.id) },
          body: report,
          headers,
        })
      ).status,
    ).toBe(200);
    const result = await running;
    return {
      ...result,
      project: (await served.api.call('getProject', { params: { id: name } })).json,
      branch: task?.payload.branch ?? null,
    };
  }

  test('without a builder it takes the defaults and says so', async () => {
    const made = await who.berth([
      'project',
      'create',
      'plain',
      '--git-url',
      'https://git.example.com/plain.git',
      '--no-link',
    ]);
    expect(made).toMatchObject({
      code: 0,
      err: expect.stringContaining(
        'note: the defaults are used, because no builder could read the repository: no builder ' +
          'is registered',
      ),
    });
    expect((await served.api.call('getProject', { params: { id: 'plain' } })).json).toMatchObject({
      branch: 'main',
      container_port: 8080,
    });
  });

  test('it takes what a builder found and says what', async () => {
    await join();
    const made = await create('shop', [], { status: 'completed', result: FOUND });
    expect(made).toMatchObject({
      code: 0,
      out: expect.stringContaining('created shop'),
      err: expect.stringContaining(
        'taken from the repository: branch trunk, Dockerfile web/Dockerfile, port 3000\n',
      ),
      project: { branch: 'trunk', dockerfile_path: 'web/Dockerfile', container_port: 3000 },
    });
  });

  test('what was given wins, and the given branch is read', async () => {
    const made = await create('given', ['--branch', 'next', '--container-port', '81', '--json'], {
      status: 'completed',
      result: FOUND,
    });
    expect(made).toMatchObject({
      code: 0,
      err: '',
      branch: 'next',
      project: { branch: 'next', dockerfile_path: 'web/Dockerfile', container_port: 81 },
    });
  });

  test('a repository that the builder cannot read gets the defaults, with the reason', async () => {
    const error = { code: 'git_credentials', message: 'Git access was refused' };
    const made = await create('private', [], { status: 'failed', result: { error } });
    expect(made).toMatchObject({
      code: 0,
      err: expect.stringMatching(
        /the defaults are used, because no builder could read the repository: Git access was refused/,
      ),
      project: { branch: 'main', dockerfile_path: 'Dockerfile', container_port: 8080 },
    });
  });

  test.each([
    [
      'all values',
      ['--branch', 'main', '--dockerfile-path', 'Dockerfile', '--container-port', '80'],
    ],
    ['--no-look', ['--no-look']],
  ])('with %s it asks no builder', async (what, options) => {
    const name = what.replaceAll(/\W+/g, '-').replace(/^-+/, '');
    const argv = [
      'project',
      'create',
      name,
      '--git-url',
      `https://git.example.com/${name}.git`,
      '--no-link',
      ...options,
    ];
    expect(await who.berth(argv)).toMatchObject({ code: 0, err: `next: berth deploy ${name}\n` });
    expect(await served.api.stores.repositoryLooks.open()).toEqual([]);
  });

  test('a wrong address is refused with its field', async () => {
    const made = await who.berth([
      'project',
      'create',
      'wrong',
      '--git-url',
      'file:///etc',
      '--no-link',
    ]);
    expect(made).toMatchObject({ code: 1, out: '', err: expect.stringContaining('git_url') });
  });
});
