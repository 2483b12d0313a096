/** Runs in its own process, because only there a umask can be set. */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ensureCached, startShare, startSite } from './share.ts';

it('every user of a container can read copied files, whatever the umask of the agent is', async () => {
  const share = await startShare();
  await share.write('set/a/b/file', 'one', 0o600);
  const set = await share.dataset('set');
  const before = process.umask(0o077);
  const site = await startSite(share);
  try {
    await ensureCached(site, set);
    const mode = async (path: string): Promise<string> =>
      ((await stat(join(site.root, 'objects/set/v1', path))).mode & 0o777).toString(8);
    expect(await Promise.all(['.', 'a', 'a/b', 'a/b/file'].map(mode))).toEqual([
      '755',
      '755',
      '755',
      '444',
    ]);
  } finally {
    process.umask(before);
    await site.data.stop();
    await share.stop();
  }
});
