/** Other tests beside a browser start and stop engines, which changes the machine's addresses. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoOwnEngine } from '@berth/testbed/engine';
import { run } from '@berth/testbed/process';
import { waitFor } from '@berth/testbed/wait';
import { launchChromium, whyNoChromium } from './chromium.ts';

const reason = whyNoChromium() ?? whyNoOwnEngine();
const CHANGES = 5;

describe.skipIf(reason !== undefined)(
  `Chromium of the tests${reason === undefined ? '' : ` (skipped: ${reason})`}`,
  () => {
    let chromium: Awaited<ReturnType<typeof launchChromium>>;
    let requests = 0;
    const server = createServer((request, response) => {
      if (request.url === '/') {
        response.setHeader('content-type', 'text/html').end('<h1>a page</h1>');
        return;
      }
      requests += 1;
      // Each request connects, so that a change of an address meets connections that begin.
      response.setHeader('connection', 'close').end('answer');
    });
    beforeAll(async () => {
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      chromium = await launchChromium();
    });
    afterAll(async () => {
      await chromium?.close();
      server.close();
    });

    it('no request of a page fails when the addresses of the machine change', async () => {
      const page = await chromium.browser.newPage();
      await page.goto(`http://app.localhost:${(server.address() as AddressInfo).port}/`);
      const failures = page.evaluate<string[]>(`(async () => {
        const failures = [];
        while (globalThis.isOver !== true) {
          const sent = Array.from({ length: 10 }, () => fetch('/x').then((answer) => answer.text()));
          for (const { reason } of await Promise.allSettled(sent))
            if (reason !== undefined) failures.push(String(reason));
        }
        return failures;
      })()`);
      const link = `bx${process.pid}`;
      for (let change = 0; change < CHANGES; change++) {
        const before = requests;
        await run(['ip', 'link', 'add', link, 'type', 'veth', 'peer', 'name', `${link}p`]);
        try {
          await run(['ip', 'address', 'add', '198.18.77.1/32', 'dev', link]);
          await run(['ip', 'link', 'set', link, 'up']);
          await waitFor('the page has sent more requests', () => requests > before + 20);
        } finally {
          await run(['ip', 'link', 'delete', link]);
        }
      }
      await page.evaluate('globalThis.isOver = true');
      expect(await failures).toEqual([]);
    });

    it('a server that is not there refuses the connection', async () => {
      const page = await chromium.browser.newPage();
      await expect(page.goto('http://127.0.0.1:9/')).rejects.toThrow(/ERR_/);
    });
  },
);
