/**
 * Observes the containers of this node: lists them at each registration, and watches the engine's
 * events in between.
 */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListNodeContainers } from './node-ids.ts';
import { pause } from '../stopped.ts';
import type { Revival } from './revive.ts';
import type { Container, Docker } from './docker.ts';

const OUR_LABELS: readonly string[] = Object.values(LABELS);

export function toObserved(container: Container): ObservedContainer {
  return {
    id: container.id,
    name: container.name,
    // Leave out the image's own labels: Berth does not use them, and an image can have many.
    labels: Object.fromEntries(
      Object.entries(container.labels).filter(([name]) => OUR_LABELS.includes(name)),
    ),
    host_port: container.state === 'running' ? container.hostPort : null,
    port_fixed: container.fixedPort !== null,
    state: container.state,
    image: container.image,
    exit_code: container.state === 'running' ? null : container.exitCode,
    out_of_memory: container.state !== 'running' && container.oomKilled,
    started_at: container.startedAt,
    // Omit the node's default memory limit: it is not a limit of the project.
    memory_bytes:
      container.labels[LABELS.default_memory] === String(container.memoryBytes)
        ? null
        : container.memoryBytes,
    cpus: container.cpus,
  };
}

/**
 * Lists the containers, and starts those that should run (revive.ts). Rejects if the engine does
 * not answer, and never returns an empty list instead.
 */
export async function observe(
  list: ListNodeContainers,
  signal: AbortSignal,
  revive: Revival['revive'],
): Promise<Container[]> {
  const containers = await list({}, signal);
  return (await revive(containers, signal)) ? list({}, signal) : containers;
}

/** Events that change neither the state, the port nor the health of a container. */
const IGNORED_EVENTS = /^(exec_|top|attach|resize|export|archive-path|extract-to-dir|copy|commit)/;
const DEBOUNCE_MS = 100;
/** Health changes are debounced: a flapping check can change many times a second. */
const HEALTH_MS = 10_000;
/**
 * The control plane uses a container that started again after 10 s without another end (STEADY_MS).
 * A registration soon after that time saves the wait for the next period.
 */
const STEADY_MS = 10_500;

export type ContainerWatch = {
  /** Called when a container might have changed. */
  onChange: () => void;
  /** Called when the kernel killed a process of this container. */
  onOutOfMemory?: (id: string) => void;
  /** Called when the event stream broke: the engine might have stopped. */
  onBroken: () => void;
  /** Minimum time in ms between two calls that report only health changes. */
  healthMs?: number;
  /** Time in ms from the last start of a container to the second call for it. */
  steadyMs?: number;
};

/**
 * Calls `onChange` 100 ms after a container changed, and once more when the last one that started
 * has run for a while, until the signal aborts. Reopens a broken event stream with backoff.
 */
export async function watchContainers(
  docker: Docker,
  { onChange, onOutOfMemory, onBroken, healthMs = HEALTH_MS, steadyMs = STEADY_MS }: ContainerWatch,
  signal: AbortSignal,
  log: Logger,
): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let healthTimer: NodeJS.Timeout | undefined;
  let steadyTimer: NodeJS.Timeout | undefined;
  let nextHealthAt = 0;
  const wakeSoon = (): void =>
    void (timer ??= setTimeout(() => {
      timer = undefined;
      onChange();
    }, DEBOUNCE_MS));
  const onHealth = (): void =>
    void (healthTimer ??= setTimeout(
      () => {
        healthTimer = undefined;
        nextHealthAt = performance.now() + healthMs;
        wakeSoon();
      },
      Math.max(0, nextHealthAt - performance.now()),
    ));
  const onEvent = (action: string, id: string): void => {
    if (action === 'oom') onOutOfMemory?.(id);
    if (action === 'start') {
      clearTimeout(steadyTimer);
      steadyTimer = setTimeout(wakeSoon, steadyMs);
    }
    if (action.startsWith('health_status')) onHealth();
    else if (!IGNORED_EVENTS.test(action)) wakeSoon();
  };
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    const since = performance.now();
    try {
      // Watch containers of all nodes, because this node's id can change meanwhile. An event of
      // another node costs only one extra registration.
      await docker.events({ [LABELS.node]: null }, onEvent, signal);
    } catch (error) {
      if (signal.aborted) break;
      log.warn({ err: error }, 'the stream of container events ended; reopening it');
    }
    if (signal.aborted) break;
    onBroken();
    if (performance.now() - since > 60_000) attempt = 0;
    await pause(backoff(attempt, { min: 500, max: 15_000 }), signal).catch(() => undefined);
    // Events were missed while the stream was closed: after a restart of the engine, ports can
    // differ.
    if (!signal.aborted) onChange();
  }
  clearTimeout(timer);
  clearTimeout(healthTimer);
  clearTimeout(steadyTimer);
}
