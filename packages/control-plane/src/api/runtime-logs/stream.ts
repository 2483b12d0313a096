/**
 * Runtime logs as a live stream. Events: `line` (a RuntimeLine), `lost` (lines can be missing
 * here), `gone` (a node cannot be read now). A stream has one source for each instance of a running
 * deployment, and continues with the next deployment of the project.
 */
import { createLimit } from '@berth/kit/limit';
import type { RefCounts } from '@berth/kit/ref-count';
import { DEFAULT_TAIL } from '@berth/wire/runtime';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError } from '../../domain/platform/errors.ts';
import type { SENT } from '../define.ts';
import type { Hold } from '../long-poll.ts';
import type { EventStream } from '../sse.ts';
import { streamTo } from '../stream-answer.ts';
import { type LogQuery, nothingRuns, storedLines } from './lines.ts';
import type { RuntimeLogDeps } from './deps.ts';
import { createLineMerge } from './merge.ts';
import { lastEnd } from './page.ts';
import { tooManyFollows } from './readers.ts';
import { cursorsIn } from './resume-id.ts';
import { createSource, LOOK_MS, runSource } from './source.ts';
import { MOST_SOURCES, type Target, targetsOf } from './targets.ts';
import { inTime, send, sendGone, type Viewer } from './viewer.ts';

export type StreamCall = {
  projectId: string;
  userId: string;
  query: LogQuery;
  /** Checks the caller's rights again. Throws if they have ended. */
  recheck: () => Promise<unknown>;
  request: FastifyRequest;
  reply: FastifyReply;
};

const HEARTBEAT_MS = 15_000;
/** How long a stream waits for the last lines of a container that is being removed. */
const LAST_LINES_MS = 60_000;
const MOST_STREAMS_OF_ONE = 8;
/** Number of logs that are read at the same time for one stream. */
const READS_AT_ONCE = 4;

/** Streams the log until the client disconnects. Throws too_many_requests. */
export async function streamLogs(
  deps: RuntimeLogDeps,
  openStreams: RefCounts,
  call: StreamCall,
): Promise<typeof SENT> {
  const { projectId, userId, query, request, reply } = call;
  const targets = await targetsOf(deps, projectId, query);
  checkRoom(deps, openStreams, userId, targets);
  const release = openStreams.add(userId);
  try {
    return await streamTo({
      holds: deps.holds,
      kind: 'logs',
      userId,
      request,
      reply,
      pump: (events, hold) => pump(createViewer(deps, call, events, hold), projectId),
      onFault: (err) => request.log.error({ err, project: projectId }, 'runtime log stream failed'),
    });
  } finally {
    release();
  }
}

function checkRoom(
  { readers }: RuntimeLogDeps,
  openStreams: RefCounts,
  userId: string,
  targets: readonly Target[],
): void {
  const followed = targets.filter((target) => !target.ended).slice(0, MOST_SOURCES);
  if (!readers.hasRoom(followed)) throw tooManyFollows();
  const open = openStreams.count(userId);
  if (open >= MOST_STREAMS_OF_ONE)
    throw new DomainError(
      'too_many_requests',
      `you have ${open} streams of runtime logs open; close some first`,
    );
}

async function pump(viewer: Viewer, projectId: string): Promise<void> {
  const sources: Sources = new Map();
  try {
    await followProject({ viewer, sources, projectId, failure: null, isLeftOutTold: false });
  } finally {
    for (const { stop } of sources.values()) stop.abort();
  }
}

function createViewer(
  deps: RuntimeLogDeps,
  { query, recheck, request }: StreamCall,
  stream: EventStream,
  hold: Hold,
): Viewer {
  return {
    deps,
    stream,
    hold,
    query,
    beganAt: deps.now(),
    recheck,
    checkedAt: -Infinity,
    cursors: cursorsIn(request.headers['last-event-id']),
    firstTargets: new Set(),
    reads: createLimit(READS_AT_ONCE),
    merge: createLineMerge(query.tail === 0 ? Infinity : (query.tail ?? DEFAULT_TAIL)),
    quietSince: performance.now(),
  };
}

type Running = {
  stop: AbortController;
  node_id: string | null;
  /** Monotonic time since which the instance no longer runs; null while it runs. */
  endingAt: number | null;
};
/** By the key of the target. */
type Sources = Map<string, Running>;
type ProjectStream = {
  viewer: Viewer;
  sources: Sources;
  projectId: string;
  /** The error with which a source ended. */
  failure: unknown;
  /** True if the client was told that not all instances are followed. */
  isLeftOutTold: boolean;
};

