/**
 * Reports how containers ended: exit code and last lines. A container is read before it is removed,
 * by whatever part of the agent, and when a registration finds that it has exited. Reports that the
 * control plane does not take at once wait in memory, within bounds: the agent writes no logs to
 * the disk.
 */
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import { EXIT_CHARS, EXIT_LINES, type ExitReport } from '@berth/wire/runtime';
import { LABELS } from '@berth/wire/vocabulary';
import { retryUntilAnswered } from '../link/retry.ts';
import { createShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { readHistory } from './history.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type Exits = {
  /** The same engine, but a container is read and reported before it is removed. */
  docker: Docker;
  /** Reports those of the containers that have exited. */
  seen(containers: readonly Container[]): void;
  /**
   * Reports the end of the run that began at `startedAt`: the engine has started the container
   * again.
   */
  restarted(container: Container, startedAt: string): void;
  stop(): Promise<void>;
};
export type ExitsOptions = {
  docker: Docker;
  redactOf: RedactOf;
  client: Client;
  /** Null: not registered yet. */
  nodeId: () => string | null;
  /** Whether a container belongs to this node. */
  isOwn: (container: Container) => boolean;
  log: Logger;
  /** A removal waits this long for the read, and this long for the answer. */
  readMs?: number;
  answerMs?: number;
};

const READ_MS = 5_000;
const ANSWER_MS = 2_000;
const MAX_QUEUED = 50;
const MAX_KNOWN = 2_000;
const READS_AT_ONCE = 2;
/**
 * The engine reads the last lines a moment after the end, and starts the container again after 100
 * ms at the earliest.
 */
const LAST_LINES_MS = 50;
/** A container that the engine starts again and again is reported at most this often. */
const RESTARTS_EVERY_MS = 30_000;

