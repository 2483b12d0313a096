import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { request } from 'node:https';
import { expect, it } from 'vitest';
import { startPebble, whyNoPebble } from '../src/pebble.ts';

const why = whyNoPebble();

it.skipIf(why !== undefined)(
  `two of Pebble run at once, each with a root of its own${why === undefined ? '' : ` (skipped: ${why})`}`,
  async () => {
    const [one, two] = await Promise.all([
      startPebble({ httpPort: 1, tlsPort: 2 }),
      startPebble({ httpPort: 1, tlsPort: 2 }),
    ]);
    try {
      const [first, second] = [
        new X509Certificate(await one.rootPem()),
        new X509Certificate(await two.rootPem()),
      ];
      expect(first.ca).toBe(true);
      expect(first.fingerprint256).not.toBe(second.fingerprint256);
      // An ACME client that trusts caFile reaches the directory.
      expect(await get(one.directoryUrl, await readFile(one.caFile))).toHaveProperty('newOrder');
    } finally {
      await Promise.all([one.stop(), two.stop()]);
    }
    await expect(get(one.directoryUrl)).rejects.toThrow('ECONNREFUSED');
  },
);

function get(url: string, ca?: Buffer): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const asking = request(
      url,
      { agent: false, ...(ca === undefined ? {} : { ca }) },
      (response) => {
        let body = '';
        response.on('data', (chunk: Buffer) => (body += chunk.toString()));
        response.on('end', () => resolve(JSON.parse(body)));
      },
    );
    asking.on('error', reject).end();
  });
}
