/** The real Traefik behind the relay. Rows restart both. */
import { join } from 'node:path';
import { findTraefik, repositoryRoot } from '@berth/testbed/config';
import { freePort, freePorts } from '@berth/testbed/ports';
import { type RunningProcess, startProcess, untilReady } from '@berth/testbed/process';
import { startTraefik, type Traefik } from '@berth/testbed/traefik';

export type Front = {
  relayUrl(): string;
  /** Value for PROXY_PROBE_URLS; known before any process starts. */
  probeUrls: string;
  entry: { host: string; port: number; secure: boolean };
  start(controlPlaneUrl: string): Promise<void>;
  /** Sends SIGKILL and starts it again with the same folder. */
  restartRelay(): Promise<void>;
  restartTraefik(): Promise<void>;
  stop(): Promise<void>;
};

export const whyNoTraefik = (): string | undefined =>
  findTraefik() === undefined ? 'no Traefik: set TRAEFIK_BIN' : undefined;

export async function prepareFront(dir: string): Promise<Front> {
  const relayPort = await freePort();
  const [web, websecure, api] = (await freePorts(3)) as [number, number, number];
  const relayUrl = `http://127.0.0.1:${relayPort}`;
  let controlPlaneUrl = '';
  let relay: RunningProcess | undefined;
  let traefik: Traefik | undefined;

  async function startRelay(): Promise<void> {
    relay = await startProcess([process.execPath, join(repositoryRoot, 'bin', 'berth'), 'relay'], {
      name: 'relay',
      logFile: join(dir, 'logs', 'relay.log'),
      env: {
        LOG_FORMAT: 'json',
        LISTEN: `127.0.0.1:${relayPort}`,
        CONTROL_PLANE_URL: controlPlaneUrl,
        STATE_DIR: join(dir, 'relay'),
      },
    });
    await untilReady(
      relay,
      async () => (await fetch(`${relayUrl}/readyz`, { signal: AbortSignal.timeout(2_000) })).ok,
      15_000,
    );
  }
  async function launchTraefik(): Promise<void> {
    const bin = findTraefik();
    traefik = await startTraefik({
      dir: join(dir, 'traefik'),
      configUrl: `${relayUrl}/api/traefik/config`,
      held: true,
      ports: { web, websecure, api },
      ...(bin === undefined ? {} : { bin }),
    });
  }
  return {
    relayUrl: () => relayUrl,
    probeUrls: `http://127.0.0.1:${web},https://127.0.0.1:${websecure}`,
    entry: { host: '127.0.0.1', port: websecure, secure: true },
    async start(url) {
      controlPlaneUrl = url;
      await startRelay();
      await launchTraefik();
    },
    async restartRelay() {
      relay?.kill('SIGKILL');
      await relay?.exited;
      await startRelay();
    },
    async restartTraefik() {
      // Requests that it has begun get their answers.
      await traefik?.stop(5_000);
      await launchTraefik();
    },
    async stop() {
      await traefik?.stop();
      await relay?.stop();
    },
  };
}
