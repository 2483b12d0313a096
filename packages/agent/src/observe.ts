/** What runs on this node, as the engine tells it: looked at with each register, and watched in between. */
import { backoff } from '@berth/kit/backoff';
import type { Logger } from '@berth/kit/log';
import type { ObservedContainer } from '@berth/wire/node';
import { LABELS } from '@berth/wire/vocabulary';
import type { ListOurs } from './node-ids.ts';
import { pause } from './stopped.ts';
import type { Container, Docker } from './tools/docker.ts';

const OUR_LABELS: readonly string[] = Object.values(LABELS);

export function toObserved(container: Container): ObservedContainer {
  return {
    id: container.id,
    name: container.name,
    // An image's own labels are no business of ours, and may be many.
    labels: Object.fromEntries(Object.entries(container.labels).filter(([name]) => OUR_LABELS.includes(name))),
    host_port: container.state === 'running' ? container.hostPort : null,
    state: container.state,
    image: container.image,
    exit_code: container.state === 'running' ? null : container.exitCode,
    out_of_memory: container.state !== 'running' && container.oomKilled,
    started_at: container.startedAt,
    // The default of this node is no limit of the project.
    memory_bytes: container.labels[LABELS.default_memory] === String(container.memoryBytes) ? null : container.memoryBytes,
    cpus: container.cpus,
  };
}

/** Rejects when the engine does not answer: that is not "none". `look` may set right what it sees (revive.ts). */
export async function observe(
  list: ListOurs,
  signal: AbortSignal,
  look: (seen: readonly Container[], signal: AbortSignal) => Promise<boolean>,
): Promise<Container[]> {
  const containers = await list({}, signal);
  return (await look(containers, signal)) ? list({}, signal) : containers;
}

/** What changes neither a state nor a port. */
const UNINTERESTING = /^(exec_|health_status|top|attach|resize|export|archive-path|extract-to-dir|copy|commit)/;
const DEBOUNCE_MS = 100;

export type Watcher = { onChange: () => void /** The engine went away, as far as can be seen from here. */; onBroken: () => void };

/** Calls `onChange` soon after a container of ours changed, until the signal aborts. The stream is opened again when it ends. */
export async function watch(docker: Docker, { onChange, onBroken }: Watcher, signal: AbortSignal, log: Logger): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const onEvent = (action: string): void => {
    if (!UNINTERESTING.test(action))
      timer ??= setTimeout(() => {
        timer = undefined;
        onChange();
      }, DEBOUNCE_MS);
  };
  for (let attempt = 0; !signal.aborted; attempt += 1) {
    const since = Date.now();
    try {
      // Of any node: the id may change while we watch. A neighbour's on the same engine makes us look once more, no harm.
      await docker.events({ [LABELS.node]: null }, onEvent, signal);
    } catch (error) {
      if (signal.aborted) break;
      log.warn({ err: error }, 'the stream of container events ended; it is opened again');
    }
    if (signal.aborted) break;
    onBroken();
    if (Date.now() - since > 60_000) attempt = 0;
    await pause(backoff(attempt, { min: 500, max: 15_000 }), signal).catch(() => undefined);
    // What happened while nobody looked: the engine was restarted, say, and every port is another.
    if (!signal.aborted) onChange();
  }
  clearTimeout(timer);
}
