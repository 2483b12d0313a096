/** Finding the project's Dockerfile. */
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { findDockerfile } from '../../src/build/dockerfile.ts';

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
  for (const path of [
    'sub/outside',
    'absolute',
    '../secret',
    '/etc/passwd',
    'up/secret',
    'nowhere',
    'loop',
  ])
    await expect(findDockerfile(root, path), path).rejects.toMatchObject({
      code: 'dockerfile_outside',
    });
  for (const path of ['missing', 'sub', 'Dockerfile/x', 'x'.repeat(300)])
    await expect(findDockerfile(root, path), path).rejects.toMatchObject({
      code: 'dockerfile_missing',
    });
});

it('a missing Dockerfile: the failure names those that are there', async () => {
  const root = join(dir, 'others');
  await mkdir(join(root, 'web'), { recursive: true });
  await mkdir(join(root, 'node_modules/x'), { recursive: true });
  await writeFile(join(root, 'node_modules/x/Dockerfile'), 'x');
  await symlink('/', join(root, 'outside'));
  const failure = (path: string): Promise<string> =>
    findDockerfile(root, path).then(
      () => '',
      (error: Error) => error.message,
    );
  expect(await failure('Dockerfile')).toMatch(
    /: Dockerfile\. The repository has no Dockerfile; add one, or set dockerfile_path to its path$/,
  );
  await writeFile(join(root, 'web/Dockerfile'), 'x');
  expect(await failure('Dockerfile')).toMatch(
    /The repository has web\/Dockerfile; set dockerfile_path to the right one$/,
  );
  await writeFile(join(root, 'dockerfile'), 'x');
  expect(await failure('Dockerfile')).toMatch(
    /The repository has dockerfile, web\/Dockerfile; set dockerfile_path/,
  );
  expect(await failure('web')).toMatch(/web is not a file\. The repository has dockerfile/);
  for (let i = 0; i < 9; i += 1) await writeFile(join(root, `web/Dockerfile.${i}`), 'x');
  expect(await failure('Dockerfile')).toMatch(
    /has dockerfile, web\/Dockerfile, web\/Dockerfile\.0, web\/Dockerfile\.1, web\/Dockerfile\.2, and others;/,
  );
});
