/**
 * Rules for the folder of a dataset, checked by a real child process: each rule that the API
 * answers with.
 */
import { type ChildProcess, execFileSync } from 'node:child_process';
import { EventEmitter } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createCheckFolder } from '../../src/monitor/check-folder.ts';
import { scratchFolder } from './support.ts';

const dir = (): string => {
  const base = join(scratchFolder(), 'base');
  mkdirSync(join(base, 'lab/genomes'), { recursive: true });
  mkdirSync(join(base, '../outside'));
  writeFileSync(join(base, 'a-file'), '');
  symlinkSync('lab/genomes', join(base, 'inside'));
  symlinkSync('../outside', join(base, 'out'));
  symlinkSync('circle', join(base, 'circle'));
  return base;
};

test('a folder below the base is fine, also by a symlink that stays inside', async () => {
  const checkFolder = createCheckFolder(dir());
  expect(await checkFolder('lab/genomes')).toBeNull();
  expect(await checkFolder('inside')).toBeNull();
});

test.each([
  ['nowhere', 'missing'],
  ['a-file', 'not_a_folder'],
  ['a-file/below', 'not_a_folder'],
  ['out', 'outside'],
  ['.', 'outside'],
  ['circle', 'outside'],
])('%s: %s', async (path, rule) => {
  expect(await createCheckFolder(dir())(path)).toMatchObject({ rule });
});

test('a share that is not there, none at all, and one that does not answer in time', async () => {
  const base = dir();
  expect(await createCheckFolder(join(base, 'gone'))('lab')).toMatchObject({ rule: 'unreachable' });
  expect(await createCheckFolder(null)('lab')).toMatchObject({ rule: 'no_share' });
  expect(await createCheckFolder(base, 1)('lab')).toMatchObject({
    rule: 'unreachable',
    message: expect.stringContaining('did not answer'),
  });
});

test.each([
  ['ESTALE', 'is gone on the server (stale file handle); mount the share again'],
  ['EIO', 'cannot be read (input/output error)'],
])('a folder that is found and then cannot be read (%s) is unreachable', (code, reason) => {
  const base = dir();
  const breaks = `import fs from 'node:fs'; import { syncBuiltinESMExports } from 'node:module';
fs.statSync = () => { throw Object.assign(new Error('gone'), { code: '${code}' }); }; syncBuiltinESMExports();`;
  const child = fileURLToPath(
    new URL('../../src/monitor/child/check-folder-child.ts', import.meta.url),
  );
  const preload = `data:text/javascript,${encodeURIComponent(breaks)}`;
  const answer = execFileSync(process.execPath, ['--import', preload, child, base, 'lab'], {
    encoding: 'utf8',
  });
  expect(JSON.parse(answer)).toEqual({ rule: 'unreachable', message: `“lab” ${reason}` });
});

describe('many looks at once', () => {
  /**
   * Processes that answer and end only on request, like processes that hang in the kernel and
   * ignore every signal.
   */
  function heldChildren() {
    const started: { end(): void }[] = [];
    const start = (): ChildProcess => {
      const stdout = new PassThrough();
      const child = Object.assign(new EventEmitter(), {
        pid: 1,
        stdout,
        kill: () => true,
        unref: () => undefined,
      });
      started.push({
        end() {
          stdout.write('null');
          // Ends after its output.
          setImmediate(() => {
            child.emit('exit', 0, null);
            child.emit('close', 0, null);
          });
        },
      });
      return child as unknown as ChildProcess;
    };
    return { started, start };
  }
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

  test('four run at a time, the others in their turn', async () => {
    const { started, start } = heldChildren();
    const checkFolder = createCheckFolder('/base', 30_000, start);
    const answers = Promise.all(Array.from({ length: 6 }, () => checkFolder('lab')));
    await turn();
    expect(started).toHaveLength(4);
    for (let i = 0; i < 6; i += 1) {
      started[i]?.end();
      await turn();
      await turn();
      expect(started).toHaveLength(Math.min(6, 5 + i));
    }
    expect(await answers).toEqual(Array.from({ length: 6 }, () => null));
  });

  test('while four checks hang, the next one is refused at once; when one exits, checks start again', async () => {
    const { started, start } = heldChildren();
    const checkFolder = createCheckFolder('/base', 100, start);
    const hung = await Promise.all(Array.from({ length: 4 }, () => checkFolder('lab')));
    expect(hung.map((answer) => answer?.message)).toEqual(
      Array.from({ length: 4 }, () => 'the shared storage did not answer within 0.1 s'),
    );
    expect(await checkFolder('lab')).toMatchObject({
      rule: 'unreachable',
      message: expect.stringContaining('no other check can start'),
    });
    expect(started).toHaveLength(4);
    started[0]?.end();
    await turn();
    await turn();
    const again = checkFolder('lab');
    await turn();
    expect(started).toHaveLength(5);
    started[4]?.end();
    expect(await again).toBeNull();
  });
});
