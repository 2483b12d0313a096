/**
 * A running Traefik renews by its own clock, under 50 requests a second. Minutes long, so it is no
 * part of `npm test`.
 */
import { waitFor } from '@berth/testbed/wait';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BASE_DOMAIN, type HttpsWorld, startHttpsWorld, whyNoHttps } from '../e2e/https-world.ts';

const why = whyNoHttps();
const HOST = `shop.${BASE_DOMAIN}`;
const PER_SECOND = 50;
/** On a machine that is too slow for this rate, requests are left out instead of piling up. */
const MOST_OPEN = 20;
const RENEWALS = 2;

describe.skipIf(why !== undefined)(
  `renewal${why === undefined ? '' : ` (skipped: ${why})`}`,
  () => {
    let world: HttpsWorld;
    beforeAll(async () => {
      world = await startHttpsWorld({ validitySeconds: 600 });
      // For certificates of less than a day, Traefik looks once a minute, and renews when 20
      // minutes are left.
      await world.startTraefik('tls-alpn-01', (config) =>
        config.replace('      email:', '      certificatesDuration: 1\n      email:'),
      );
    }, 180_000);
    afterAll(() => world?.stop(), 60_000);

    test(`${RENEWALS} renewals in a row: every request is answered with a valid certificate`, async () => {
      const project = await world.publish('shop');
      const serials = new Set<string>();
      await waitFor('the first certificate', () => world.get(HOST), { deadlineMs: 60_000 });
      const failures: string[] = [];
      let sent = 0;
      const open = new Set<Promise<void>>();
      const once = async (): Promise<void> => {
        try {
          const { status, certificate } = await world.get(HOST);
          if (status !== 200) failures.push(`status ${status}`);
          serials.add(certificate?.serialNumber ?? '');
        } catch (error) {
          failures.push(String(error));
        }
      };
      const timer = setInterval(() => {
        if (open.size >= MOST_OPEN) return;
        sent++;
        const one = once().finally(() => open.delete(one));
        open.add(one);
      }, 1_000 / PER_SECOND);
      try {
        await waitFor('the certificate was renewed', () => serials.size > RENEWALS, {
          deadlineMs: 420_000,
          intervalMs: 500,
        });
      } finally {
        clearInterval(timer);
        await Promise.all(open);
      }
      console.log(`${sent} requests, ${serials.size} certificates, ${failures.length} failed`);
      expect(failures).toEqual([]);
      expect(await world.certificateOf(project)).toMatchObject({ state: 'ok', problem: null });
    });
  },
);