export function createExits({
  docker,
  redactOf,
  client,
  nodeId,
  isOwn,
  log,
  readMs = READ_MS,
  answerMs = ANSWER_MS,
}: ExitsOptions): Exits {
  const ending = new AbortController();
  /** Runs of containers that were reported, or are in the queue. */
  const known = new Set<string>();
  const queue: ExitReport[] = [];
  let sending: Promise<void> | null = null;
  let reading: Promise<void> = Promise.resolve();

  /**
   * The run of each container at the last look: the engine starts a container that crashed again at
   * once.
   */
  let runs = new Map<string, string>();
  /** When a container was last reported, by its id. */
  const reportedAt = new Map<string, number>();

  const hasEnded = ({ state }: Container): boolean =>
    state === 'exited' || state === 'dead' || state === 'restarting';
  const runOf = (container: Container): string => `${container.id} ${container.startedAt}`;
  const isWanted = (container: Container): boolean =>
    container.labels[LABELS.deployment] !== undefined &&
    container.startedAt !== null &&
    isOwn(container) &&
    !known.has(runOf(container));

  async function reportOf(
    container: Container,
    until: string | null,
    signal: AbortSignal,
  ): Promise<ExitReport> {
    const range = { tail: EXIT_LINES, since: null, until, after: null, stream: null };
    const shown = createShownText(await redactOf(container));
    const { lines, leftOut, problem } = await readHistory(
      docker,
      container.id,
      range,
      shown,
      signal,
      EXIT_CHARS,
    );
    if (problem !== null)
      log.debug(
        { container: container.name, problem },
        'the log of an ended container could not be read',
      );
    return {
      deployment_id: container.labels[LABELS.deployment] ?? '',
      container_id: container.id,
      container: container.name,
      exit_code: hasEnded(container) ? container.exitCode : null,
      out_of_memory: hasEnded(container) && container.oomKilled,
      error: container.error === '' ? null : container.error.slice(0, 1_000),
      started_at: container.startedAt,
      finished_at: hasEnded(container) ? container.finishedAt : new Date().toISOString(),
      lines,
      truncated: leftOut > 0,
    };
  }
  /** Reports the run before the one that runs now. */
  async function reportBefore(container: Container, startedAt: string): Promise<void> {
    const before = { ...container, startedAt };
    if (!isWanted(before)) return;
    remember(before);
    const end = await docker.lastEnd(container.id, startedAt).catch(() => null);
    const ended = {
      state: 'exited',
      exitCode: end?.exitCode ?? 0,
      oomKilled: end?.outOfMemory ?? false,
      finishedAt: container.finishedAt,
    };
    await send({ ...before, ...ended }, endOfLines(container), (read) => ({
      ...read,
      exit_code: end?.exitCode ?? null,
    }));
  }
  async function report(container: Container): Promise<void> {
    if (!isWanted(container)) return;
    remember(container);
    await send(container, null, (read) => read);
  }
  function remember(container: Container): void {
    known.add(runOf(container));
    if (known.size > MAX_KNOWN) known.delete(known.values().next().value ?? '');
    reportedAt.delete(container.id);
    reportedAt.set(container.id, performance.now());
    if (reportedAt.size > MAX_KNOWN) reportedAt.delete(reportedAt.keys().next().value ?? '');
  }
  async function send(
    container: Container,
    until: string | null,
    change: (read: ExitReport) => ExitReport,
  ): Promise<void> {
    try {
      queue.push(
        change(
          await reportOf(
            container,
            until,
            AbortSignal.any([ending.signal, AbortSignal.timeout(readMs)]),
          ),
        ),
      );
    } catch (err) {
      known.delete(runOf(container));
      if (!ending.signal.aborted)
        log.debug({ err, container: container.name }, 'reading the end of a container failed');
      return;
    }
    if (queue.length > MAX_QUEUED) {
      queue.shift();
      log.warn(
        { waiting: MAX_QUEUED },
        'the oldest report of an ended container was dropped: the control plane takes none',
      );
    }
    sending ??= sendAll().finally(() => (sending = null));
    await Promise.race([sending, pause(answerMs, ending.signal).catch(() => undefined)]);
  }
  async function sendAll(): Promise<void> {
    while (queue.length > 0 && !ending.signal.aborted) {
      const exits = queue.slice(0, 1);
      try {
        await retryUntilAnswered(
          () => {
            const node_id = nodeId();
            if (node_id === null) throw new Error('the node has no id');
            return client.call('agentExits', { body: { node_id, exits }, signal: ending.signal });
          },
          { signal: ending.signal },
        );
      } catch (err) {
        // A control plane of an earlier version has no such route.
        if (!ending.signal.aborted)
          log.debug({ err }, 'the control plane refused the report of an ended container');
      }
      const [sent] = exits;
      if (queue[0] === sent) queue.shift();
    }
  }

  return {
    docker: {
      ...docker,
      async remove(ref) {
        const container = await docker.inspect(ref).catch(() => null);
        if (container !== null) await report(container);
        await docker.remove(ref);
      },
    },
    seen(containers) {
      const soon = performance.now() - RESTARTS_EVERY_MS;
      const isSoon = (c: Container): boolean =>
        c.state === 'restarting' && (reportedAt.get(c.id) ?? -Infinity) > soon;
      const ended = containers
        .filter((c) => hasEnded(c) && isWanted(c) && !isSoon(c))
        .slice(0, MAX_QUEUED);
      const earlier = runs;
      runs = new Map(
        containers.flatMap(({ id, startedAt }) =>
          startedAt === null ? [] : [[id, startedAt] as const],
        ),
      );
      const again = containers.flatMap((c) => {
        const start = earlier.get(c.id);
        return start === undefined || start === c.startedAt ? [] : [{ container: c, start }];
      });
      if (ended.length + again.length === 0) return;
      // One after the other: after a restart of the agent there may be many, and deployments come
      // first.
      reading = reading.then(async () => {
        for (const { container, start } of again.slice(0, MAX_QUEUED))
          if (!ending.signal.aborted) await reportBefore(container, start);
        for (let from = 0; from < ended.length && !ending.signal.aborted; from += READS_AT_ONCE)
          await Promise.all(ended.slice(from, from + READS_AT_ONCE).map(report));
      });
    },
    restarted(container, startedAt) {
      reading = reading.then(() =>
        ending.signal.aborted ? undefined : reportBefore(container, startedAt),
      );
    },
    async stop() {
      ending.abort(new Error('the agent ends'));
      await reading;
      await sending;
    },
  };
}

/**
 * Returns when the lines of the run before end. The engine notes a start after the first lines of
 * the new run, so the end decides.
 */
function endOfLines({ startedAt, finishedAt }: Container): string | null {
  const end = Date.parse(finishedAt ?? '');
  return end < Date.parse(startedAt ?? '')
    ? new Date(end + LAST_LINES_MS).toISOString()
    : startedAt;
}
