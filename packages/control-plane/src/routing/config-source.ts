/**
 * Keeps the current configuration in memory for polls and held requests. States: unknown -> known
 * (first read) -> known (newer) ...; known -> unsure (no successful read for UNSURE_MS) -> known.
 * While the state is unknown or unsure, `current` throws routes_unknown: the proxy gets 503 and
 * keeps its last configuration.
 */
import { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { failPoint } from '@berth/kit/fail-point';
import type { Logger } from '@berth/kit/log';
import type { Changes } from '../domain/platform/changes.ts';
import type { BuiltConfig, ConfigSource } from '../domain/routes/configuration.ts';
import { DomainError } from '../domain/platform/errors.ts';
import type { RouteStore } from '../domain/routes/route-stores.ts';
import { dynamicConfig, type RoutingSettings } from './traefik.ts';

const UNSURE_MS = 10_000;

export function createConfigSource(deps: {
  routes: RouteStore;
  changes: Changes;
  settings: RoutingSettings;
  now: () => number;
  log: Logger;
}): ConfigSource {
  const { routes, changes, settings, now, log } = deps;
  let latest: { config: BuiltConfig; readAt: number; servedAt: number | null } | null = null;
  let fetchedAt = now();
  const events = new EventEmitter().setMaxListeners(0);
  let reading: Promise<void> | null = null;
  let isStale = false;

  async function read(): Promise<void> {
    const config = dynamicConfig(await routes.all(), settings);
    const moved = latest?.config.hash !== config.hash;
    for (const problem of config.problems)
      if (!latest?.config.problems.includes(problem))
        log.warn({ problem }, 'project omitted from the proxy’s configuration');
    if (moved && latest !== null) await failPoint('routes.changed');
    latest = { config, readAt: now(), servedAt: moved ? null : (latest?.servedAt ?? null) };
    if (moved) events.emit('moved');
  }
  /**
   * Reads the configuration, and repeats the read if a change arrives during it. Two concurrent
   * reads could finish in the wrong order.
   */
  function refresh(): Promise<void> {
    if (reading !== null) {
      isStale = true;
      return reading.then(() => (isStale ? refresh() : undefined));
    }
    isStale = false;
    reading = read().finally(() => {
      reading = null;
    });
    return reading;
  }
  const off = changes.on(
    'routes',
    () =>
      void refresh().catch((error: unknown) =>
        log.error({ err: error }, 'could not read the routes'),
      ),
  );

  function current(): BuiltConfig {
    if (latest === null || now() - latest.readAt > UNSURE_MS)
      throw new DomainError('routes_unknown');
    return latest.config;
  }
  return {
    current,
    async changed(not, ms, signal) {
      if (latest !== null && latest.config.hash !== not) return;
      const end = new AbortController();
      const stop = AbortSignal.any([end.signal, ...(signal === undefined ? [] : [signal])]);
      const moved = (): void => end.abort();
      events.once('moved', moved);
      try {
        await sleep(ms, undefined, { signal: stop });
      } catch (error) {
        // A change or an abort ends the wait. Any other error is a bug.
        if (!stop.aborted) throw error;
      } finally {
        events.off('moved', moved);
      }
    },
    served(hash) {
      fetchedAt = now();
      if (latest !== null && latest.config.hash === hash) latest.servedAt ??= now();
    },
    servedAt: () => latest?.servedAt ?? null,
    fetchAgeMs: () => now() - fetchedAt,
    problems: () => latest?.config.problems ?? [],
    refresh,
    close: off,
  };
}
