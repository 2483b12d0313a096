/**
 * Sources of configurations, like Traefik's providers. A provider passes on only complete
 * configurations. After an error or an invalid configuration, the last valid one stays in use.
 */
import { readFileSync, statSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { parse as parseYaml } from 'yaml';
import { type Configuration, ConfigurationError, parseConfiguration } from './configuration.ts';
import { createAgents, destroyAgents, get } from './request.ts';

export type Use = (configuration: Configuration) => void;
export type Running = { stop(): Promise<void> };

const WAIT_SECONDS = 20;
/** Time that an answer can take after the end of the hold. */
const GRACE_MS = 15_000;
const MAX_BODY = 256 * 1024 * 1024;
/** Minimum pause between two requests. */
const MIN_PAUSE_MS = 25;
/** Pause between two requests to a server that does not hold them. */
const POLL_MS = 1_000;
const RETRY = { min: 100, max: 2_000 };
/** Pause between two checks of the configuration file. */
const FILE_INTERVAL_MS = 500;

/**
 * Long-polls `url`. The server answers the first request on a connection immediately. It holds a
 * later request while the configuration equals its last answer on that connection. So the provider
 * keeps one connection; on a new connection the first answer is immediate again.
 */
export function startHttpProvider(url: string, use: Use, log: Logger): Running {
  const endpoint = new URL(url);
  if (!endpoint.searchParams.has('wait')) endpoint.searchParams.set('wait', String(WAIT_SECONDS));
  const agents = createAgents({ keepAlive: true, maxSockets: 1 });
  const abort = new AbortController();
  const { signal } = abort;
  let last: Buffer | null = null;
  let failures = 0;
  /**
   * Number of consecutive immediate answers without a change. A new connection causes the first
   * one.
   */
  let notHeld = 0;

  const poll = async (): Promise<number> => {
    const startedAt = performance.now();
    const answer = await get(endpoint, {
      agents,
      headers: { accept: 'application/json' },
      signal,
      timeoutMs: WAIT_SECONDS * 1000 + GRACE_MS,
      maxBody: MAX_BODY,
    });
    if (answer.status !== 200) throw new Error(`HTTP ${answer.status}`);
    if (last !== null && answer.body.equals(last)) {
      notHeld = performance.now() - startedAt < POLL_MS ? notHeld + 1 : 0;
      return notHeld > 1 ? POLL_MS : MIN_PAUSE_MS;
    }
    use(parseConfiguration(json(answer.body)));
    last = answer.body;
    notHeld = 0;
    return MIN_PAUSE_MS;
  };

  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      let pauseMs: number;
      try {
        pauseMs = await poll();
        if (failures > 0) log.info({ url: endpoint.href }, 'reading the configuration works again');
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        pauseMs = backoff(failures, RETRY);
        failures += 1;
        // Log only the first failure, so that a long outage does not fill the log.
        if (failures === 1)
          log.warn(
            { err: error, url: endpoint.href },
            'reading the configuration failed; the last one stays in use',
          );
      }
      await pause(pauseMs, undefined, { signal, ref: false }).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  };
  const running = run();
  return {
    async stop() {
      abort.abort();
      await running;
      destroyAgents(agents);
    },
  };
}

function json(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (error) {
    throw new ConfigurationError('the configuration is not JSON', { cause: error });
  }
}

/** Throws if the file cannot be read or is not a configuration. */
export function readConfigurationFile(path: string): Configuration {
  const document: unknown = parseYaml(readFileSync(path, 'utf8'));
  // A file can have no section `http` (for example, only TLS options). The answer of an HTTP
  // provider must have one.
  return parseConfiguration(
    typeof document === 'object' && document !== null && !('http' in document)
      ? { ...document, http: {} }
      : document,
  );
}

/** Reads the file again whenever it changes. */
export function watchConfigurationFile(path: string, use: Use, log: Logger): Running {
  const onChange = (): void => {
    try {
      use(readConfigurationFile(path));
      log.info({ path }, 'configuration file reloaded');
    } catch (error) {
      log.error(
        { err: error, path },
        'configuration file is invalid; the last valid content stays in use',
      );
    }
  };
  // Poll instead of using inotify, because editors and mounted volumes replace files in ways that
  // lose a watch. fs.watchFile would miss a change before its first check of the file.
  let lastStamp = stampOf(path);
  const timer = setInterval(() => {
    const stamp = stampOf(path);
    if (stamp === lastStamp) return;
    lastStamp = stamp;
    onChange();
  }, FILE_INTERVAL_MS);
  timer.unref();
  return {
    stop() {
      clearInterval(timer);
      return Promise.resolve();
    },
  };
}

/** Changes when the file is written or replaced. */
function stampOf(path: string): string {
  const { ino, mtimeNs, size } = statSync(path, { bigint: true, throwIfNoEntry: false }) ?? {
    ino: 0n,
    mtimeNs: 0n,
    size: 0n,
  };
  return `${ino} ${mtimeNs} ${size}`;
}
