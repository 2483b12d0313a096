/**
 * A power failure at any moment of writeFileWhole leaves the old content or the new one, on a real
 * ext4.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findProgram } from '@berth/testbed/config';
import { expect, test } from 'vitest';

const run = promisify(execFile);

async function whyNot(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return 'needs root';
  for (const program of ['mkfs.ext4', 'unshare', 'losetup'])
    if (findProgram(program) === undefined) return `needs ${program}`;
  return run('losetup', ['--find']).then(
    () => undefined,
    () => 'needs a loop device',
  );
}
const missing = await whyNot();

test.skipIf(missing !== undefined)(
  `a power failure after the rename keeps the old or the new content${missing === undefined ? '' : ` (${missing})`}`,
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'berth-power-'));
    try {
      const script = join(import.meta.dirname, 'power-loss.ts');
      const { stdout } = await run('unshare', [
        '--mount',
        '--propagation',
        'private',
        process.execPath,
        script,
        folder,
      ]);
      const seen = JSON.parse(stdout) as { pasted: string; whole: string; rounds: string[] };
      // Shows that this disk loses content: without the flush, the new name leads to a file without
      // it.
      expect(seen.pasted).toBe('');
      expect(seen.whole).toBe('new');
      expect(seen.rounds.length).toBeGreaterThan(0);
      for (const text of seen.rounds) {
        const [length, rest] = text.split('\n');
        expect(rest).toHaveLength(Number(length));
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
);
