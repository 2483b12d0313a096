/**
 * Where configurations come from, in the way of Traefik's providers. Each hands on whole configurations and nothing else:
 * an answer that is an error, or is no configuration, changes nothing, and what was known last goes on being used.
 */
import { readFileSync, unwatchFile, watchFile } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import { parse as parseYaml } from 'yaml';
import { type Configuration, ConfigurationError, parseConfiguration } from './configuration.ts';
import { createAgents, destroyAgents, get } from './request.ts';

export type Use = (configuration: Configuration) => void;
export type Running = { stop(): Promise<void> };

const WAIT_SECONDS = 20;
/** Beyond the time the server may hold the request. */
const GRACE_MS = 15_000;
const MAX_BODY = 256 * 1024 * 1024;
/** Between two answers, however quickly they change. */
const LEAST_PAUSE_MS = 25;
/** Between two polls of a server that does not hold requests. */
const POLL_MS = 1_000;
const RETRY = { min: 100, max: 2_000 };

/**
 * Long-polls `url`. The server answers the first request on a connection at once and holds later ones while the bytes
 * equal its last answer there, so one connection is kept; after it broke, the next answer comes at once again.
 */
export function startHttpProvider(url: string, use: Use, log: Logger): Running {
  const endpoint = new URL(url);
  if (!endpoint.searchParams.has('wait')) endpoint.searchParams.set('wait', String(WAIT_SECONDS));
  const agents = createAgents({ keepAlive: true, maxSockets: 1 });
  const abort = new AbortController();
  const { signal } = abort;
  let last: Buffer | null = null;
  let failures = 0;
  /** Equal answers in a row that came at once; the first is what a fresh connection gives. */
  let notHeld = 0;

  const poll = async (): Promise<number> => {
    const started = performance.now();
    const answer = await get(endpoint, {
      agents,
      headers: { accept: 'application/json' },
      signal,
      timeoutMs: WAIT_SECONDS * 1000 + GRACE_MS,
      maxBody: MAX_BODY,
    });
    if (answer.status !== 200) throw new Error(`HTTP ${answer.status}`);
    if (last !== null && answer.body.equals(last)) {
      notHeld = performance.now() - started < POLL_MS ? notHeld + 1 : 0;
      return notHeld > 1 ? POLL_MS : LEAST_PAUSE_MS;
    }
    use(parseConfiguration(json(answer.body)));
    last = answer.body;
    notHeld = 0;
    return LEAST_PAUSE_MS;
  };

  const run = async (): Promise<void> => {
    while (!signal.aborted) {
      let rest: number;
      try {
        rest = await poll();
        if (failures > 0) log.info({ url: endpoint.href }, 'the configuration can be read again');
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        rest = backoff(failures, RETRY);
        failures += 1;
        // Once is enough: a control plane that is away for an hour must not fill the log.
        if (failures === 1) log.warn({ err: error, url: endpoint.href }, 'the configuration cannot be read; the last one stays in use');
      }
      await pause(rest, undefined, { signal, ref: false }).catch((error: unknown) => {
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
    throw new ConfigurationError('it is not JSON', { cause: error });
  }
}

/** Throws when the file cannot be read or is no configuration. */
export function readConfigurationFile(path: string): Configuration {
  const document: unknown = parseYaml(readFileSync(path, 'utf8'));
  // A file may well say nothing about HTTP (TLS options, say); only an HTTP provider's answer may not.
  return parseConfiguration(
    typeof document === 'object' && document !== null && !('http' in document) ? { ...document, http: {} } : document,
  );
}

/** Reads the file again whenever it changes. */
export function watchConfigurationFile(path: string, use: Use, log: Logger): Running {
  const onChange = (): void => {
    try {
      use(readConfigurationFile(path));
      log.info({ path }, 'the configuration file was read again');
    } catch (error) {
      log.error({ err: error, path }, 'the configuration file cannot be used; what it said before stays in use');
    }
  };
  // By looking, not by inotify: editors and mounted volumes replace files in ways that lose a watch.
  watchFile(path, { interval: 500, persistent: false }, onChange);
  return {
    stop() {
      unwatchFile(path, onChange);
      return Promise.resolve();
    },
  };
}
