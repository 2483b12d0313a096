/** Workspaces of tasks. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createWorkspaces } from '../../src/state/workspace.ts';

let dir: string;
beforeAll(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-workspace-'))));
afterAll(() => rm(dir, { recursive: true }));

it('workspaces are fresh, private and removed after every outcome; leftovers are removed at start', async () => {
  const root = join(dir, 'work');
  const workspaces = createWorkspaces(root, silentLogger());
  await mkdir(join(root, 'killed-1', 'source'), { recursive: true });
  await workspaces.removeLeftovers();
  expect(await readdir(root)).toEqual([]);
  await expect(
    workspaces.with('t-1', async (path) => {
      await writeFile(join(path, 'x'), 'y');
      throw new Error('no');
    }),
  ).rejects.toThrow('no');
  expect(await workspaces.with('t-1', async (path) => readdir(path))).toEqual([]);
  expect(await readdir(root)).toEqual([]);
});
