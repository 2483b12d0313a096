import { createHash } from 'node:crypto';
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { createSha256Pool, type FileToHash, type HashResult } from '../src/sha256-files.ts';

// On a busy machine a thread needs time to start.
vi.setConfig({ testTimeout: 30_000 });
afterAll(() => vi.resetConfig());

const scratch = (): string => {
  const dir = mkdtempSync(path.join(tmpdir(), 'berth-sha256-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
};
const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');
const shown = (result: HashResult): string =>
  result.kind === 'ok' ? Buffer.from(result.sha256).toString('hex') : JSON.stringify(result);

/** Maps each path to its hash in hex, or to the result as JSON. */
async function hashAll(
  paths: readonly (string | Buffer)[],
  workers = 2,
): Promise<Map<string, string>> {
  const results = new Map<string, string>();
  const pool = createSha256Pool<FileToHash>({ workers }, (file, result) => {
    expect(results.has(file.path.toString('latin1'))).toBe(false);
    results.set(file.path.toString('latin1'), shown(result));
  });
  onTestFinished(() => pool.close());
  for (const file of paths) await pool.add({ path: Buffer.from(file), size: 0 });
  await pool.drain();
  return results;
}

describe('hashes', () => {
  test('are correct for files of any size', async () => {
    const dir = scratch();
    const sizes = [0, 1, 4096, 1024 * 1024 - 1, 1024 * 1024, 1024 * 1024 + 1, 5_000_000];
    const contents = new Map(
      sizes.map((size) => [path.join(dir, String(size)), Buffer.alloc(size, String(size))]),
    );
    for (const [file, content] of contents) writeFileSync(file, content);
    const expected = [...contents].map(([file, content]) => [file, sha256(content)] as const);
    expect(await hashAll([...contents.keys()])).toEqual(new Map(expected));
  });

  test('of thousands of files with arbitrary names arrive exactly once each', async () => {
    const dir = scratch();
    const paths = Array.from({ length: 3000 }, (_, i) =>
      Buffer.concat([
        Buffer.from(`${dir}/`),
        Buffer.from([0xff, 0x0a, 0x2d]),
        Buffer.from(String(i)),
      ]),
    );
    for (const [i, file] of paths.entries()) writeFileSync(file, String(i));
    const results = await hashAll(paths, 3);
    expect(results).toEqual(
      new Map(paths.map((file, i) => [file.toString('latin1'), sha256(String(i))])),
    );
  });
});

describe('a file that changes', () => {
  test('is `changed` if it was removed or replaced by a folder, FIFO or symlink; other files get their hashes', async () => {
    const dir = scratch();
    const at = (name: string): string => path.join(dir, name);
    writeFileSync(at('file'), 'content');
    mkdirSync(at('folder'));
    symlinkSync('file', at('link'));
    const results = await hashAll([at('gone'), at('folder'), at('link'), at('file'), '/dev/null']);
    const changed = JSON.stringify({ kind: 'changed' });
    expect(Object.fromEntries(results)).toEqual({
      [at('gone')]: changed,
      [at('folder')]: changed,
      [at('link')]: changed,
      [at('file')]: sha256('content'),
      '/dev/null': changed,
    });
  });

  test('is `changed` if it is written during the read', async () => {
    const file = path.join(scratch(), 'growing');
    writeFileSync(file, '');
    truncateSync(file, 1_000_000_000);
    const results: HashResult[] = [];
    const pool = createSha256Pool<FileToHash>({ workers: 1 }, (_file, result) =>
      results.push(result),
    );
    onTestFinished(() => pool.close());
    void pool.add({ path: Buffer.from(file), size: 1_000_000_000 });
    await vi.waitFor(() => expect(pool.bytesRead()).toBeGreaterThan(0), {
      timeout: 20_000,
      interval: 1,
    });
    appendFileSync(file, 'x');
    await pool.drain();
    expect(pool.bytesRead()).toBeGreaterThanOrEqual(1_000_000_000);
    expect(results).toEqual([{ kind: 'changed' }]);
  });

  test('is an error with its code if it cannot be read', async () => {
    const name = path.join(scratch(), 'x'.repeat(300));
    expect(await hashAll([name])).toEqual(
      new Map([[name, JSON.stringify({ kind: 'error', code: 'ENAMETOOLONG' })]]),
    );
  });
});

describe('the pool', () => {
  test('can be used again after a drain, but not after a close', async () => {
    const dir = scratch();
    writeFileSync(path.join(dir, 'f'), 'x');
    const file = { path: Buffer.from(path.join(dir, 'f')), size: 1 };
    let count = 0;
    const pool = createSha256Pool<FileToHash>({ workers: 1 }, () => count++);
    await pool.drain();
    for (let i = 1; i <= 3; i++) {
      await pool.add(file);
      await pool.drain();
      expect(count).toBe(i);
    }
    pool.close();
    await expect(pool.add(file)).rejects.toThrow('was closed');
    await expect(pool.drain()).rejects.toThrow('was closed');
  });

  test('makes callers wait that add files faster than it hashes them', async () => {
    const dir = scratch();
    const file = path.join(dir, 'large');
    writeFileSync(file, '');
    truncateSync(file, 50_000_000);
    let done = 0;
    const pool = createSha256Pool<FileToHash>({ workers: 1 }, () => done++);
    onTestFinished(() => pool.close());
    for (let i = 0; i < 12; i++) {
      await pool.add({ path: Buffer.from(file), size: 100_000_000 });
      // One file is being read, and one waits for it.
      expect(i + 1 - done).toBeLessThanOrEqual(2);
    }
    await pool.drain();
    expect(done).toBe(12);
  });
});
