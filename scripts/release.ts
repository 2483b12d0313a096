/**
 * npm run release -- VERSION: makes a version. It checks the tree, the number and CHANGELOG.md, runs
 * `npm run check`, writes the number into every file that has it, commits, and sets the tag. It
 * pushes nothing.
 */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { messageOf } from '@berth/kit/message-of';
import { BERTH_VERSION, isOlderVersion } from '../packages/wire/src/version.ts';
import { VERSION_FILES, withRelease, withVersion } from './lib/release.ts';

const root = join(import.meta.dirname, '..');
const git = (...args: string[]): string =>
  execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();

function refuse(reason: string): never {
  console.error(`npm run release: ${reason}`);
  process.exit(2);
}

const version = process.argv[2] ?? '';
if (!/^\d+\.\d+\.\d+$/.test(version)) refuse('name the version, such as 0.2.0');
if (!isOlderVersion(BERTH_VERSION, version))
  refuse(`${version} is not newer than ${BERTH_VERSION}`);
if (git('status', '--porcelain') !== '') refuse('commit your changes first');
if (git('tag', '--list', `v${version}`) !== '') refuse(`the tag v${version} exists`);

const changelog = join(root, 'CHANGELOG.md');
const date = new Date().toISOString().slice(0, 10);
let released = '';
try {
  released = withRelease(readFileSync(changelog, 'utf8'), version, date);
} catch (error) {
  refuse(messageOf(error));
}
execFileSync(process.execPath, [join(root, 'scripts', 'check.ts')], {
  cwd: root,
  stdio: 'inherit',
});

writeFileSync(changelog, released);
for (const [pattern, where] of VERSION_FILES)
  for (const file of globSync(pattern, { cwd: root })) {
    const { text, before } = withVersion(readFileSync(join(root, file), 'utf8'), where, version);
    if (before.length === 0 || before.some((old) => old !== BERTH_VERSION))
      refuse(`${file} has ${before.join(', ') || 'no version'} instead of ${BERTH_VERSION}`);
    writeFileSync(join(root, file), text);
  }
git('commit', '--quiet', '--all', '--message', `Version ${version}`);
git('tag', '--annotate', `v${version}`, '--message', `Berth ${version}`);
console.log(`version ${version} is committed and has the tag v${version}; push both:`);
console.log(`  git push origin HEAD v${version}`);
