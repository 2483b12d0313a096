/**
 * Probes the `health_path` of running containers, so that an application that hangs is found. The
 * start of a container sets the label `berth.probe` (tasks/start-container.ts), so the probe goes on
 * after a restart of the agent. A request that takes longer than its time limit because this process
 * slept does not count.
 */
import type { Logger } from '@berth/kit/log';
import { MAX_HEALTH_OUTPUT, type ObservedProbe } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { Container } from './docker.ts';
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
  stop(): void;
};

type Target = {
  name: string;
  startedAt: string | null;
  port: number;
  settings: Settings;
  /** Monotonic time at which this run of the container was first seen. */
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
  const stopping = new AbortController();

  async function probe(target: Target): Promise<void> {
    const { path, url } = target.settings;
    const request = { host: await host(), port: target.port, healthPath: path, visitorUrl: url };
    const sentAt = now();
    const answer = await send(request, TIMEOUT_MS, stopping.signal);
    if (now() - sentAt > TIMEOUT_MS + LATE_MS) return;
    take(target, passes(request, answer) ? null : answer);
  }

  /** `failure`: null if the container answered. */
  function take(target: Target, failure: ProbeAnswer | null): void {
    const before = target.status;
    if (failure === null) {
      target.failures = 0;
      target.status = 'healthy';
    } else {
      target.failures += 1;
      const mayStart =
        before === 'starting' && now() - target.since < target.settings.seconds * 1_000;
      if (target.failures >= FAILURES && !mayStart && before !== 'unhealthy') {
        target.status = 'unhealthy';
        target.output = outputOf(target.settings, failure);
      }
    }
    if (target.status === before) return;
    log.info(
      { container: target.name, status: target.status, output: target.output },
      'the result of the probe of health_path changed',
    );
    onChange();
  }

  function tick(): void {
    for (const target of targets.values()) {
      if (target.isBusy) continue;
      target.isBusy = true;
      void probe(target)
        .catch((err: unknown) => {
          if (!stopping.signal.aborted)
            log.debug({ err, container: target.name }, 'the probe of health_path failed to run');
        })
        .finally(() => (target.isBusy = false));
    }
  }
  const timer = setInterval(tick, periodMs).unref();

  return {
    seen(containers) {
      const next: typeof targets = new Map();
      for (const { id, name, state, startedAt, hostPort, labels } of containers) {
        const settings = state === 'running' ? settingsOf(labels[LABELS.probe]) : null;
        if (settings === null || hostPort === null) continue;
        const present = targets.get(id);
        next.set(
          id,
          present?.startedAt === startedAt && present.port === hostPort
            ? present
            : {
                name,
                startedAt,
                port: hostPort,
                settings,
                since: now(),
                failures: 0,
                status: 'starting',
                output: '',
                isBusy: false,
              },
        );
      }
      targets = next;
    },
    resultOf({ id, startedAt }) {
      const target = targets.get(id);
      if (target?.startedAt !== startedAt) return undefined;
      const { status, output } = target;
      return status === 'unhealthy' ? { status, output } : { status };
    },
    stop() {
      clearInterval(timer);
      stopping.abort();
    },
  };
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
