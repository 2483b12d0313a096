/** Finding the project's Dockerfile. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findDockerfile } from '../src/dockerfile.ts';

let dir: string;
beforeAll(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-dockerfile-'))));
afterAll(() => rm(dir, { recursive: true }));

it('accepts a file inside the clone, also through symlinks, and refuses one outside', async () => {
  const root = join(dir, 'clone');
  await mkdir(join(root, 'sub'), { recursive: true });
  await writeFile(join(root, 'Dockerfile'), 'x');
  await writeFile(join(dir, 'secret'), 'x');
  await symlink('../Dockerfile', join(root, 'sub', 'inside'));
  await symlink('../../secret', join(root, 'sub', 'outside'));
  await symlink('/etc/passwd', join(root, 'absolute'));
  await symlink('/no/such/place', join(root, 'nowhere'));
  await symlink('..', join(root, 'up'));
  await symlink('loop', join(root, 'loop'));
  expect(await findDockerfile(root, 'Dockerfile')).toMatch(/clone\/Dockerfile$/);
  expect(await findDockerfile(root, './sub/../Dockerfile')).toMatch(/clone\/Dockerfile$/);
  expect(await findDockerfile(root, 'sub/inside')).toMatch(/clone\/Dockerfile$/);
  for (const path of ['sub/outside', 'absolute', '../secret', '/etc/passwd', 'up/secret', 'nowhere', 'loop'])
    await expect(findDockerfile(root, path), path).rejects.toMatchObject({ code: 'dockerfile_outside' });
  for (const path of ['missing', 'sub', 'Dockerfile/x', 'x'.repeat(300)])
    await expect(findDockerfile(root, path), path).rejects.toMatchObject({ code: 'dockerfile_missing' });
});
