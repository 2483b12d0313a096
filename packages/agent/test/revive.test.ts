/** Which stopped containers are started again after the engine was away, and which never are. */
import { expect, test } from 'vitest';
import { silentLogger } from '@berth/kit/log';
import { createRevival } from '../src/revive.ts';
import type { Container, Docker } from '../src/tools/docker.ts';

const container = (id: string, state: string): Container =>
  ({ id, name: id, state, exitCode: state === 'exited' ? 137 : 0 }) as unknown as Container;

function engine(policies: Record<string, string> = {}) {
  const started: string[] = [];
  const docker = {
    restartPolicy: async (id: string) => policies[id] ?? 'unless-stopped',
    start: async (id: string) => {
      if (id === 'broken') throw new Error('no such image');
      started.push(id);
    },
    stop: async () => undefined,
    remove: async () => undefined,
  } as unknown as Docker;
  let now = 0;
  const revival = createRevival(docker, silentLogger(), () => now);
  return {
    revival,
    started,
    later: (ms: number) => (now += ms),
    look: (...seen: Container[]) => revival.look(seen, new AbortController().signal),
  };
}

test('what ran before the engine was killed and is stopped after it is started again', async () => {
  const { revival, started, look } = engine();
  await look(container('app', 'running'));
  revival.suspect();
  expect(await look(container('app', 'exited'))).toBe(true);
  expect(started).toEqual(['app']);
});

test('also when the engine answers first and stops it a moment later; not long after', async () => {
  const { revival, started, look, later } = engine();
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

test.each<[string, (e: ReturnType<typeof engine>) => Promise<unknown>]>([
  ['the engine was there all the time: a person stopped it', async ({ look }) => look(container('app', 'running'))],
  [
    'it was stopped before already',
    async ({ look, revival }) => {
      await look(container('app', 'exited'));
      revival.suspect();
    },
  ],
  ['it was never seen: this process has just begun', async ({ revival }) => revival.suspect()],
  [
    'a task of ours stopped it',
    async ({ look, revival }) => {
      await look(container('app', 'running'));
      await revival.docker.stop('app', 1);
      revival.suspect();
    },
  ],
])('not when %s', async (_, before) => {
  const e = engine();
  await before(e);
  expect(await e.look(container('app', 'exited'))).toBe(false);
  expect(e.started).toEqual([]);
});

test('one without its restart policy is its deploy task’s business; one that cannot be started does not keep the others down', async () => {
  const { revival, started, look } = engine({ young: 'no' });
  await look(...['young', 'broken', 'app'].map((id) => container(id, 'running')));
  revival.suspect();
  expect(await look(...['young', 'broken', 'app'].map((id) => container(id, 'exited')))).toBe(true);
  expect(started).toEqual(['app']);
});

test('after recreate put a container back it counts as running again', async () => {
  const { revival, started, look } = engine();
  await look(container('app', 'running'));
  await revival.docker.stop('app', 1);
  await revival.docker.start('app');
  started.length = 0;
  await look(container('app', 'running'));
  revival.suspect();
  await look(container('app', 'exited'));
  expect(started).toEqual(['app']);
});
