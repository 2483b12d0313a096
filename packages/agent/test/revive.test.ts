/** Which stopped containers are started again after the engine was away, and which never are. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '@berth/kit/log';
import { createRevival } from '../src/revive.ts';
import type { Container, Docker } from '../src/tools/docker.ts';

const container = (id: string, state: string, endedAt?: number): Container =>
  ({
    id,
    name: id,
    state,
    exitCode: state === 'exited' ? 137 : 0,
    finishedAt: endedAt === undefined ? null : new Date(endedAt).toISOString(),
  }) as unknown as Container;

async function engine(policies: Record<string, string> = {}) {
  const started: string[] = [];
  let incarnation: { id: string; since: number } | null = { id: 'first', since: 0 };
  const docker = {
    restartPolicy: async (id: string) => policies[id] ?? 'unless-stopped',
    start: async (id: string) => {
      if (id === 'broken') throw new Error('no such image');
      started.push(id);
    },
    stop: async () => undefined,
    remove: async () => undefined,
    incarnation: async () => incarnation,
  } as unknown as Docker;
  let now = 0;
  const dir = mkdtempSync(join(tmpdir(), 'agent-revive-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const begin = () => createRevival(docker, { path: join(dir, 'containers.json'), log: silentLogger(), now: () => now });
  const revival = await begin();
  return {
    revival,
    started,
    /** The agent was killed and is started again. */
    anew: async () => {
      const next = await begin();
      return { ...next, look: (...seen: Container[]) => next.look(seen, new AbortController().signal) };
    },
    engineRestarted: (id: string, since: number) => void (incarnation = id === '' ? null : { id, since }),
    later: (ms: number) => (now += ms),
    look: (...seen: Container[]) => revival.look(seen, new AbortController().signal),
  };
}

test('what ran before the engine was killed and is stopped after it is started again', async () => {
  const { revival, started, look } = await engine();
  await look(container('app', 'running'));
  revival.suspect();
  expect(await look(container('app', 'exited'))).toBe(true);
  expect(started).toEqual(['app']);
});

test('also when the engine answers first and stops it a moment later; not long after', async () => {
  const { revival, started, look, later } = await engine();
  await look(container('app', 'running'), container('other', 'running'));
  revival.suspect();
  await look(container('app', 'running'), container('other', 'running'));
  later(3_000);
  await look(container('app', 'exited'), container('other', 'running'));
  expect(started).toEqual(['app']);
  later(60_000);
  await look(container('app', 'running'), container('other', 'exited'));
  expect(started).toEqual(['app']);
});

test.each<[string, (e: Awaited<ReturnType<typeof engine>>) => Promise<unknown>]>([
  ['the engine was there all the time: a person stopped it', async ({ look }) => look(container('app', 'running'))],
  [
    'it was stopped before already',
    async ({ look, revival }) => {
      await look(container('app', 'exited'));
      revival.suspect();
    },
  ],
  ['it was never seen: this agent has just begun', async ({ revival }) => revival.suspect()],
  [
    'a task of ours stopped it',
    async ({ look, revival }) => {
      await look(container('app', 'running'));
      await revival.docker.stop('app', 1);
      revival.suspect();
    },
  ],
])('not when %s', async (_, before) => {
  const e = await engine();
  await before(e);
  expect(await e.look(container('app', 'exited'))).toBe(false);
  expect(e.started).toEqual([]);
});

test('one without its restart policy is its deploy task’s business; one that cannot be started does not keep the others down', async () => {
  const { revival, started, look } = await engine({ young: 'no' });
  await look(...['young', 'broken', 'app'].map((id) => container(id, 'running')));
  revival.suspect();
  expect(await look(...['young', 'broken', 'app'].map((id) => container(id, 'exited')))).toBe(true);
  expect(started).toEqual(['app']);
});

test('after recreate put a container back it counts as running again', async () => {
  const { revival, started, look } = await engine();
  await look(container('app', 'running'));
  await revival.docker.stop('app', 1);
  await revival.docker.start('app');
  started.length = 0;
  await look(container('app', 'running'));
  revival.suspect();
  await look(container('app', 'exited'));
  expect(started).toEqual(['app']);
});

test.each<[string, number, string[]]>([
  ['what the engine stopped as it started is started again', 100_000 - 1_700, ['app']],
  ['what a person stopped long before that is not', 100_000 - 60_000, []],
])('agent and engine end together: %s', async (_, endedAt, expected) => {
  const { anew, started, look, engineRestarted } = await engine();
  await look(container('app', 'running'), container('off', 'exited'));
  engineRestarted('second', 100_000);
  const next = await anew();
  expect(await next.look(container('app', 'exited', endedAt), container('off', 'exited', 1_000))).toBe(expected.length > 0);
  expect(started).toEqual(expected);
});

test('nor what we were about to stop when we were killed', async () => {
  const { anew, started, look, revival, engineRestarted } = await engine();
  await look(container('app', 'running'), container('old', 'running'));
  await revival.docker.stop('old', 1);
  await revival.docker.remove('gone');
  engineRestarted('second', 100_000);
  const next = await anew();
  await next.look(container('app', 'exited', 99_000), container('old', 'exited', 99_000));
  expect(started).toEqual(['app']);
});

test('the agent alone was restarted: who stopped it meanwhile meant it', async () => {
  const { anew, started, look } = await engine();
  await look(container('app', 'running'));
  const next = await anew();
  expect(await next.look(container('app', 'exited', 99_000))).toBe(false);
  expect(started).toEqual([]);
});

test('an engine that does not say when it began: as before, what this process saw itself', async () => {
  const { anew, started, look, engineRestarted } = await engine();
  await look(container('app', 'running'));
  engineRestarted('', Number.NaN);
  const next = await anew();
  await next.look(container('app', 'exited', 99_000));
  next.suspect();
  await next.look(container('app', 'exited', 99_000));
  expect(started).toEqual([]);
});
