/**
 * Confirms published routes. With PROXY_PROBE_URLS, a route is live when the marker answers at
 * every address and a request to the project's own host succeeds through every address. Without it,
 * a route is live `settleMs` after the proxy fetched the current configuration.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type {
  ReachTarget,
  ReachVerdict,
  ConfigSource,
  ProxyProbe,
  Reach,
} from '../domain/routes/configuration.ts';
import type { DeploymentStore } from '../domain/deployments/deployment-store.ts';
import type { Driver } from '../flow/driver.ts';

const BETWEEN_PROBES_MS = 15;
const ONE_RUN_MS = 2_000;
/** Maximum number of concurrent checks; further routes wait. */
const MAX_CHECKS = 32;

/** A check through the proxies. `verdict` is null until the check ends. */
type ReachCheck = { target: ReachTarget; verdict: ReachVerdict | null };
type Waiting = { id: string; target: ReachTarget };

export type Deps = {
  deployments: Pick<DeploymentStore, 'awaitingRoute'>;
  driver: Pick<Driver, 'advance'>;
  source: Pick<ConfigSource, 'current' | 'servedAt'>;
  /**
   * Null without PROXY_PROBE_URLS: a configuration counts as live `settleMs` after the proxy
   * fetched it.
   */
  probe: ProxyProbe | null;
  /** Null if the proxy's connection to nodes cannot be checked. */
  reach: Reach | null;
  /** Monotonic clock in ms. */
  monotonic: () => number;
  /** Number of PROXY_PROBE_URLS. */
  entryPoints?: number;
  settleMs: number;
};

export function routeConfirmer({
  deployments,
  driver,
  source,
  probe,
  entryPoints = 0,
  reach,
  settleMs,
  monotonic,
}: Deps): (signal: AbortSignal) => Promise<void> {
  /**
   * Checks by deployment. They stay between runs, because a check takes longer than a run of the
   * loop.
   */
  const checks = new Map<string, ReachCheck>();

  async function confirm({ id, target }: Waiting, note: string | null): Promise<void> {
    await failPoint('route.confirmed');
    await driver.advance(id, {
      type: 'route_confirmed',
      host_ip: target.host_ip,
      host_port: target.host_port,
      ...defined({
        entry_points: entryPoints === 0 ? undefined : entryPoints,
        note: note ?? undefined,
      }),
    });
  }

  async function reject(
    { id, target: { host_ip, host_port } }: Waiting,
    { proxy, saw }: Extract<ReachVerdict, { kind: 'unreachable' }>,
  ): Promise<void> {
    await driver.advance(id, { type: 'route_unreachable', host_ip, host_port, proxy, saw });
  }

  /**
   * Starts missing checks and waits BETWEEN_PROBES_MS for them, because most applications answer at
   * once.
   */
  async function startChecks(
    there: readonly Waiting[],
    ask: NonNullable<Deps['reach']>,
    signal: AbortSignal,
  ): Promise<void> {
    for (const id of checks.keys()) if (!there.some((w) => w.id === id)) checks.delete(id);
    const pending: Promise<void>[] = [];
    for (const { id, target } of there) {
      const existing = checks.get(id);
      if (existing !== undefined && isSame(existing.target, target)) continue;
      if ([...checks.values()].filter((l) => l.verdict === null).length >= MAX_CHECKS) break;
      const started: ReachCheck = { target, verdict: null };
      checks.set(id, started);
      pending.push(ask(target, signal).then((verdict) => void (started.verdict = verdict)));
    }
    if (pending.length > 0) await Promise.race([Promise.all(pending), sleep(BETWEEN_PROBES_MS)]);
  }

  async function judge(waiting: Waiting, hash: string, signal: AbortSignal): Promise<void> {
    const { id } = waiting;
    const verdict = checks.get(id)?.verdict ?? null;
    if (verdict === null) return;
    if (verdict.kind === 'unreachable') {
      const isServed = probe !== null && (await probe(hash, signal));
      // Another route was published meanwhile. The verdict stays for the pass that asks for the
      // newest configuration: a check of a node that does not answer takes 10 s.
      if (!isServed && source.current().hash !== hash) return;
      checks.delete(id);
      // Ignore the verdict if the proxy is down: such a proxy reaches no node.
      if (!isServed) return;
      return reject(waiting, verdict);
    }
    // Remove the check even if the flow ignores the verdict, so that the next pass starts a new
    // one.
    checks.delete(id);
    if (verdict.kind === 'no_proxy') return;
    return confirm(waiting, verdict.kind === 'unproven' ? verdict.why : null);
  }

  return async (signal) => {
    const until = performance.now() + ONE_RUN_MS;
    // Probes repeatedly within one run while a route waits. After ONE_RUN_MS the period of the loop
    // applies.
    while (!signal.aborted && performance.now() < until) {
      const waiting = await deployments.awaitingRoute();
      if (waiting.length === 0) return checks.clear();
      const config = source.current();
      // Use the addresses of exactly this configuration, because a route can change during the
      // probe.
      const there = waiting.flatMap(({ id, health_path }): Waiting[] => {
        const to = config.deployments.get(id);
        return to === undefined ? [] : [{ id, target: { ...to, path: health_path ?? '/' } }];
      });
      const live =
        there.length > 0 &&
        (probe === null
          ? isSettleTimeOver(source.servedAt(), settleMs, monotonic())
          : await probe(config.hash, signal));
      if (live && reach !== null) {
        const reached = there.filter(({ target }) => target.is_page !== true);
        await startChecks(reached, reach, signal);
        for (const one of reached) await judge(one, config.hash, signal);
        for (const one of there) if (one.target.is_page === true) await confirm(one, null);
      } else if (live) for (const one of there) await confirm(one, null);
      // Continue after a confirmation: a deployment whose container moved meanwhile still waits.
      await sleep(BETWEEN_PROBES_MS, undefined, { signal }).catch(
        (error: unknown) => signal.aborted || Promise.reject(error),
      );
    }
  };
}

const isSame = (a: ReachTarget, b: ReachTarget): boolean =>
  a.host_ip === b.host_ip &&
  a.host_port === b.host_port &&
  a.host === b.host &&
  a.path === b.path &&
  a.auth_required === b.auth_required;

export const isSettleTimeOver = (servedAt: number | null, settleMs: number, now: number): boolean =>
  servedAt !== null && now - servedAt >= settleMs;
