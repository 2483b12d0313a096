/**
 * Every npm script of this repository answers --help before it sets up or starts anything, and
 * refuses options that it does not have.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '..');
const { scripts } = JSON.parse(readFileSync(path.join(ROOT, 'package.json'), 'utf8')) as {
  scripts: Record<string, string>;
};
const OWN = Object.entries(scripts).flatMap(([name, command]) => {
  const words = /^node (scripts\/\S+(?: [\w-]+)?)$/.exec(command)?.[1];
  return words === undefined ? [] : [[name, words] as const];
});
/** The file that does the work: `node scripts/run.mjs sim` hands over to sim.ts. */
const ownFile = (words: string): string => {
  const [script = '', part] = words.split(' ');
  return part !== undefined && existsSync(path.join(ROOT, `scripts/${part}.ts`))
    ? `scripts/${part}.ts`
    : script;
};
/** Without BERTH and npm variables; the PATH has no program that a script could start. */
const run = (words: string, ...args: string[]) =>
  spawnSync(process.execPath, [...words.split(' '), ...args], {
    cwd: ROOT,
    env: { PATH: '/nowhere' },
    encoding: 'utf8',
    timeout: 30_000,
  });

test('all scripts of package.json are known', () => {
  expect(OWN.length).toBeGreaterThan(15);
  const others = Object.keys(scripts).filter((name) => !OWN.some(([own]) => own === name));
  expect(others.toSorted()).toEqual(['dead', 'format', 'format:check', 'lint', 'types']);
});

describe.each(OWN)('npm run %s', (name, words) => {
  test.each(['--help', '-h'])('%s says what it does, and starts nothing', (flag) => {
    const { status, stdout, stderr } = run(words, 'word', flag);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    expect(stdout.split('\n')[0]).toBe(`npm run ${name} -- [options]`);
    expect(stdout.split('\n')[1]).toMatch(/^[a-z].{20,}/);
  });
  test('names each option that the script reads', () => {
    const text = readFileSync(path.join(ROOT, ownFile(words)), 'utf8');
    const options = /parseArgs\(\{\n {2}options: \{\n([\s\S]*?)\n {2}\},/.exec(text)?.[1] ?? '';
    const names = [...options.matchAll(/^ {4}'?([a-z-]+)'?: \{/gm)].map(([, one]) => `--${one}`);
    const help = run(words, '--help').stdout;
    expect(names.filter((one) => one !== '--help' && !help.includes(`${one} `))).toEqual([]);
  });
  test('an option that it does not have is refused', () => {
    const passes = run(words, '--help').stdout.includes('passed to vitest');
    if (passes) return;
    const { status, stdout, stderr } = run(words, '--no-such-option=1');
    expect(status).toBe(2);
    expect(stdout + stderr).toContain(
      `npm run ${name} has no option --no-such-option; see npm run ${name} -- --help`,
    );
  });
});
