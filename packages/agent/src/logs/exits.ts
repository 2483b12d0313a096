/**
 * Reports how containers ended: exit code and last lines. A container is read before any part of
 * the agent removes it, and when a registration finds that it has exited. Reports that the control
 * plane does not accept at once wait in memory, within limits, because the agent writes no logs to
 * disk.
 */
import { defined } from '@berth/kit/defined';
import type { Logger } from '@berth/kit/log';
import type { Client } from '@berth/wire/client';
import { EXIT_CHARS, EXIT_LINES, type ExitReport } from '@berth/wire/runtime';
import { instanceOfLabels, LABELS } from '@berth/wire/vocabulary';
import { retryUntilAnswered } from '../link/retry.ts';
import { createShownText } from '../secrets/shown-text.ts';
import { pause } from '../stopped.ts';
import type { Container, Docker } from '../engine/docker.ts';
import { readHistory } from './history.ts';
import type { RedactOf } from '../secrets/secrets-of.ts';

export type Exits = {
  /** The same engine, but it reads and reports a container before removing it. */
  docker: Docker;
  /** Reports containers that have exited. */
  seen(containers: readonly Container[]): void;
  /**
   * Reports the end of the run before the one that began at `startedAt`: the engine has restarted
   * the container.
   */
  restarted(container: Container, startedAt: string): void;
  stop(): Promise<void>;
};
export type ExitsOptions = {
  docker: Docker;
  redactOf: RedactOf;
  client: Client;
  /** Returns the node's id; null before the registration. */
  nodeId: () => string | null;
  /** Tells whether a container belongs to this node. */
  isOwn: (container: Container) => boolean;
  log: Logger;
};

/** Maximum time in ms that a removal waits until the log is read. */
const READ_MS = 5_000;
/** Maximum time in ms that a removal waits for the control plane's answer. */
const ANSWER_MS = 2_000;
const MAX_QUEUED = 50;
const MAX_KNOWN = 2_000;
const READS_AT_ONCE = 2;
/**
 * Margin in ms after the end of a run in which its last lines can still arrive. The engine restarts
 * a container after 100 ms at the earliest.
 */
const LAST_LINES_MS = 50;
/** Minimum time in ms between two reports of a container that the engine restarts repeatedly. */
const RESTARTS_EVERY_MS = 30_000;

/** State of the exit reports of one agent. */
type Reporter = {
  options: ExitsOptions;
  ending: AbortController;
  /** Container runs that were reported or are in the queue. */
  reportedRuns: Set<string>;
  /** Reports whose log is still read, by container id. A removal waits for them. */
  underway: Map<string, Promise<unknown>>;
  /** Time of the last report, by container id. */
  reportedAt: Map<string, number>;
  /**
   * The start time of each container at the last check, to detect restarts: the engine restarts a
   * crashed container at once.
   */
  starts: Map<string, string>;
  queue: ExitReport[];
  sending: Promise<void> | null;
  reading: Promise<void>;
};

export function createExits(options: ExitsOptions): Exits {
  const { docker } = options;
  const reporter: Reporter = {
    options,
    ending: new AbortController(),
    reportedRuns: new Set(),
    underway: new Map(),
    reportedAt: new Map(),
    starts: new Map(),
    queue: [],
    sending: null,
    reading: Promise.resolve(),
  };
  return {
    docker: {
      ...docker,
      async remove(ref) {
        const container = await docker.inspect(ref).catch(() => null);
        if (container !== null) {
          await report(reporter, container);
          // The engine does not show the log of a container that is being removed.
          await reporter.underway.get(container.id);
        }
        await docker.remove(ref);
      },
    },
    seen: (containers) => reportSeen(reporter, containers),
    restarted(container, startedAt) {
      later(reporter, () => reportBefore(reporter, container, startedAt));
    },
    async stop() {
      reporter.ending.abort(new Error('the agent ends'));
      await reporter.reading;
      await reporter.sending;
    },
  };
}

