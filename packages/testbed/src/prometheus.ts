/** The real Prometheus with the configuration and the alerts of deploy/prometheus. */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram, repositoryRoot } from './config.ts';
import { freePort } from './ports.ts';
import { startProcess, untilReady } from './process.ts';

const program = findProgram('prometheus');

/** Reason for skipping a test, appended to the test's name; empty where Prometheus is installed. */
export const noPrometheus =
  program === undefined ? ' (skipped: no Prometheus; npm run setup fetches it)' : '';

/** Jobs of deploy/prometheus/prometheus.yml. */
export type Targets = Readonly<
  Record<
    'berth-control-plane' | 'berth-gateway' | 'berth-agent' | 'berth-relay' | 'traefik',
    readonly string[]
  >
>;
export type Alert = {
  labels: Record<string, string>;
  annotations: Record<string, string>;
  state: string;
  value: string;
};
type Sample = { metric: Record<string, string>; value: [number, string] };

export type Prometheus = {
  url: string;
  alerts(): Promise<Alert[]>;
  query(expression: string): Promise<Sample[]>;
  /** Scrapes other targets from now on. A job without targets is left out. */
  scrape(targets: Targets): Promise<void>;
  tail(): string;
  stop(): Promise<void>;
};

/**
 * Scrapes and evaluates once a second, and alerts need no waiting time (`for`). Everything else is
 * as shipped.
 * @throws when it is not installed or does not answer within 20 s
 */
export async function startPrometheus(dir: string, targets: Targets): Promise<Prometheus> {
  if (program === undefined)
    throw new Error('Prometheus is not installed (npm run setup fetches it)');
  await mkdir(dir, { recursive: true });
  const shipped = (name: string): Promise<string> =>
    readFile(join(repositoryRoot, 'deploy/prometheus', name), 'utf8');
  const [config, rules] = await Promise.all([shipped('prometheus.yml'), shipped('alerts.yml')]);
  const configFile = join(dir, 'prometheus.yml');
  await writeFile(join(dir, 'alerts.yml'), rules.replaceAll(/^ +for: .*\n/gm, ''));
  await writeFile(configFile, configuredFor(config, targets));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  // A value that is no longer scraped is gone after 5 s instead of 5 min.
  const flags = [
    '--storage.tsdb.path=data',
    '--query.lookback-delta=5s',
    '--web.enable-lifecycle',
    '--log.level=warn',
  ];
  const running = await startProcess(
    [program, `--config.file=${configFile}`, `--web.listen-address=${address}`, ...flags],
    {
      name: 'prometheus',
      cwd: dir,
      logFile: join(dir, 'prometheus.log'),
    },
  );
  const get = (path: string, init: RequestInit = {}) =>
    fetch(url + path, { ...init, signal: AbortSignal.timeout(5_000) });
  await untilReady(running, async () => (await get('/-/ready')).ok, 20_000);
  const data = async <T>(path: string): Promise<T> => {
    const answer = (await (await get(`/api/v1${path}`)).json()) as {
      status: string;
      error?: string;
      data: T;
    };
    if (answer.status !== 'success') throw new Error(`${path}: ${answer.error}`);
    return answer.data;
  };
  return {
    url,
    alerts: async () => (await data<{ alerts: Alert[] }>('/alerts')).alerts,
    query: async (expression) =>
      (await data<{ result: Sample[] }>(`/query?query=${encodeURIComponent(expression)}`)).result,
    async scrape(now) {
      await writeFile(configFile, configuredFor(config, now));
      const answer = await get('/-/reload', { method: 'POST' });
      if (!answer.ok)
        throw new Error(`Prometheus refused its configuration: ${await answer.text()}`);
    },
    tail: running.tail,
    stop: () => running.stop(),
  };
}

function configuredFor(shipped: string, targets: Targets): string {
  let text = shipped.replaceAll(/_interval: \w+/g, '_interval: 1s');
  for (const [job, addresses] of Object.entries(targets)) {
    const block = new RegExp(
      `  - job_name: ${job}\\n    static_configs:\\n      - targets: \\[.*\\]\\n`,
    );
    if (!block.test(text)) throw new Error(`deploy/prometheus/prometheus.yml has no job ${job}`);
    text = text.replace(block, (lines) =>
      addresses.length === 0 ? '' : lines.replace(/\[.*\]/, `[${addresses.join(', ')}]`),
    );
  }
  return text;
}