/** Keeps one source for each instance until the stream ends. */
async function followProject(stream: ProjectStream): Promise<never> {
  const { viewer, sources, projectId } = stream;
  const { deps, hold, query, cursors } = viewer;
  let isFirstLook = true;
  let wasIdle = false;
  for (;;) {
    const changed = deps.changes.wait('work', LOOK_MS, hold.signal);
    // Ends the stream when the token expires, the user is disabled or can no longer see the
    // project.
    await viewer.recheck();
    await deps.stores.projects.get(projectId);
    const targets = await targetsOf(deps, projectId, query);
    const withLines = isFirstLook && cursors.size === 0;
    if (withLines) for (const { key } of targets) viewer.firstTargets.add(key);
    const isIdle = sources.size === 0 && targets.every((target) => target.ended);
    if (isIdle && !wasIdle) await sayIdle(stream, targets[0] ?? null, withLines);
    wasIdle = isIdle;
    isFirstLook = false;
    startSources(stream, targets);
    await tellLeftOut(stream, targets.length);
    endSources(sources, targets);
    await keepAlive(viewer);
    await changed;
    hold.signal.throwIfAborted();
    throwFailure(stream);
  }
}

function startSources(stream: ProjectStream, targets: readonly Target[]): void {
  const { sources } = stream;
  for (const target of targets) {
    const running = sources.get(target.key);
    if (running?.node_id === target.node_id) continue;
    running?.stop.abort();
    if (sources.size < MOST_SOURCES || running !== undefined) start(stream, target);
  }
}

/** Tells the client once that not all instances are followed. */
async function tellLeftOut(stream: ProjectStream, count: number): Promise<void> {
  const { viewer, sources } = stream;
  if (stream.isLeftOutTold || count <= sources.size || sources.size < MOST_SOURCES) return;
  stream.isLeftOutTold = true;
  await sendGone(viewer, {
    deployment_id: null,
    node: null,
    message:
      `a stream shows at most ${MOST_SOURCES} instances, and ${count} run: choose by process and ` +
      'instance',
  });
}

/** Ends the sources of instances that have not run for a while. */
function endSources(sources: Sources, targets: readonly Target[]): void {
  const live = new Set(targets.filter(({ ended }) => !ended).map(({ key }) => key));
  for (const [key, running] of sources) {
    if (live.has(key)) continue;
    running.endingAt ??= performance.now();
    if (performance.now() - running.endingAt > LAST_LINES_MS) running.stop.abort();
  }
}

async function keepAlive(viewer: Viewer): Promise<void> {
  if (performance.now() - viewer.quietSince < HEARTBEAT_MS) return;
  viewer.quietSince = performance.now();
  await viewer.stream.comment('still here');
}

function throwFailure({ failure }: ProjectStream): void {
  if (failure instanceof DomainError) throw failure;
  if (failure !== null)
    throw new Error('reading the log of a deployment failed', { cause: failure });
}

function start(stream: ProjectStream, target: Target): void {
  const { viewer, sources } = stream;
  const stop = new AbortController();
  const running: Running = { stop, node_id: target.node_id, endingAt: null };
  sources.set(target.key, running);
  const signal = AbortSignal.any([stop.signal, viewer.hold.signal]);
  const source = createSource(viewer, target, signal, () => running.endingAt !== null);
  void runSource(source)
    .catch((error: unknown) => {
      if (!signal.aborted) stream.failure = error;
    })
    .finally(() => {
      if (sources.get(target.key) === running) sources.delete(target.key);
    });
}

/** Sends the stored last lines and then says that no container runs. */
async function sayIdle(
  { viewer, projectId }: ProjectStream,
  named: Target | null,
  withLines: boolean,
): Promise<void> {
  const { lines, unavailable } = await idleLines(viewer, projectId, named);
  await inTime(viewer, async () => {
    if (withLines)
      await send(
        viewer,
        lines.map((data) => ({ event: 'line', data })),
      );
    await sendGone(viewer, {
      deployment_id: named?.deployment_id ?? lines[0]?.deployment_id ?? null,
      node: null,
      message: (withLines ? unavailable : undefined) ?? nothingRuns(viewer.query),
    });
  });
}

async function idleLines({ deps, query }: Viewer, projectId: string, named: Target | null) {
  const tail = query.tail ?? DEFAULT_TAIL;
  if (named === null) return lastEnd(deps, projectId, query, tail);
  const exits = await deps.stores.exits.list(named.deployment_id);
  return { unavailable: 'this deployment has ended', ...storedLines(exits, query, tail) };
}