/** Queues the work after previous work of this kind. */
function later(reporter: Reporter, work: () => Promise<void>): void {
  reporter.reading = reporter.reading.then(() =>
    reporter.ending.signal.aborted ? undefined : work(),
  );
}

function reportSeen(reporter: Reporter, containers: readonly Container[]): void {
  const ended = containers
    .filter((c) => hasEnded(c) && isWanted(reporter, c) && !wasJustReported(reporter, c))
    .slice(0, MAX_QUEUED);
  const restarts = restartsSince(reporter.starts, containers).slice(0, MAX_QUEUED);
  reporter.starts = new Map(
    containers.flatMap(({ id, startedAt }) =>
      startedAt === null ? [] : [[id, startedAt] as const],
    ),
  );
  // Handle one restart at a time: after a restart of the agent there can be many, and deployments
  // come first.
  for (const { container, start } of restarts)
    later(reporter, () => reportBefore(reporter, container, start));
  for (let from = 0; from < ended.length; from += READS_AT_ONCE) {
    const part = ended.slice(from, from + READS_AT_ONCE);
    later(reporter, async () => {
      await Promise.all(part.map((container) => report(reporter, container)));
    });
  }
}

/** Returns the containers that the engine has restarted since the last check. */
const restartsSince = (
  starts: ReadonlyMap<string, string>,
  containers: readonly Container[],
): { container: Container; start: string }[] =>
  containers.flatMap((container) => {
    const start = starts.get(container.id);
    return start === undefined || start === container.startedAt ? [] : [{ container, start }];
  });

const hasEnded = ({ state }: Container): boolean =>
  state === 'exited' || state === 'dead' || state === 'restarting';
const runKey = (container: Container): string => `${container.id} ${container.startedAt}`;

const isWanted = ({ options, reportedRuns }: Reporter, container: Container): boolean =>
  container.labels[LABELS.deployment] !== undefined &&
  container.startedAt !== null &&
  options.isOwn(container) &&
  !reportedRuns.has(runKey(container));

const wasJustReported = ({ reportedAt }: Reporter, { id, state }: Container): boolean =>
  state === 'restarting' &&
  (reportedAt.get(id) ?? -Infinity) > performance.now() - RESTARTS_EVERY_MS;

async function report(reporter: Reporter, container: Container): Promise<void> {
  if (!isWanted(reporter, container)) return;
  remember(reporter, container);
  // The engine starts it again while its log is read.
  const until = container.state === 'restarting' ? afterEnd(container) : null;
  await send(reporter, container, until, (read) => read);
}

/** Reports the run before the current one. */
async function reportBefore(
  reporter: Reporter,
  container: Container,
  startedAt: string,
): Promise<void> {
  const before = { ...container, startedAt };
  if (!isWanted(reporter, before)) return;
  remember(reporter, before);
  const end = await reporter.options.docker.lastEnd(container.id, startedAt).catch(() => null);
  const ended = {
    state: 'exited',
    exitCode: end?.exitCode ?? 0,
    oomKilled: end?.outOfMemory ?? false,
    finishedAt: container.finishedAt,
  };
  await send(reporter, { ...before, ...ended }, endOfLines(container), (read) => ({
    ...read,
    exit_code: end?.exitCode ?? null,
  }));
}

function remember({ reportedRuns, reportedAt }: Reporter, container: Container): void {
  reportedRuns.add(runKey(container));
  if (reportedRuns.size > MAX_KNOWN) reportedRuns.delete(reportedRuns.values().next().value ?? '');
  reportedAt.delete(container.id);
  reportedAt.set(container.id, performance.now());
  if (reportedAt.size > MAX_KNOWN) reportedAt.delete(reportedAt.keys().next().value ?? '');
}

/** Sends a report. A removal of the container waits until it ends. */
async function send(
  reporter: Reporter,
  container: Container,
  until: string | null,
  change: (read: ExitReport) => ExitReport,
): Promise<void> {
  const { underway } = reporter;
  const sent = readAndSend(reporter, container, until, change);
  const all = Promise.all([underway.get(container.id), sent]);
  underway.set(container.id, all);
  await all;
  if (underway.get(container.id) === all) underway.delete(container.id);
}

