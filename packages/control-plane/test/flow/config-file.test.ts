/** Settings from berth.toml: when a release takes them, keeps them, and who can read the file. */
import { describe, expect, it } from 'vitest';
import { CAN_CONFIG_FILE, type TaskReport } from '@berth/wire/task';
import type { DeploymentRecord } from '../../src/domain/platform/records.ts';
import { countIn } from '../../src/domain/projects/processes.ts';
import { advance, request } from '../../src/flow/deployment.ts';
import { checkPushes } from '../../src/flow/push.ts';
import { namesToDeploy, settingsFor } from '../../src/flow/release.ts';
import {
  builder,
  changeOf,
  COMMIT,
  DIGEST,
  facts,
  node,
  old,
  on,
  project,
  SETTINGS,
  stateOf,
  task,
} from './fixtures.ts';

const built: TaskReport = {
  status: 'completed',
  image_tag: `registry:5000/shop:${COMMIT}`,
  image_digest: DIGEST,
  commit: COMMIT,
};
const report = (text: string, d = on.building(), over = {}) =>
  advance(
    d,
    {
      type: 'task_reported',
      task: task('build'),
      report: { ...built, config_file: { file: 'berth.toml', text } },
    },
    facts({ live: [d], tasks: [task('build')], ...over }),
  );
const lines = (plan: { storyLines: { message: string }[] }): string[] =>
  plan.storyLines.map(({ message }) => message);
/** A deployment whose settings come from the file in part. */
const configured = (over: Partial<DeploymentRecord> = {}): DeploymentRecord =>
  old({
    settings: { ...SETTINGS, health_path: '/up', watch_paths: ['api/**'], env: { A: '1', B: '2' } },
    config: { file: 'berth.toml', commit: COMMIT, keys: ['health_path', 'watch_paths', 'env.A'] },
    ...over,
  });
const reads = builder({ capabilities: [CAN_CONFIG_FILE] });

describe('the report of a build', () => {
  it('puts the values of the file over the settings of the request', () => {
    const d = on.building({
      settings: { ...SETTINGS, health_path: '/old', env: { A: 'project', B: 'project' } },
    });
    const plan = report('health_path = "/up"\nmemory_bytes = 67108864\n[env]\nA = "file"', d);
    expect(changeOf(plan, 'd2')).toMatchObject({
      status: 'built',
      settings: {
        ...SETTINGS,
        health_path: '/up',
        memory_bytes: 67_108_864,
        env: { A: 'file', B: 'project' },
      },
      config: {
        file: 'berth.toml',
        commit: COMMIT,
        keys: ['health_path', 'memory_bytes', 'env.A'],
      },
    });
    expect(lines(plan)).toContain('berth.toml at aaaaaaa sets health_path, memory_bytes, env.A');
  });

  it('replaces the processes but web, to which it adds; counts that people set win', () => {
    const d = on.building({
      settings: { ...SETTINGS, processes: [{ name: 'web', count: 2 }, { name: 'old' }] },
    });
    const plan = report(
      '[processes.web]\nhealth_path = "/up"\n[processes.worker]\ncommand = ["w"]\ncount = 3',
      d,
    );
    const { settings } = changeOf(plan, 'd2');
    expect(settings?.processes).toEqual([
      { name: 'web', count: 2, health_path: '/up' },
      { name: 'worker', command: ['w'], count: 3 },
    ]);
    expect(settings?.health_path).toBe('/up');
    const worker = settings?.processes[1] ?? { name: '' };
    const web = { name: 'web', count: 4 };
    const own = project({ processes: [{ name: 'web', count: 1 }] });
    const release = { config: { keys: ['processes'] } };
    const counts = (of: typeof own): number[] =>
      [worker, web].map((one) => countIn(of, one, release));
    expect(counts(own)).toEqual([3, 4]);
    expect(counts({ ...own, scaled: { worker: 0, web: 1 } })).toEqual([0, 1]);
    // Without a file the list of the project decides: a scale before this version set only that.
    expect(countIn(own, web, { config: null })).toBe(1);
  });

  it('is refused for a process that breaks a rule, with its key and line', () => {
    const plan = report('[processes.worker]\nhealth_path = "/up"');
    expect(changeOf(plan, 'd2')).toMatchObject({
      status: 'failed',
      error: {
        code: 'config_invalid',
        message: expect.stringContaining('line 2: processes.worker.health_path only “web”'),
      },
    });
  });

  it('keeps the settings of the request without a file, and with an empty one', () => {
    for (const plan of [
      report(''),
      advance(
        on.building(),
        { type: 'task_reported', task: task('build'), report: built },
        facts({ live: [on.building()], tasks: [task('build')] }),
      ),
    ])
      expect(changeOf(plan, 'd2')).toMatchObject({ settings: SETTINGS, config: null });
  });

  it.each([
    ['health_path = "up"', 'berth.toml line 1: health_path must begin with “/”'],
    ['\nhealth_path = "//up"', 'berth.toml line 2: health_path must not begin with “//”'],
    ['[build]\ndockerfile_path = "../x"', 'line 2: build.dockerfile_path must not contain a “..”'],
    ['[build.build_args]\nBERTH_X = "1"', 'line 2: build.build_args.BERTH_X names that begin'],
    ['[build]\nwatch_paths = ["a", "/b"]', 'line 2: build.watch_paths[1] must be relative'],
    ['[env]\nTOKEN = "x"', 'berth.toml line 2: env.TOKEN is also a secret of the project'],
  ])('fails with config_invalid for %j', (text, message) => {
    const secrets = [{ name: 'TOKEN', scope: 'run', as: 'env' }] as never;
    const plan = report(text, on.building(), { secrets });
    expect(stateOf(plan, 'd2')).toBe('failed');
    expect(changeOf(plan, 'd2')?.error).toMatchObject({ code: 'config_invalid' });
    expect(changeOf(plan, 'd2')?.error?.message).toContain(message);
  });

  it('fails without another try if the builder refused the file', () => {
    const error = { code: 'config_invalid', message: 'berth.toml must be a plain file' };
    const plan = advance(
      on.building(),
      {
        type: 'task_reported',
        task: task('build'),
        report: { status: 'failed', result: { error } },
      },
      facts({
        live: [on.building()],
        tasks: [task('build')],
        nodes: [reads, builder({ id: 'b2' })],
      }),
    );
    expect(changeOf(plan, 'd2')).toMatchObject({ status: 'failed', error });
  });

  it('does not mix the files of two attempts', () => {
    const lost = on.building({ losses: [{ node_id: 'z', at: 1 }] });
    expect(changeOf(report('cpus = 2', lost), 'd2')).toMatchObject({
      settings: { ...SETTINGS, cpus: 2 },
      config: { keys: ['cpus'] },
    });
  });
});

