/** The version stands in several files, and CHANGELOG.md has one short section a version. */
import { execFileSync } from 'node:child_process';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BERTH_VERSION } from '../packages/wire/src/version.ts';
import { makeVersion } from '../scripts/lib/make-version.ts';
import {
  changelogProblems,
  notesOf,
  VERSION_FILES,
  withRelease,
  withVersion,
} from '../scripts/lib/release.ts';

const ROOT = path.resolve(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(path.join(ROOT, file), 'utf8');

test.each(VERSION_FILES)('%s has the version of Berth', (pattern, where) => {
  const files = globSync(pattern, { cwd: ROOT });
  expect(files).not.toEqual([]);
  for (const file of files) {
    const { before } = withVersion(read(file), where, '9.9.9');
    expect(before, file).not.toEqual([]);
    expect(new Set(before), file).toEqual(new Set([BERTH_VERSION]));
  }
});

test('package-lock.json has the version of every package of Berth', () => {
  const [, where] = VERSION_FILES.find(([file]) => file === 'package-lock.json') ?? [];
  const packages = globSync('packages/*/package.json', { cwd: ROOT }).length;
  const { before } = withVersion(read('package-lock.json'), where ?? /(?!)/, '9.9.9');
  // The root twice.
  expect(before).toHaveLength(packages + 2);
});

test('CHANGELOG.md has one section a version, at most ten lines each, the steps first', () => {
  expect(changelogProblems(read('CHANGELOG.md'), BERTH_VERSION)).toEqual([]);
});

test('the notes of a release are its section of CHANGELOG.md', () => {
  const notes = notesOf(read('CHANGELOG.md'), BERTH_VERSION);
  expect(notes).toMatch(new RegExp(`^# Berth ${BERTH_VERSION} \\(`));
  expect(notes).not.toMatch(/^## /m);
  expect(() => notesOf('## Unreleased\n', '9.9.9')).toThrow('no section for 9.9.9');
});

const LINES = (n: number): string => '- a line\n'.repeat(n);
const changelog = (unreleased: string, newest = LINES(2)): string =>
  `# Changelog\n\n## Unreleased\n\n${unreleased}\n## 0.1.0 (2026-01-01)\n\n### Changes\n\n${newest}`;

describe('the form of CHANGELOG.md', () => {
  test.each([
    ['a version that is not there', changelog(''), '0.2.0', 'is not “0.2.0 (DATE)”'],
    ['eleven lines', changelog('', LINES(11)), '0.1.0', '11 lines, at most 10'],
    [
      'the steps last',
      changelog('### Changes\n\n- a\n\n### Before you upgrade\n\n- b\n'),
      '0.1.0',
      'Unreleased: the groups are “Changes”, “Before you upgrade”',
    ],
    ['a line in no group', changelog('- a\n'), '0.1.0', 'Unreleased: 1 lines stand in no group'],
    ['no section for the next version', '## 0.1.0 (2026-01-01)\n', '0.1.0', 'not “Unreleased”'],
  ])('%s is a problem', (_, text, version, problem) => {
    expect(changelogProblems(text, version).join('\n')).toContain(problem);
  });
});

describe('a new version', () => {
  test('gets the lines of “Unreleased”, which is empty afterwards', () => {
    const text = withRelease(changelog('### Changes\n\n- new\n'), '0.2.0', '2026-02-03');
    expect(changelogProblems(text, '0.2.0')).toEqual([]);
    expect(text).toContain('## Unreleased\n\n## 0.2.0 (2026-02-03)\n\n### Changes\n\n- new\n');
  });
  test.each([
    ['no line', changelog(''), 'no line under “Unreleased”'],
    ['more than ten', changelog(`### Changes\n\n${LINES(11)}`), '11 lines under “Unreleased”'],
  ])('is refused with %s', (_, text, problem) => {
    expect(() => withRelease(text, '0.2.0', '2026-02-03')).toThrow(problem);
  });
});

describe('npm run release', () => {
  let root = '';
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: root, encoding: 'utf8' }).trim();
  const versionIn = (file: string): unknown =>
    (JSON.parse(readFileSync(path.join(root, file), 'utf8')) as { version: unknown }).version;
  beforeEach(() => {
    root = mkdtempSync(path.join(tmpdir(), 'berth-version-'));
    for (const [pattern] of VERSION_FILES)
      for (const file of globSync(pattern, { cwd: ROOT }))
        cpSync(path.join(ROOT, file), path.join(root, file));
    writeFileSync(
      path.join(root, 'CHANGELOG.md'),
      changelog('### Changes\n\n- new\n').replace('0.1.0', BERTH_VERSION),
    );
    git('init', '--quiet');
    git('config', 'user.name', 'Ada');
    git('config', 'user.email', 'ada@example.org');
    git('add', '--all');
    git('commit', '--quiet', '--message', 'All');
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));
  const make = (check: () => boolean, version = '99.0.0'): Promise<void> =>
    makeVersion({
      ...{ root, before: BERTH_VERSION, version, date: '2026-02-03' },
      check: async () => check(),
    });

  test('checks the tree with the new number, then commits it and sets the tag', async () => {
    const seen: unknown[] = [];
    await make(() => {
      seen.push(versionIn('package.json'), versionIn('packages/wire/package.json'), git('tag'));
      const text = readFileSync(path.join(root, 'CHANGELOG.md'), 'utf8');
      seen.push(changelogProblems(text, '99.0.0'), git('log', '-1', '--format=%s'));
      return true;
    });
    expect(seen).toEqual(['99.0.0', '99.0.0', '', [], 'All']);
    expect(git('log', '-1', '--format=%s')).toBe('Version 99.0.0');
    expect(git('describe', '--exact-match')).toBe('v99.0.0');
    expect(git('status', '--porcelain')).toBe('');
    expect(git('show', 'HEAD:packages/wire/src/version.ts')).toContain("'99.0.0'");
    // Compose runs the image of this version, and its page names that image only.
    expect(git('show', 'HEAD:deploy/compose.yml')).toContain('BERTH_IMAGE:-berth:99.0.0}');
    for (const file of ['deploy/compose/env.example', 'deploy/Dockerfile', 'docs/compose.md'])
      expect(git('show', `HEAD:${file}`).match(/\bberth:\d[\d.]*\d/g), file).toSatisfy(
        (all: string[]) => all.every((image) => image === 'berth:99.0.0'),
      );
  });

  test.each([
    ['fails', () => false, 'a check failed with the new number'],
    [
      'cannot start',
      () => {
        throw new Error('no vitest');
      },
      'no vitest',
    ],
  ])('a check that %s leaves no tag, no commit and no change', async (_, check, reason) => {
    await expect(make(check)).rejects.toThrow(reason);
    expect(git('status', '--porcelain')).toBe('');
    expect([git('log', '--format=%s'), git('tag')]).toEqual(['All', '']);
  });

  test.each([
    ['a word', 'next', 'name the version, such as 0.2.0', ''],
    ['an older number', '0.0.1', `0.0.1 is not newer than ${BERTH_VERSION}`, ''],
    ['changes without a commit', '99.0.0', 'commit your changes first', 'note.txt'],
    ['a file with another number', '99.0.0', 'package.json has 5.0.0 instead of', 'package.json'],
  ])('%s is refused before any check', async (_, version, reason, file) => {
    let checks = 0;
    if (file !== '') writeFileSync(path.join(root, file), '{\n  "version": "5.0.0",\n}\n');
    if (file === 'package.json') git('commit', '--quiet', '--all', '--message', 'Other');
    await expect(make(() => ++checks > 0, version)).rejects.toThrow(reason);
    expect(checks).toBe(0);
  });

  test('runs the slow tests also: some of them have the number in a text', () => {
    const text = read('scripts/release.ts');
    expect(text).toContain("['unit', 'slow']");
  });
});
