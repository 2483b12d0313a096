/**
 * The last landed release of Berth, from git, for tests of upgrades. It uses the npm packages of
 * this checkout.
 */
import { existsSync, mkdirSync, readdirSync, symlinkSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { repositoryRoot } from './config.ts';
import { run } from './process.ts';

export type Release = { root: string; commit: string; remove(): Promise<void> };

const git = (...args: string[]) =>
  run(['git', '-c', 'safe.directory=*', '-C', repositoryRoot, ...args], { mayFail: true });

/**
 * Returns the commit of the last release, which `npm run release` made; undefined without one. A
 * clone does not need to have the tags.
 */
async function lastRelease(): Promise<string | undefined> {
  const subject = '^Version [0-9]+\\.[0-9]+\\.[0-9]+$';
  const { stdout } = await git('log', '-1', '--format=%H', '-E', `--grep=${subject}`, 'HEAD~1');
  return stdout.trim() === '' ? undefined : stdout.trim();
}

/**
 * Returns why the release cannot be had; undefined when it can. A clone with `--depth` has no
 * earlier commits.
 */
export async function whyNoRelease(): Promise<string | undefined> {
  const commit = await lastRelease();
  if (commit === undefined) return 'no release in this clone (git fetch --unshallow)';
  const changed = await git('diff', '--name-only', commit, '--', 'package-lock.json');
  const major = changed.stdout.trim() === '' ? undefined : await changedDependencies(commit);
  return major === undefined ? undefined : `the release needs other packages: ${major}`;
}

/**
 * Returns packages of the release that this checkout has in another major version, or does not
 * have.
 */
async function changedDependencies(commit: string): Promise<string | undefined> {
  type Lock = { packages: Record<string, { version?: string; dev?: boolean }> };
  const [then, now] = [
    JSON.parse((await git('show', `${commit}:package-lock.json`)).stdout) as Lock,
    JSON.parse(await readFile(join(repositoryRoot, 'package-lock.json'), 'utf8')) as Lock,
  ];
  const major = (version: string | undefined): string => (version ?? '').split('.')[0] ?? '';
  const wrong = Object.entries(then.packages).filter(
    ([path, { version, dev }]) =>
      path.startsWith('node_modules/') &&
      dev !== true &&
      major(version) !== major(now.packages[path]?.version),
  );
  return wrong.length === 0
    ? undefined
    : wrong.map(([path]) => path.slice('node_modules/'.length)).join(', ');
}

/** @throws {Error} If this clone has no release (`whyNoRelease`). */
export async function provideRelease(): Promise<Release> {
  const commit = await lastRelease();
  if (commit === undefined) throw new Error('this clone has no commit of a release');
  const root = await mkdtemp(join(tmpdir(), 'berth-release-'));
  const archive = join(root, 'release.tar');
  await run([
    'git',
    '-c',
    'safe.directory=*',
    '-C',
    repositoryRoot,
    'archive',
    '--format=tar',
    `--output=${archive}`,
    commit,
  ]);
  await run(['tar', '-xf', archive, '-C', root]);
  await rm(archive);
  linkPackages(root, '.');
  for (const name of readdirSync(join(root, 'packages')))
    linkPackages(root, join('packages', name));
  // Programs that set-up fetched.
  symlinkSync(join(repositoryRoot, '.tools'), join(root, '.tools'));
  return { root, commit, remove: () => rm(root, { recursive: true, force: true }) };
}

/** Links every installed package, but the release's own packages of Berth. */
function linkPackages(root: string, folder: string): void {
  const [from, to] = [
    join(repositoryRoot, folder, 'node_modules'),
    join(root, folder, 'node_modules'),
  ];
  if (!existsSync(from)) return;
  mkdirSync(to);
  for (const name of readdirSync(from))
    if (name !== '@berth') symlinkSync(join(from, name), join(to, name));
  if (folder !== '.') return;
  mkdirSync(join(to, '@berth'));
  for (const name of readdirSync(join(root, 'packages')))
    symlinkSync(join(root, 'packages', name), join(to, '@berth', name));
}