describe('a release', () => {
  const other = project({ health_path: '/project', watch_paths: ['web/**'], env: { A: 'p' } });

  it('of a rollback has the settings of its file', () => {
    expect(settingsFor(other, configured())).toMatchObject({
      health_path: '/up',
      watch_paths: ['api/**'],
      env: { A: '1', B: '2' },
    });
    const release = configured({ status: 'retired' });
    const input = { id: 'd3', commit: null, note: null, release, trigger: 'rollback' as const };
    const plan = request(input, facts({ project: other }));
    expect(plan.createDeployment?.config).toEqual(release.config);
    expect(lines(plan)).toContain(
      'keeps health_path, watch_paths, env.A from berth.toml at aaaaaaa',
    );
  });

  it('from source begins with the settings of the project, and without a file', () => {
    const input = { id: 'd3', commit: null, note: null, release: null };
    expect(
      request(input, facts({ project: other, live: [configured()] })).createDeployment,
    ).toMatchObject({ config: null, settings: { health_path: '/project', env: { A: 'p' } } });
  });

  it('does not miss a project setting that its file sets', () => {
    expect(
      namesToDeploy(configured(), project({ health_path: '/project', env: { B: '2' } })),
    ).toEqual([]);
    expect(namesToDeploy(configured(), project({ env: { B: 'new' } }))).toEqual(['env']);
    expect(namesToDeploy(configured(), project({ env: { B: '2' }, cpus: 1 }))).toEqual(['cpus']);
  });
});

describe('the builder', () => {
  const pending = on.pending();
  const dispatch = (nodes: ReturnType<typeof builder>[], live: DeploymentRecord[] = []) =>
    advance(
      pending,
      { type: 'tick' },
      facts({ live: [...live, pending], nodes: [...nodes, node()] }),
    );
  const contract = builder({ agent_version: null });

  it('is asked for the file only if it can read it', () => {
    expect(dispatch([reads]).createTasks[0]?.payload).toMatchObject({ config_file: 'berth.toml' });
    const plan = dispatch([builder()]);
    expect(plan.createTasks[0]?.payload).not.toHaveProperty('config_file');
    expect(lines(plan)).toContain(
      'the agent of builder-1 is of an earlier version: it does not read berth.toml, so the ' +
        'settings of the project apply; update it',
    );
  });

  it('with an agent that implements only the contract does not read it, and the story says so', () => {
    const plan = dispatch([contract]);
    expect(plan.createTasks[0]?.payload).not.toHaveProperty('config_file');
    expect(lines(plan).join()).toContain(
      'the agent of builder-1 implements only the contract: it need not fetch submodules, and ' +
        'does not read berth.toml, so the settings of the project apply',
    );
  });

  it('must be able to read the file if the version that serves has settings from one', () => {
    const plan = dispatch([contract], [configured()]);
    expect(changeOf(plan, 'd2')?.error).toMatchObject({ code: 'agent_cannot' });
    expect(changeOf(plan, 'd2')?.error?.message).toContain(
      'cannot read berth.toml, which sets health_path, watch_paths, env.A',
    );
    const other = builder({ id: 'b2', hostname: 'builder-2', capabilities: [CAN_CONFIG_FILE] });
    expect(dispatch([contract, other], [configured()]).createTasks[0]?.node_id).toBe('b2');
  });
});

it('a push looks at the paths of the version that serves', () => {
  const hook = {
    project_id: 'p1',
    forge: 'gitea' as const,
    secret: 'sealed',
    refused: 0,
    look_upto: 0,
    look_tries: 0,
    look_not_before: 0,
    look_failed_on: null,
    created_at: 0,
    updated_at: 0,
  };
  const delivery = {
    id: 'e1',
    seq: 1,
    project_id: 'p1',
    forge_id: null,
    at: 0,
    event: 'push',
    branch: 'main',
    commit: null,
    verdict: null,
    reason: null,
    deployment_id: null,
  };
  const looker = builder({ capabilities: ['look'] });
  const pushed = (live: DeploymentRecord[]) =>
    checkPushes(
      { hook, waiting: [delivery] },
      facts({ live, nodes: [looker], project: project({ watch_paths: ['web/**'] }) }),
    )?.createTasks[0]?.payload;
  expect(pushed([configured()])).toMatchObject({ watch_paths: ['api/**'], bases: [COMMIT] });
  expect(pushed([old()])).toMatchObject({ watch_paths: ['web/**'] });
});
