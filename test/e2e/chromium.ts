/** Chromium for tests, in a network of its own: other tests change the machine's addresses. */
import { type Browser, chromium } from 'playwright-core';
import { startBrowserNetwork } from '@berth/testbed/browser-network';
import { findChromium } from '@berth/testbed/config';
import { whyNoOwnEngine } from '@berth/testbed/engine';

const executablePath = findChromium();

/** Returns why these tests cannot run here; undefined when they can. */
export const whyNoChromium = (): string | undefined =>
  executablePath === undefined ? 'no Chromium: Debian package chromium-headless-shell' : undefined;

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Each test opens new pages: threads that paint, and compilers that make old pages fast, cost a fifth
  // of the CPU time.
  '--num-raster-threads=1',
  '--js-flags=--no-opt --no-maglev',
];

/** `close` also removes the browser's network. */
export async function launchChromium(
  flags: readonly string[] = [],
): Promise<{ browser: Browser; close(): Promise<void> }> {
  if (executablePath === undefined) throw new Error(whyNoChromium());
  // Without root there is no engine either, so nothing changes the addresses.
  const network =
    whyNoOwnEngine() === undefined ? await startBrowserNetwork(executablePath) : undefined;
  try {
    const browser = await chromium.launch({
      executablePath: network?.executablePath ?? executablePath,
      args: [...FLAGS, ...(network?.flags ?? []), ...flags],
    });
    return {
      browser,
      async close() {
        await browser.close();
        await network?.stop();
      },
    };
  } catch (error) {
    await network?.stop();
    throw error;
  }
}
