/** Makes a version of Berth in a git repository. */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isOlderVersion } from '../../packages/wire/src/version.ts';
import { VERSION_FILES, withRelease, withVersion } from './release.ts';

export type NewVersion = {
  root: string;
  /** The version that the tree has. */
  before: string;
  version: string;
  date: string;
  /** Runs while the tree has the new number: tests that break with it must not get a tag. */
  check: () => Promise<boolean>;
};

/** A person who ends a check gets the files back, too. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/**
 * Writes the number, checks, commits and sets the tag. If anything fails before the commit, the
 * files are as they were.
 * @throws {Error} The reason, as text for the person who makes the version.
 */
export async function makeVersion(of: NewVersion): Promise<void> {
  const { root, before, version } = of;
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
  if (!/^\d+\.\d+\.\d+$/.test(version)) throw new Error('name the version, such as 0.2.0');
  if (!isOlderVersion(before, version)) throw new Error(`${version} is not newer than ${before}`);
  if (git('status', '--porcelain') !== '') throw new Error('commit your changes first');
  if (git('tag', '--list', `v${version}`) !== '') throw new Error(`the tag v${version} exists`);

  const texts = textsOf(of);
  const old = new Map([...texts.keys()].map((file) => [file, readFileSync(file)]));
  const restore = (): void => old.forEach((text, file) => writeFileSync(file, text));
  const stop = (): void => {
    restore();
    process.exit(1);
  };
  SIGNALS.forEach((signal) => process.on(signal, stop));
  try {
    texts.forEach((text, file) => writeFileSync(file, text));
    if (!(await of.check())) throw new Error('a check failed with the new number: no version');
    git('commit', '--quiet', '--message', `Version ${version}`, '--', ...texts.keys());
  } catch (error) {
    restore();
    throw error;
  } finally {
    SIGNALS.forEach((signal) => process.off(signal, stop));
  }
  git('tag', '--annotate', `v${version}`, '--message', `Berth ${version}`);
}

/** Returns the new text of each file that has the number, and of CHANGELOG.md. */
function textsOf({ root, before, version, date }: NewVersion): Map<string, string> {
  const changelog = join(root, 'CHANGELOG.md');
  const texts = new Map([[changelog, withRelease(readFileSync(changelog, 'utf8'), version, date)]]);
  for (const [pattern, where] of VERSION_FILES)
    for (const name of globSync(pattern, { cwd: root })) {
      const file = join(root, name);
      const { text, before: there } = withVersion(readFileSync(file, 'utf8'), where, version);
      if (there.length === 0 || there.some((number) => number !== before))
        throw new Error(`${name} has ${there.join(', ') || 'no version'} instead of ${before}`);
      texts.set(file, text);
    }
  return texts;
}
