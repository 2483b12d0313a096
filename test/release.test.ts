/** The version stands in several files, and CHANGELOG.md has one short section a version. */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { BERTH_VERSION } from '../packages/wire/src/version.ts';
import {
  changelogProblems,
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
