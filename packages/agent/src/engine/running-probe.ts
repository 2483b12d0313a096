/**
 * Probes the `health_path` of running containers, so that an application that hangs is found. The
 * start of a container sets the label `berth.probe` (tasks/start-container.ts), so the probe goes on
 * after a restart of the agent. Only a request that ran counts: not one during which this process
 * slept, and not one that this machine could not send.
 */
import type { Logger } from '@berth/kit/log';
import { MAX_HEALTH_OUTPUT, type ObservedProbe } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container, Docker } from './docker.ts';
import { ask, passes, type ProbeAnswer } from './probe.ts';

/** `seconds`: time limit for the first answer after a start. */
type Settings = { path: string; url: string | null; seconds: number };

const PERIOD_MS = 5_000;
/** Less than the period, so that a request has ended when the next one is due. */
const TIMEOUT_MS = 4_900;
/** A request that ends later than this after its time limit says nothing: this process slept. */
const LATE_MS = 1_000;
/** Failures in a row until the container counts as unhealthy. */
const FAILURES = 3;

/** Returns the label of a container whose project sets `health_path`; none without it. */
export const probeLabel = (payload: {
  health_path: string | null;
  url?: string;
  probe_seconds: number;
}): Record<string, string> =>
  payload.health_path === null
    ? {}
    : {
        [LABELS.probe]: JSON.stringify({
          path: payload.health_path,
          url: payload.url ?? null,
          seconds: payload.probe_seconds,
        } satisfies Settings),
      };

export type RunningProbe = {
  /** Replaces the list of containers to probe. Call it with each list of the engine. */
  seen(containers: readonly Container[]): void;
  /** Returns the result for a container; undefined if it is not probed. */
  resultOf(container: Pick<Container, 'id' | 'startedAt'>): ObservedProbe | undefined;
  /**
   * Asks the container nothing until the returned function is called, and keeps its result: its
   * start check asks it, or it is being stopped.
   */
  hold(id: string): () => void;
  /** Returns an engine that holds a container which it stops, and forgets one that it removed. */
  around(docker: Docker): Docker;
  stop(): void;
};

type Target = {
  name: string;
  startedAt: string | null;
  port: number;
  settings: Settings;
  /** Monotonic time at which this run of the container began. */
  since: number;
  failures: number;
  status: ObservedProbe['status'];
  output: string;
  isBusy: boolean;
};

export function createRunningProbe({
  host,
  onChange,
  log,
  send = ask,
  periodMs = PERIOD_MS,
  now = () => performance.now(),
}: {
  /** The address on which this node's published ports answer. */
  host: () => Promise<string>;
  /** Called when a container becomes unhealthy or answers again. */
  onChange: () => void;
  log: Logger;
  send?: typeof ask;
  periodMs?: number;
  /** Monotonic clock in ms. */
  now?: () => number;
}): RunningProbe {
  let targets = new Map<string, Target>();
  /** Ids of held containers, once for each hold. */
  const holds = new Set<{ id: string }>();
  const stopping = new AbortController();
  /** Cached: without HOST_IP, each look-up opens a connection to the control plane. */
  let address: Promise<string> | null = null;

  const isHeld = (id: string): boolean => [...holds].some((hold) => hold.id === id);

  async function probe(id: string, target: Target): Promise<void> {
    const { path, url } = target.settings;
    address ??= host();
    const atHost = await address.catch((error: unknown) => {
      address = null;
      throw error;
    });
    const request = { host: atHost, port: target.port, healthPath: path, visitorUrl: url };
    const sentAt = now();
    const answer = await send(request, TIMEOUT_MS, stopping.signal);
    // The address of this machine might have changed.
    if (answer.kind !== 'status') address = null;
    if (answer.kind === 'no_http' && answer.isUnsent === true) return;
    if (now() - sentAt > TIMEOUT_MS + LATE_MS) return;
    // Meanwhile the container ended or started again, or it is being stopped.
    if (targets.get(id) !== target || isHeld(id)) return;
    if (!take(target, passes(request, answer) ? null : answer, now())) return;
    const { name: container, status, output } = target;
    log.info(
      { container, status, output: output || undefined },
      'the result of the probe of health_path changed',
    );
    onChange();
  }

  function tick(): void {
    for (const [id, target] of targets) {
      if (target.isBusy || isHeld(id)) continue;
      target.isBusy = true;
      void probe(id, target)
        .catch((err: unknown) => {
          if (!stopping.signal.aborted)
            log.debug({ err, container: target.name }, 'the probe of health_path failed to run');
        })
        .finally(() => (target.isBusy = false));
    }
  }
  const timer = setInterval(tick, periodMs).unref();

  function forget(ref: string): void {
    for (const [id, { name }] of targets) if (id === ref || name === ref) targets.delete(id);
  }
  function hold(id: string): () => void {
    const one = { id };
    holds.add(one);
    const target = targets.get(id);
    if (target !== undefined) target.failures = 0;
    return () => void holds.delete(one);
  }

  return {
    seen(containers) {
      const next: typeof targets = new Map();
      for (const container of containers) {
        const present = targets.get(container.id);
        const target = targetOf(container, now);
        if (target === null) continue;
        const isSame = present?.startedAt === target.startedAt && present.port === target.port;
        next.set(container.id, isSame ? present : target);
      }
      targets = next;
    },
    resultOf({ id, startedAt }) {
      const target = targets.get(id);
      if (target?.startedAt !== startedAt) return undefined;
      const { status, output } = target;
      return status === 'unhealthy' ? { status, output } : { status };
    },
    hold,
    around: (docker) => holding(docker, { hold, forget }),
    stop() {
      clearInterval(timer);
      stopping.abort();
    },
  };
}

