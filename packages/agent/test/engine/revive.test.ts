/** Which stopped containers are started after an engine restart, and which are not. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { silentLogger } from '@berth/kit/log';
import { createRevival } from '../../src/engine/revive.ts';
import type { Container, Docker } from '../../src/engine/docker.ts';

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
  let engineStart: { id: string; since: number } | null = { id: 'first', since: 0 };
  const docker = {
    restartPolicy: async (id: string) => policies[id] ?? 'unless-stopped',
    start: async (id: string) => {
      if (id === 'broken') throw new Error('no such image');
      started.push(id);
    },
    stop: async () => undefined,
    remove: async () => undefined,
    engineStart: async () => engineStart,
  } as unknown as Docker;
  let now = 0;
  const dir = mkdtempSync(join(tmpdir(), 'agent-revive-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const startAgent = () =>
    createRevival(docker, {
      path: join(dir, 'containers.json'),
      log: silentLogger(),
      now: () => now,
    });
  const revival = await startAgent();
  return {
    revival,
    started,
    /** Starts a new agent process with the same state folder. */
    restartAgent: async () => {
      const next = await startAgent();
      return {
        ...next,
        check: (...seen: Container[]) => next.revive(seen, new AbortController().signal),
      };
    },
    engineRestarted: (id: string, since: number) =>
      void (engineStart = id === '' ? null : { id, since }),
    later: (ms: number) => (now += ms),
    check: (...seen: Container[]) => revival.revive(seen, new AbortController().signal),
  };
}

test('a container that ran before the engine was killed is started again', async () => {
  const { revival, started, check } = await engine();
  await check(container('app', 'running'));
  revival.suspect();
  expect(await check(container('app', 'exited'))).toBe(true);
  expect(started).toEqual(['app']);
});

test('a container that the engine stops shortly after its start is started; one that stops long after is not', async () => {
  const { revival, started, check, later } = await engine();
  await check(container('app', 'running'), container('other', 'running'));
  revival.suspect();
  await check(container('app', 'running'), container('other', 'running'));
  later(3_000);
  await check(container('app', 'exited'), container('other', 'running'));
  expect(started).toEqual(['app']);
  later(60_000);
  await check(container('app', 'running'), container('other', 'exited'));
  expect(started).toEqual(['app']);
});

test.each<[string, (e: Awaited<ReturnType<typeof engine>>) => Promise<unknown>]>([
  [
    'the engine did not restart: a person stopped it',
    async ({ check }) => check(container('app', 'running')),
  ],
  [
    'it was stopped before the engine restart',
    async ({ check, revival }) => {
      await check(container('app', 'exited'));
      revival.suspect();
    },
  ],
  ['this agent process has not seen it running', async ({ revival }) => revival.suspect()],
  [
    'a task of this agent stopped it',
    async ({ check, revival }) => {
      await check(container('app', 'running'));
      await revival.docker.stop('app', 1);
      revival.suspect();
    },
  ],
])('a container is not started if %s', async (_, before) => {
  const e = await engine();
  await before(e);
  expect(await e.check(container('app', 'exited'))).toBe(false);
  expect(e.started).toEqual([]);
});

test('a container without its restart policy is not started, and one that fails to start does not stop the others', async () => {
  const { revival, started, check } = await engine({ young: 'no' });
  await check(...['young', 'broken', 'app'].map((id) => container(id, 'running')));
  revival.suspect();
  expect(await check(...['young', 'broken', 'app'].map((id) => container(id, 'exited')))).toBe(
    true,
  );
  expect(started).toEqual(['app']);
});

test('a container that a task restarted counts as running again', async () => {
  const { revival, started, check } = await engine();
  await check(container('app', 'running'));
  await revival.docker.stop('app', 1);
  await revival.docker.start('app');
  started.length = 0;
  await check(container('app', 'running'));
  revival.suspect();
  await check(container('app', 'exited'));
  expect(started).toEqual(['app']);
});

test.each<[string, number, string[]]>([
  ['a container that the engine stopped at its start is started', 100_000 - 1_700, ['app']],
  ['a container that a person stopped long before is not', 100_000 - 60_000, []],
])('after agent and engine ended together %s', async (_, endedAt, expected) => {
  const { restartAgent, started, check, engineRestarted } = await engine();
  await check(container('app', 'running'), container('off', 'exited'));
  engineRestarted('second', 100_000);
  const next = await restartAgent();
  expect(
    await next.check(container('app', 'exited', endedAt), container('off', 'exited', 1_000)),
  ).toBe(expected.length > 0);
  expect(started).toEqual(expected);
});

test('a container that the killed agent was about to stop is not started', async () => {
  const { restartAgent, started, check, revival, engineRestarted } = await engine();
  await check(container('app', 'running'), container('old', 'running'));
  await revival.docker.stop('old', 1);
  await revival.docker.remove('gone');
  engineRestarted('second', 100_000);
  const next = await restartAgent();
  await next.check(container('app', 'exited', 99_000), container('old', 'exited', 99_000));
  expect(started).toEqual(['app']);
});

test('after a restart of the agent alone, a container that stopped meanwhile is not started', async () => {
  const { restartAgent, started, check } = await engine();
  await check(container('app', 'running'));
  const next = await restartAgent();
  expect(await next.check(container('app', 'exited', 99_000))).toBe(false);
  expect(started).toEqual([]);
});

test('if the engine’s start is unknown, only containers that this process saw running are started', async () => {
  const { restartAgent, started, check, engineRestarted } = await engine();
  await check(container('app', 'running'));
  engineRestarted('', Number.NaN);
  const next = await restartAgent();
  await next.check(container('app', 'exited', 99_000));
  next.suspect();
  await next.check(container('app', 'exited', 99_000));
  expect(started).toEqual([]);
});
