/**
 * /readyz warns of a reverse proxy that forwards headers which an application may read as identity
 * headers. Uses the real Traefik.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { silentLogger } from '@berth/kit/log';
import { findTraefik } from '@berth/testbed/config';
import { startTraefik, type Traefik } from '@berth/testbed/traefik';
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createAliasWatch } from '../../src/routing/aliases.ts';
import { markerAnswers } from '../../src/routing/confirm.ts';
import { dynamicConfig } from '../../src/routing/traefik.ts';

const SETTINGS = { baseDomain: 'berth.test', authServiceUrl: null, acmeResolver: 'berth' };
const noTraefik = findTraefik() === undefined ? ' (skipped: no traefik)' : '';

describe.skipIf(noTraefik !== '')(
  `header names with other characters than letters, digits and dashes${noTraefik}`,
  () => {
    const built = dynamicConfig([], SETTINGS);
    let source: Server;
    let url: string;
    let dir: string;
    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'aliases-'));
      source = createServer((_request, response) =>
        response.setHeader('content-type', 'application/json').end(built.bytes),
      );
      await new Promise<void>((listening) => source.listen(0, '127.0.0.1', listening));
      url = `http://127.0.0.1:${(source.address() as AddressInfo).port}/`;
    });
    afterAll(async () => {
      source.close();
      await rm(dir, { recursive: true });
    });

    async function keeps(aliasHeaders: 'delete' | 'unset'): Promise<boolean | null> {
      const proxy: Traefik = await startTraefik({
        dir: join(dir, aliasHeaders),
        configUrl: url,
        held: false,
        aliasHeaders,
      });
      try {
        const probeUrls = [proxy.web, proxy.websecure];
        await waitFor('the marker is live', () => markerAnswers(probeUrls, built.hash));
        const watch = createAliasWatch(probeUrls, silentLogger());
        expect(watch.kept()).toBeNull();
        await watch.check(built.hash, new AbortController().signal);
        return watch.kept();
      } finally {
        await proxy.stop();
      }
    }

    it('Traefik without aliasHeadersStrategy forwards them', { timeout: 30_000 }, async () =>
      expect(await keeps('unset')).toBe(true),
    );
    it('Traefik with aliasHeadersStrategy delete does not', { timeout: 30_000 }, async () =>
      expect(await keeps('delete')).toBe(false),
    );

    it('a proxy that does not serve the configuration has no result', async () => {
      const watch = createAliasWatch(['http://127.0.0.1:9'], silentLogger());
      await watch.check(built.hash, new AbortController().signal);
      expect(watch.kept()).toBeNull();
    });
  },
);
