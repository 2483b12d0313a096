import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findProgram } from '../src/config.ts';
import { registryProgram, startRegistry } from '../src/registry.ts';

const missing = registryProgram() === undefined || findProgram('htpasswd') === undefined;

// Skipped without docker-registry or htpasswd.
describe.skipIf(missing)('registry', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'berth-registry-test-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('requires the password', async () => {
    const registry = await startRegistry({
      dir: join(folder, 'closed'),
      user: 'berth',
      password: 'right',
    });
    try {
      const ask = (password: string) =>
        fetch(`${registry.url}/v2/`, {
          headers: {
            authorization: `Basic ${Buffer.from(`berth:${password}`).toString('base64')}`,
          },
        });
      expect((await fetch(`${registry.url}/v2/`)).status).toBe(401);
      expect((await ask('wrong')).status).toBe(401);
      expect((await ask('right')).status).toBe(200);
      expect(await registry.catalog()).toEqual([]);
      expect(await registry.tags('nothing')).toEqual([]);
    } finally {
      await registry.stop();
    }
  });

  it('uses the port of the previous run again; a second registry at the same time gets its own folder and port', async () => {
    const dir = join(folder, 'open');
    const first = await startRegistry({ dir });
    const second = await startRegistry({ dir });
    expect(second.address).not.toBe(first.address);
    await second.stop();
    await first.stop();
    await expect(fetch(first.url)).rejects.toThrow();
    const again = await startRegistry({ dir });
    expect(again.address).toBe(first.address);
    await again.stop();
  });
});
