/** A node with a full disk or an unusable SVC_ROOT is not ready, and reports the reason. */
import { execFileSync } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, it } from 'vitest';
import {
  missingParts,
  type RealParts,
  type Site,
  startRealParts,
  startSite,
} from '../real-parts.ts';

describe.skipIf(missingParts !== undefined || process.getuid?.() !== 0)(
  'a full disk (needs root and an engine)',
  () => {
    let parts: RealParts;
    let disk: string;
    beforeAll(async () => {
      parts = await startRealParts();
      disk = join(parts.dir, 'small');
      await mkdir(disk, { recursive: true });
      execFileSync('/usr/bin/mount', ['-t', 'tmpfs', '-o', 'size=4m', 'tmpfs', disk]);
    }, 120_000);
    afterAll(async () => {
      execFileSync('/usr/bin/umount', ['--lazy', disk]);
      await parts?.stop();
    }, 60_000);

    const readyz = async (site: Site): Promise<{ status: number; reasons: string[] }> => {
      const response = await fetch(`http://127.0.0.1:${site.agent.healthPort()}/readyz`);
      const { reasons } = (await response.json()) as { reasons: string[] };
      return { status: response.status, reasons };
    };
    const ready = (site: Site): Promise<unknown> =>
      waitFor('the agent is ready', async () => (await readyz(site)).status === 200);

    it('makes the agent not ready until it has room again', async () => {
      const site = await startSite(parts, { SVC_ROOT: disk });
      await ready(site);
      await writeFile(join(disk, 'filler'), Buffer.alloc(5_000_000)).catch(() => undefined);
      await waitFor('the agent reports a full SVC_ROOT', async () => {
        const { status, reasons } = await readyz(site);
        return (
          status === 503 &&
          reasons.join().startsWith(`SVC_ROOT (${disk}) cannot be written: ENOSPC`)
        );
      });
      await rm(join(disk, 'filler'));
      await ready(site);
      await site.stop();
    });

    it('an SVC_ROOT that is unusable at the start is reported until the agent restarts', async () => {
      const file = join(parts.dir, 'not-a-folder');
      await writeFile(file, '');
      const site = await startSite(parts, { SVC_ROOT: file });
      await waitFor('the agent has registered', () => site.agent.nodeId() !== null);
      await rm(file);
      await mkdir(file);
      await waitFor('the agent reports that it takes no datasets', async () => {
        const { status, reasons } = await readyz(site);
        return (
          status === 503 &&
          reasons.length === 1 &&
          /^this node takes no datasets: SVC_ROOT .* restart the agent$/.test(reasons[0] ?? '')
        );
      });
      await site.stop();
    });
  },
);
