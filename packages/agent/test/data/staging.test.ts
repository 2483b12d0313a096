import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openFilesBelow } from '@berth/testbed/open-files';
import { expect, it, onTestFinished, vi } from 'vitest';
import { makeStaging } from '../../src/data/staging.ts';

it('closes both of its lists when the disk is full', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'berth-staging-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const probe = await open(import.meta.filename);
  const full = vi
    .spyOn(Object.getPrototypeOf(probe) as typeof probe, 'appendFile')
    .mockRejectedValue(Object.assign(new Error('no space left'), { code: 'ENOSPC' }));
  onTestFinished(() => full.mockRestore());
  await probe.close();

  const staging = makeStaging(join(folder, 'place'), {
    root: 'sha256:0',
    load: () => Promise.reject(new Error('stopped')),
    sources: [],
    signal: new AbortController().signal,
  });
  await expect(staging).rejects.toMatchObject({ code: 'ENOSPC' });
  expect(openFilesBelow(folder)).toEqual([]);
});