/**
 * Counts an answer. Returns whether the status changed. `failure`: null if the container answered.
 */
function take(target: Target, failure: ProbeAnswer | null, now: number): boolean {
  const before = target.status;
  if (failure === null) {
    target.failures = 0;
    target.status = 'healthy';
    target.output = '';
  } else {
    target.failures += 1;
    const mayStart = before === 'starting' && now - target.since < target.settings.seconds * 1_000;
    if (target.failures >= FAILURES && !mayStart && before !== 'unhealthy') {
      target.status = 'unhealthy';
      target.output = outputOf(target.settings, failure);
    }
  }
  return target.status !== before;
}

/** Returns an engine that holds a container which it stops, and forgets one that has ended. */
const holding = (
  docker: Docker,
  { hold, forget }: { hold: RunningProbe['hold']; forget: (ref: string) => void },
): Docker => ({
  ...docker,
  async stop(id, graceSeconds, signal) {
    const release = hold(id);
    try {
      await docker.stop(id, graceSeconds, signal);
      forget(id);
    } finally {
      release();
    }
  },
  async remove(ref) {
    await docker.remove(ref);
    forget(ref);
  },
});

/** Returns null for a container that is not to be probed. */
function targetOf(
  { name, state, startedAt, hostPort, labels }: Container,
  now: () => number,
): Target | null {
  const settings = state === 'running' ? settingsOf(labels[LABELS.probe]) : null;
  if (settings === null || hostPort === null) return null;
  return {
    name,
    startedAt,
    port: hostPort,
    settings,
    since: now() - ageOf(startedAt),
    failures: 0,
    status: 'starting',
    output: '',
    isBusy: false,
  };
}

/**
 * Returns for how many ms a container has run. One that ran before this agent started has used its
 * time for the first answer.
 */
function ageOf(startedAt: string | null): number {
  const age = Date.now() - Date.parse(startedAt ?? '');
  return age > 0 ? age : 0;
}

/** Returns null for a label that this version did not write. */
function settingsOf(label: string | undefined): Settings | null {
  if (label === undefined) return null;
  try {
    const { path, url, seconds } = JSON.parse(label) as Partial<Settings>;
    if (typeof path !== 'string' || typeof seconds !== 'number') return null;
    return { path, url: typeof url === 'string' ? url : null, seconds };
  } catch {
    return null;
  }
}

function outputOf({ path }: Settings, failure: ProbeAnswer): string {
  const how =
    failure.kind === 'status' ? ` answered with status ${failure.status}` : `: ${failure.message}`;
  return `GET ${path}${how}, ${FAILURES} times in a row`.slice(0, MAX_HEALTH_OUTPUT);
}