async function readAndSend(
  reporter: Reporter,
  container: Container,
  until: string | null,
  change: (read: ExitReport) => ExitReport,
): Promise<void> {
  const { options, ending, queue } = reporter;
  const signal = AbortSignal.any([ending.signal, AbortSignal.timeout(READ_MS)]);
  try {
    queue.push(change(await readReport(options, container, until, signal)));
  } catch (err) {
    reporter.reportedRuns.delete(runKey(container));
    if (!ending.signal.aborted)
      options.log.debug(
        { err, container: container.name },
        'reading the end of a container failed',
      );
    return;
  }
  if (queue.length > MAX_QUEUED) {
    queue.shift();
    options.log.warn(
      { waiting: MAX_QUEUED },
      'the oldest report of an ended container was dropped: the control plane takes none',
    );
  }
  reporter.sending ??= sendQueue(reporter).finally(() => (reporter.sending = null));
  await Promise.race([reporter.sending, pause(ANSWER_MS, ending.signal).catch(() => undefined)]);
}

async function readReport(
  { docker, redactOf, log }: ExitsOptions,
  container: Container,
  until: string | null,
  signal: AbortSignal,
): Promise<ExitReport> {
  const shown = createShownText(await redactOf(container));
  const range = { tail: EXIT_LINES, since: null, until, after: null, stream: null };
  const history = await readHistory({ docker, shown }, container, range, signal, EXIT_CHARS);
  if (history.problem !== null)
    log.debug(
      { container: container.name, problem: history.problem },
      'the log of an ended container could not be read',
    );
  const isOver = hasEnded(container);
  return {
    deployment_id: container.labels[LABELS.deployment] ?? '',
    container_id: container.id,
    ...defined({ instance: instanceOfLabels(container.labels) ?? undefined }),
    container: container.name,
    exit_code: isOver ? container.exitCode : null,
    out_of_memory: isOver && container.oomKilled,
    error: container.error === '' ? null : container.error.slice(0, 1_000),
    started_at: container.startedAt,
    finished_at: isOver ? container.finishedAt : new Date().toISOString(),
    lines: history.lines.map(({ at, stream, text }) => ({ at, stream, text })),
    truncated: history.leftOut > 0,
  };
}

async function sendQueue({ options, ending, queue }: Reporter): Promise<void> {
  const { signal } = ending;
  while (queue.length > 0 && !signal.aborted) {
    const exits = queue.slice(0, 1);
    try {
      await retryUntilAnswered(() => sendExits(options, exits, signal), { signal });
    } catch (err) {
      // An older control plane does not have this route.
      if (!signal.aborted)
        options.log.debug({ err }, 'the control plane refused the report of an ended container');
    }
    if (queue[0] === exits[0]) queue.shift();
  }
}

function sendExits(
  { nodeId, client }: ExitsOptions,
  exits: ExitReport[],
  signal: AbortSignal,
): Promise<unknown> {
  const node_id = nodeId();
  if (node_id === null) throw new Error('the node has no id');
  return client.call('agentExits', { body: { node_id, exits }, signal });
}

/**
 * Returns the time at which the lines of the previous run end. Uses the end of that run, because
 * the engine records a start after the first lines of the new run.
 */
function endOfLines({ startedAt, finishedAt }: Container): string | null {
  const end = Date.parse(finishedAt ?? '');
  return end < Date.parse(startedAt ?? '') ? afterEnd({ finishedAt }) : startedAt;
}

/** Null: the engine does not tell when the container ended. */
function afterEnd({ finishedAt }: Pick<Container, 'finishedAt'>): string | null {
  const end = Date.parse(finishedAt ?? '');
  return Number.isNaN(end) ? null : new Date(end + LAST_LINES_MS).toISOString();
}
