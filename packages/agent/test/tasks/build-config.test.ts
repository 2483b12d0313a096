/** A build reads berth.toml, asks the control plane, and builds with its settings. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ConfigFileAnswer, TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { BuildSpec } from '../../src/build/buildx.ts';
import { type BuildDeps, createBuildHandler } from '../../src/tasks/build.ts';
import type { TaskContext } from '../../src/tasks/task.ts';

let dir: string;
beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-build-config-'))));
afterEach(() => rm(dir, { recursive: true }));

const SHA = 'a'.repeat(40);
const ANSWER: ConfigFileAnswer = {
  problem: null,
  dockerfile_path: 'deploy/Dockerfile',
  build_target: 'web',
  build_args: { A: '1' },
};

/** Builds a repository with this file. Returns the build, the report and the log. */
async function run(text: string | null, answer: ConfigFileAnswer | null, payload = {}) {
  const specs: BuildSpec[] = [];
  const sent: unknown[] = [];
  const log: string[] = [];
  const deps = {
    clone: async (_: unknown, to: string) => {
      await mkdir(join(to, 'deploy'), { recursive: true });
      await writeFile(join(to, 'Dockerfile'), 'FROM scratch');
      await writeFile(join(to, 'deploy', 'Dockerfile'), 'FROM scratch');
      if (text !== null) await writeFile(join(to, 'berth.toml'), text);
      return { sha: SHA, message: 'm', author: 'a', hostKeys: [], lfs: null };
    },
    build: async (spec: BuildSpec) => {
      specs.push(spec);
      return { digest: null, arch: null };
    },
    workspaces: { with: (_: string, work: (to: string) => unknown) => work(dir) },
    images: { protect: () => () => undefined, cleanLater: () => undefined },
    keepRoom: async () => undefined,
    buildTimeoutMs: 1000,
    digests: { changed: () => false, begins: async () => {}, built: async () => {} },
    checkConfig: async (...args: unknown[]) => {
      sent.push(args.slice(0, 3));
      return answer;
    },
  } as unknown as BuildDeps;
  const context = {
    attempt: 1,
    lease: 'lease',
    signal: new AbortController().signal,
    log: () => undefined,
    logStep: (_: string, line: string) => void log.push(line),
    learned: () => undefined,
    note: () => undefined,
    secrets: [],
    secretsDigest: null,
  } as unknown as TaskContext;
  const task = {
    id: 't1',
    payload: {
      project_id: 'p1',
      project: 'shop',
      git_url: 'https://git.example/shop.git',
      branch: 'main',
      commit: null,
      dockerfile_path: 'Dockerfile',
      build_target: 'of-the-project',
      image_repository: 'registry/shop',
      config_file: 'berth.toml',
      ...payload,
    },
  } as unknown as TaskOf<'build'>;
  const done = createBuildHandler(deps)(task, context);
  return { done, specs, sent, log };
}

it('sends the file, builds with the answer, and reports the file', async () => {
  const { done, specs, sent } = await run('cpus = 1', ANSWER);
  const { report } = await done;
  expect(sent).toEqual([['t1', 'lease', { file: 'berth.toml', text: 'cpus = 1' }]]);
  expect(specs[0]).toMatchObject({ target: 'web', args: { A: '1' } });
  expect(specs[0]?.dockerfile).toMatch(/deploy\/Dockerfile$/);
  expect(report).toMatchObject({ config_file: { file: 'berth.toml', text: 'cpus = 1' } });
});

it('fails before the build if the control plane refuses the file', async () => {
  const problem = 'berth.toml line 1: cpus must be a number';
  const { done, specs } = await run('cpus = "1"', { ...ANSWER, problem });
  await expect(done).rejects.toMatchObject({ code: 'config_invalid', detail: problem });
  expect(specs).toEqual([]);
});

it('ignores the file if the control plane went back to an earlier version, and says so', async () => {
  const { done, specs, log } = await run('cpus = 1', null);
  expect((await done).report).not.toHaveProperty('config_file');
  expect(specs[0]).toMatchObject({ target: 'of-the-project', args: {} });
  expect(log).toContain('the control plane is of an earlier version: it ignores berth.toml');
});

it('reads nothing without a file, and unless the control plane asks for it', async () => {
  const without = await run(null, ANSWER);
  expect((await without.done).report).not.toHaveProperty('config_file');
  const unasked = await run('cpus = 1', ANSWER, { config_file: undefined });
  expect((await unasked.done).report).not.toHaveProperty('config_file');
  expect([...without.sent, ...unasked.sent]).toEqual([]);
  expect(without.specs[0]).toMatchObject({ target: 'of-the-project' });
});
