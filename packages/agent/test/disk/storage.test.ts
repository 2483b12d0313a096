/**
 * Free storage of SVC_ROOT. The first count is shared: a cancelled task does not end the wait of
 * another.
 */
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { existsSync } from 'node:fs';
import { silentLogger } from '@berth/kit/log';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createStorage } from '../../src/disk/storage.ts';

let dir: string;
beforeEach(async () => void (dir = await mkdtemp(join(tmpdir(), 'agent-storage-'))));
afterEach(() => rm(dir, { recursive: true, force: true, maxRetries: 3 }));

/** A fake `du` that records its start, and answers when the file `go` exists. */
async function slowStorage() {
  const script =
    `#!/bin/sh\n: > ${dir}/begun\nwhile [ ! -e ${dir}/go ]; do sleep 0.05; done\nprintf ` +
    `'1000\\t/\\n'\n`;
  await writeFile(join(dir, 'du'), script);
  await chmod(join(dir, 'du'), 0o755);
  return createStorage({
    root: dir,
    maxStorage: 5_000,
    inherit: { PATH: `${dir}:${process.env['PATH']}` },
    log: silentLogger(),
  });
}
const begun = (): Promise<unknown> =>
  waitFor('du has started', async () => existsSync(join(dir, 'begun')), {
    deadlineMs: 5_000,
    intervalMs: 10,
  });

it('when the task that started the count is cancelled, the other task still gets an answer', async () => {
  const storage = await slowStorage();
  const first = new AbortController();
  const cancelled = expect(storage.now(first.signal)).rejects.toThrow('cancelled');
  await begun();
  const second = storage.now(new AbortController().signal);
  first.abort(new Error('cancelled'));
  await cancelled;
  await writeFile(join(dir, 'go'), '');
  expect(await second).toMatchObject({ max: 5_000, free: 4_000 });
});

it('a task that waits for the count of another is cancelled at once', async () => {
  const storage = await slowStorage();
  const first = storage.now(new AbortController().signal);
  await begun();
  const second = new AbortController();
  const cancelled = expect(storage.now(second.signal)).rejects.toThrow('cancelled');
  second.abort(new Error('cancelled'));
  await cancelled;
  await writeFile(join(dir, 'go'), '');
  expect((await first).free).toBe(4_000);
});

it('free storage is the size of the disk or MAX_STORAGE, less the used bytes', async () => {
  const root = join(dir, 'svc');
  await mkdir(root);
  await writeFile(join(root, 'x'), Buffer.alloc(1_000_000));
  const inherit = { PATH: '/usr/bin:/bin' };
  const set = await createStorage({
    root,
    maxStorage: 5_000_000,
    inherit,
    log: silentLogger(),
  }).read(AbortSignal.timeout(9_000));
  expect(set.max).toBe(5_000_000);
  expect(set.free).toBeGreaterThan(3_900_000);
  expect(set.free).toBeLessThan(4_010_000);
  const none = await createStorage({
    root: join(root, 'not', 'there'),
    maxStorage: undefined,
    inherit,
    log: silentLogger(),
  }).read(AbortSignal.timeout(9_000));
  expect(none.max).toBeGreaterThan(1e9);
  expect(none.free).not.toBeNull();
});
