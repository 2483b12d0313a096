/**
 * Finds out when the proxy has taken over a published route, and whether it reaches the node. With PROXY_PROBE_URLS: the marker
 * answers everywhere, then the project's own host is requested through every address. Without: the present configuration was
 * fetched, and the settle time has passed since.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { failPoint } from '@berth/kit/fail-point';
import type { ReachTarget, ReachVerdict } from '../domain/configuration.ts';
import type { LoopDeps } from './deps.ts';

const BETWEEN_PROBES_MS = 15;
const ONE_RUN_MS = 2_000;
/** Looks under way. More wait for their turn. */
const MAX_LOOKS = 32;

/** One request through the proxies. `verdict` is null until it is over. */
type Look = { target: ReachTarget; verdict: ReachVerdict | null };
type Waiting = { id: string; target: ReachTarget };

export function routeConfirmer({ stores, driver, source, probe, reach, settleMs, now }: LoopDeps): (signal: AbortSignal) => Promise<void> {
  /** By deployment. A look takes longer than a run, so it stays from one run to the next. */
  const looks = new Map<string, Look>();

  async function confirm({ id, target }: Waiting, note: string | null): Promise<void> {
    await failPoint('route.confirmed');
    await driver.advance(id, {
      type: 'route_confirmed',
      host_ip: target.host_ip,
      host_port: target.host_port,
      ...(note === null ? {} : { note }),
    });
  }

  /** Starts the looks that are missing, and waits a moment for them: most applications answer at once. */
  async function look(there: readonly Waiting[], ask: NonNullable<LoopDeps['reach']>, signal: AbortSignal): Promise<void> {
    for (const id of looks.keys()) if (!there.some((w) => w.id === id)) looks.delete(id);
    const pending: Promise<void>[] = [];
    for (const { id, target } of there) {
      const known = looks.get(id);
      if (known !== undefined && isSame(known.target, target)) continue;
      if ([...looks.values()].filter((l) => l.verdict === null).length >= MAX_LOOKS) break;
      const started: Look = { target, verdict: null };
      looks.set(id, started);
      pending.push(ask(target, signal).then((verdict) => void (started.verdict = verdict)));
    }
    if (pending.length > 0) await Promise.race([Promise.all(pending), sleep(BETWEEN_PROBES_MS)]);
  }

  async function judge(waiting: Waiting, hash: string, signal: AbortSignal): Promise<void> {
    const { id, target } = waiting;
    const verdict = looks.get(id)?.verdict ?? null;
    if (verdict === null) return;
    // Also where the flow does not take it: the next pass looks again.
    looks.delete(id);
    if (verdict.kind === 'no_proxy') return;
    if (verdict.kind !== 'unreachable') return confirm(waiting, verdict.kind === 'unproven' ? verdict.why : null);
    // A proxy that is gone reaches nobody. That says nothing about the node.
    if (probe === null || !(await probe(hash, signal))) return;
    const { host_ip, host_port } = target;
    await driver.advance(id, { type: 'route_unreachable', host_ip, host_port, proxy: verdict.proxy, saw: verdict.saw });
  }

  return async (signal) => {
    const until = Date.now() + ONE_RUN_MS;
    // Within one run it asks again and again while something waits; then the loop's own period takes over.
    while (!signal.aborted && Date.now() < until) {
      const waiting = await stores.deployments.awaitingRoute();
      if (waiting.length === 0) return looks.clear();
      const config = source.current();
      // With the address that this very configuration has: the route may be moved while the proxy is asked.
      const there = waiting.flatMap(({ id, health_path }): Waiting[] => {
        const to = config.deployments.get(id);
        return to === undefined ? [] : [{ id, target: { ...to, path: health_path ?? '/' } }];
      });
      const live = there.length > 0 && (probe === null ? settled(source.servedAt(), settleMs, now()) : await probe(config.hash, signal));
      if (live && reach !== null) {
        await look(there, reach, signal);
        for (const one of there) await judge(one, config.hash, signal);
      } else if (live) for (const one of there) await confirm(one, null);
      // Also then: one whose container moved meanwhile still waits.
      await sleep(BETWEEN_PROBES_MS, undefined, { signal }).catch((error: unknown) => signal.aborted || Promise.reject(error));
    }
  };
}

const isSame = (a: ReachTarget, b: ReachTarget): boolean =>
  a.host_ip === b.host_ip && a.host_port === b.host_port && a.host === b.host && a.path === b.path && a.auth_required === b.auth_required;

const settled = (servedAt: number | null, settleMs: number, now: number): boolean => servedAt !== null && now - servedAt >= settleMs;
