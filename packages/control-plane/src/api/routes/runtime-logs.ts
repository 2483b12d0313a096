/**
 * Runtime logs: what the containers of a project print, as JSON or as a live stream, and how
 * containers ended. The lines come from the agents (api/log-readers.ts); only ends of containers
 * are stored.
 *
 * Events of the stream: `line` (a RuntimeLine), `lost` (lines that were not sent, with their
 * number), `gone` (a node cannot be read now). The id of a line holds the position in the log of
 * each deployment, so Last-Event-ID resumes an interrupted stream.
 */
import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import {
  DEFAULT_TAIL,
  type ContainerExit,
  type GoneNode,
  type LostLines,
  MAX_TAIL,
  type RuntimeLine,
  type RuntimeLogs,
} from '@berth/wire/runtime';
import { defined } from '@berth/kit/defined';
import type { QueryOf } from '@berth/wire/routes';
import { isTerminal } from '@berth/wire/vocabulary';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { DomainError, invalid } from '../../domain/platform/errors.ts';
import { isOnline } from '../../domain/nodes/placement.ts';
import type { NodeRecord } from '../../domain/platform/records.ts';
import type { ExitRecord } from '../../domain/deployments/runtime-logs.ts';
import type { Agents } from '../agents.ts';
import type { Caller } from '../auth/callers.ts';
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { Hold, Holds } from '../long-poll.ts';
import type { Channel, ChannelLine } from '../log-channel.ts';
import {
  createGaps,
  createOverlap,
  type Gaps,
  type Overlap,
  type Recount,
} from '../log-overlap.ts';
import { canReadLogs, type Readers, waitFor } from '../log-readers.ts';
import { type EventStream, openEventStream, type SseEvent } from '../sse.ts';
import { time } from '../views.ts';

/** How often a stream looks which deployments of the project run. */
const LOOK_MS = 2_000;
const HEARTBEAT_MS = 15_000;
/** An agent sends something at least every 5 s while it reads a log. */
const SILENT_MS = 15_000;
const LINES_AT_ONCE = 500;
/** How long new lines are compared with those of the first read. */
const OVERLAP_MS = 5_000;
/**
 * How long missing numbers may belong to lines of the first read: an agent whose container is
 * silent tells them with its next sign.
 */
const GAP_MS = 15_000;
/** How long a gap waits for lines that say where it ends. */
const GAP_WAIT_MS = 2_000;
/** Deployments of one project that a stream follows at once. */
const MOST_SOURCES = 6;
/** Time that a stream gives to the last lines of a container that is being removed. */
const LAST_LINES_MS = 60_000;
/**
 * Bounds of what is in memory for one viewer alone: the first lines of a deployment, and the lines
 * that are being sent.
 */
const FIRST_BYTES = 512 * 1024;
const PAGE_BYTES = 64 * 1024;
/** Lines reach a viewer whose rights ended for at most this time. */
const RIGHTS_MS = 500;
const MOST_STREAMS_OF_ONE = 8;

type Query = QueryOf<'projectLogs'>;
type Target = { id: string; node_id: string | null; ended: boolean };
type Deps = ApiDeps & { holds: Holds; agents: Agents; readers: Readers };

export function runtimeLogRoutes(route: Define, deps: Deps): void {
  const { stores, changes, holds, agents, readers, now, limits } = deps;
  const { slowMs } = readers.limits;
  const openByUser = new Map<string, number>();

  route('projectLogs', async ({ params, query, user, recheck, stream, request, reply }) => {
    const project = await stores.projects.get(params.id);
    if (query.deployment_id !== undefined) await deploymentOf(project.id, query.deployment_id);
    if (!stream) return read(project.id, query, request, reply);
    if (query.until !== undefined)
      throw invalid('until', 'stream', 'a stream has no end; leave it out, or request JSON');
    return follow(project.id, query, { userId: user.id, recheck }, request, reply);
  });

  route('deploymentExits', async ({ params }) => {
    const deployment = await stores.deployments.get(params.id);
    return { items: (await stores.exits.list(deployment.id)).map(exitView) };
  });

  route('agentLogWants', async ({ query, request }) => {
    await agents.checkNode(request, query.node_id);
    return { items: await readers.wantsOf(query.node_id) };
  });

  route(
    'agentLogBatch',
    async ({ params, body, request }) => {
      await agents.checkNode(request, body.node_id);
      return readers.accept(params.key, body);
    },
    { bodyLimit: 8 * 1_048_576 },
  );

  route(
    'agentExits',
    async ({ body, request }) => {
      await agents.checkNode(request, body.node_id);
      const ids = [...new Set(body.exits.map((e) => e.deployment_id))];
      const known = new Set((await stores.deployments.getMany(ids)).map((d) => d.id));
      const own = await stores.exits.ranOn(body.node_id, ids);
      // The deployment may have moved to another node since.
      const foreign = [...known].find((id) => !own.has(id));
      if (foreign !== undefined)
        throw new DomainError('forbidden', `deployment ${foreign} never ran on this node`);
      let stored = 0;
      for (const { container_id, started_at, finished_at, ...exit } of body.exits) {
        if (!known.has(exit.deployment_id)) continue;
        const run = createHash('sha256')
          .update(`${container_id} ${started_at}`)
          .digest('base64url')
          .slice(0, 22);
        const at = (text: string | null): number | null =>
          text === null ? null : Date.parse(text);
        const record = {
          ...exit,
          run,
          node_id: body.node_id,
          started_at: at(started_at),
          finished_at: at(finished_at),
        };
        if (await stores.exits.add(record, now())) stored += 1;
      }
      return { stored };
    },
    { bodyLimit: 8 * 1_048_576 },
  );

  async function deploymentOf(projectId: string, id: string) {
    const deployment = await stores.deployments.get(id).catch((error: unknown) => {
      if (error instanceof DomainError && error.code === 'not_found') return null;
      throw error;
    });
    // The caller may not see the other project, so its deployments get the answer of those that do
    // not exist.
    if (deployment?.project_id !== projectId)
      throw new DomainError('not_found', 'the project has no such deployment');
    return deployment;
  }

  /** Returns the deployments whose containers may print now, or the named one. */
  async function targetsOf(projectId: string, named: string | undefined): Promise<Target[]> {
    if (named !== undefined) {
      const { id, node_id, status } = await deploymentOf(projectId, named);
      return [{ id, node_id, ended: isTerminal(status) }];
    }
    const [running, deploying] = await Promise.all(
      (['running', 'deploying'] as const).map((status) =>
        stores.deployments.list(
          { project_id: projectId, status },
          { limit: MOST_SOURCES, cursor: null },
        ),
      ),
    );
    const live = [...(running?.items ?? []), ...(deploying?.items ?? [])].filter(
      (d) => d.node_id !== null,
    );
    return live.map(({ id, node_id }) => ({ id, node_id, ended: false }));
  }

  /** Returns the node, or why its logs cannot be read now. */
  async function nodeOf(
    id: string | null,
  ): Promise<{ node: NodeRecord | null; problem: string | null }> {
    const [node] = id === null ? [] : await stores.nodes.getMany([id]);
    if (node === undefined) return { node: null, problem: 'its node does not exist any more' };
    if (!canReadLogs(node))
      return { node, problem: `the agent of node ${node.hostname} sends no logs` };
    if (!isOnline(node, now(), limits))
      return { node, problem: `node ${node.hostname} is offline since ${time(node.last_seen_at)}` };
    return { node, problem: null };
  }

  async function read(
    projectId: string,
    query: Query,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<RuntimeLogs> {
    const targets = await targetsOf(projectId, query.deployment_id);
    const tail = query.tail ?? DEFAULT_TAIL;
    const gone = new AbortController();
    reply.raw.on('close', () => gone.abort());
    const parts = await Promise.all(
      targets.map((target) => linesOf(target, query, tail, gone.signal)),
    );
    if (targets.length === 0) parts.push(await lastEnd(projectId, query, tail));
    request.log.debug({ project: projectId, parts: parts.length }, 'runtime log read');
    const lines = parts
      .flatMap((part) => part.lines)
      .sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
    const problems = parts.flatMap((part) => part.unavailable ?? []);
    return {
      lines: tail === 0 ? [] : lines.slice(-tail),
      truncated: lines.length > tail || parts.some((part) => part.truncated),
      ...defined({ unavailable: problems.length === 0 ? undefined : problems.join('; ') }),
    };
  }

  async function linesOf(
    target: Target,
    query: Query,
    tail: number,
    signal: AbortSignal,
  ): Promise<RuntimeLogs> {
    if (target.ended) return storedLines(await stores.exits.list(target.id), query, tail);
    const { node, problem } = await nodeOf(target.node_id);
    if (node === null || problem !== null)
      return { lines: [], truncated: false, unavailable: problem ?? 'unknown' };
    const { channel, problem: unread } = await readers.read(
      {
        deployment_id: target.id,
        node_id: node.id,
        tail,
        ...rangeOf(query),
        stream: query.stream ?? null,
        after: null,
      },
      signal,
    );
    const lines = linesIn(channel).map((line) => lineView(target.id, line, channel));
    return {
      lines,
      truncated: channel.leftOut() + channel.dropped() > 0,
      ...defined({ unavailable: unread ?? undefined }),
    };
  }

  /** Where nothing runs, the stored end of the newest container answers. */
  async function lastEnd(projectId: string, query: Query, tail: number): Promise<RuntimeLogs> {
    const { items } = await stores.deployments.list(
      { project_id: projectId },
      { limit: 20, cursor: null },
    );
    for (const { id } of items) {
      const exits = await stores.exits.list(id);
      const [newest] = exits;
      if (newest !== undefined)
        return {
          ...storedLines([newest], query, tail),
          unavailable: `${NOTHING_RUNS}; these are the last lines of ${endOf(newest)}`,
        };
    }
    return {
      lines: [],
      truncated: false,
      unavailable: `${NOTHING_RUNS}, and no end of a container is stored`,
    };
  }

  async function follow(
    projectId: string,
    query: Query,
    { userId, recheck }: { userId: string; recheck: () => Promise<Caller> },
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<typeof SENT> {
    const targets = (await targetsOf(projectId, query.deployment_id)).filter(
      (target) => !target.ended,
    );
    // A stream that has begun can answer nothing any more.
    if (!readers.hasRoom(targets))
      throw new DomainError(
        'too_many_requests',
        'too many logs are being followed; close some first',
      );
    const open = openByUser.get(userId) ?? 0;
    if (open >= MOST_STREAMS_OF_ONE)
      throw new DomainError(
        'too_many_requests',
        `you have ${open} streams of runtime logs open; close some first`,
      );
    const hold = holds.begin('logs', reply.raw, userId);
    if (hold === null)
      throw new DomainError('too_many_requests', 'too many streams are open; close some first');
    openByUser.set(userId, open + 1);
    reply.hijack();
    const stream = openEventStream(
      reply.raw,
      { 'x-request-id': request.id, 'x-content-type-options': 'nosniff' },
      hold.signal,
    );
    const viewer = createViewer(stream, query, hold, {
      recheck,
      resumed: positionsIn(request.headers['last-event-id']),
    });
    try {
      await viewer.run(projectId);
    } catch (error) {
      // Normal ends: the client disconnects, the server closes, or the caller's rights end. After a
      // fault the client reconnects.
      if (!hold.signal.aborted && !(error instanceof DomainError))
        request.log.error({ err: error, project: projectId }, 'runtime log stream failed');
    } finally {
      viewer.stop();
      hold.release();
      const left = (openByUser.get(userId) ?? 1) - 1;
      if (left > 0) openByUser.set(userId, left);
      else openByUser.delete(userId);
      stream.end();
    }
    return SENT;
  }

  type Position = { stdout: string; stderr: string };
  type Source = {
    stop: AbortController;
    done: Promise<void>;
    node_id: string | null;
    endingAt: number | null;
  };

  function createViewer(
    stream: EventStream,
    query: Query,
    hold: Hold,
    {
      recheck,
      resumed,
    }: { recheck: () => Promise<unknown>; resumed: ReadonlyMap<string, Position> },
  ) {
    const positions = new Map<string, Position>();
    const sources = new Map<string, Source>();
    let quietSince = performance.now();
    let failure: unknown = null;
    /**
     * Deployments that this stream has shown: their next source goes on where the last one ended.
     */
    let isFirstLook = true;
    let wasIdle = false;

    const sendAll = async (events: readonly SseEvent[]): Promise<void> => {
      quietSince = performance.now();
      await stream.sendAll(events);
    };
    const sendGone = (data: GoneNode): Promise<void> => sendAll([{ event: 'gone', data }]);
    const lostEvent = (data: LostLines): SseEvent => ({ event: 'lost', data });

    /** Returns the event of a line, or nothing if the viewer wants the other stream only. */
    function lineEvent(id: string, line: ChannelLine, channel: Channel): SseEvent[] {
      const at = positions.get(id) ?? { stdout: '', stderr: '' };
      positions.set(id, { ...at, [line.stream]: line.at });
      if (query.stream !== undefined && line.stream !== query.stream) return [];
      return [{ event: 'line', data: lineView(id, line, channel), id: idOf(positions) }];
    }
    /** A check for each part of a fast log would cost more than its lines. */
    let checkedAt = -Infinity;
    async function checkRights(): Promise<void> {
      if (performance.now() - checkedAt < RIGHTS_MS) return;
      await recheck();
      checkedAt = performance.now();
    }

    type Live = { channel: Channel; end: number; signal: AbortSignal };
    /**
     * Sends the lines before now. `end`: the position in the channel of the new lines, which this
     * overlaps with. `problem`: why lines are missing.
     */
    async function sendFirst(
      target: Target,
      node: NodeRecord,
      begin: Begin,
      live: Live,
    ): Promise<{ overlap: Overlap; problem: string | null }> {
      const request = {
        deployment_id: target.id,
        node_id: node.id,
        until: null,
        stream: null,
        bytes: FIRST_BYTES,
      };
      const { channel, problem } = await readers.read({ ...request, ...begin.range }, live.signal);
      const lines = linesIn(channel).filter(
        (line) => begin.known === null || line.at > begin.known[line.stream],
      );
      const overlap = createOverlap(
        lines,
        live.channel.until(live.end),
        begin.known ?? { stdout: '', stderr: '' },
      );
      const [first] = lines;
      // The agent leaves out what the viewer did not ask for, too; the channel drops only what does
      // not fit into its bytes.
      const count = (begin.countsLeftOut ? channel.leftOut() : 0) + channel.dropped();
      await recheck();
      if (count > 0 && first !== undefined) {
        const from = begin.range.after === null ? null : timeIn(begin.range.after, channel);
        await inTime(() =>
          sendAll([
            lostEvent({ deployment_id: target.id, count, from, to: timeIn(first.at, channel) }),
          ]),
        );
      }
      await inTime(async () => {
        for (let i = 0; i < lines.length; i += LINES_AT_ONCE) {
          live.signal.throwIfAborted();
          await sendAll(
            lines
              .slice(i, i + LINES_AT_ONCE)
              .flatMap((line) => lineEvent(target.id, line, channel)),
          );
        }
      });
      return { overlap, problem };
    }

    /** Counts the lines after those that a read had. */
    const recountOf =
      (target: Target, node: NodeRecord, signal: AbortSignal): Recount =>
      async ({ stdout, stderr }) => {
        const request = {
          deployment_id: target.id,
          node_id: node.id,
          tail: MAX_TAIL,
          since: null,
          until: null,
          stream: null,
        };
        const found = await readers
          .read({ ...request, after: stdout > stderr ? stdout : stderr }, signal)
          .catch((error: unknown) => {
            if (!(error instanceof DomainError) || error.code !== 'too_many_requests') throw error;
            return null;
          });
        if (found === null) return null;
        const { channel, problem } = found;
        const lines = linesIn(channel).filter(
          (line) => line.at > (line.stream === 'stdout' ? stdout : stderr),
        );
        return problem === null
          ? { lines, total: channel.leftOut() + channel.dropped() + lines.length }
          : null;
      };

    /**
     * Ends the stream if the viewer does not take what `work` sends: what it does not take stays in
     * memory.
     */
    async function inTime(work: () => Promise<void>): Promise<void> {
      const timer = setTimeout(() => stream.abort(), slowMs);
      try {
        await work();
      } finally {
        clearTimeout(timer);
      }
    }

    async function source(
      target: Target,
      signal: AbortSignal,
      isEnding: () => boolean,
    ): Promise<void> {
      let said = '';
      let unread = 0;
      const gone = async (node: string | null, message: string): Promise<void> => {
        if (said !== message) await sendGone({ deployment_id: target.id, node, message });
        said = message;
      };
      for (;;) {
        const { node, problem } = await nodeOf(target.node_id);
        if (node === null || problem !== null) {
          await gone(node?.hostname ?? null, problem ?? '');
          await pause(LOOK_MS, signal);
          continue;
        }
        const held = await readers.follow(target.id, node.id).catch(async (error: unknown) => {
          if (!(error instanceof DomainError) || error.code !== 'too_many_requests') throw error;
          // Others took the room after this stream began.
          await gone(node.hostname, error.message);
          return null;
        });
        if (held === null) {
          await pause(LOOK_MS, signal);
          continue;
        }
        try {
          const { channel } = held;
          let at = channel.end();
          /** No line has come yet whose number would show that lines before it are missing. */
          let isUnnumbered = readers.isShared && channel.isWhole() === null;
          const began = now();
          const first = await sendFirst(target, node, beginOf(target.id), {
            channel,
            end: at,
            signal,
          });
          if (first.problem !== null) {
            await gone(node.hostname, first.problem);
            // Once more, for the lines that are missing. New lines do not wait longer.
            if (unread++ === 0) {
              await pause(LOOK_MS, signal);
              continue;
            }
          }
          let overlap: Overlap | null = first.overlap;
          // Ends the comparison soon: the clock of the node may be set back.
          let overlapUntil = performance.now() + OVERLAP_MS;
          const gapsAfter = ({ newest }: Overlap): Gaps => {
            const until = performance.now() + GAP_MS;
            return createGaps(newest, () => performance.now() > until);
          };
          let gaps = gapsAfter(first.overlap);
          const wait = (condition: () => boolean): Promise<boolean> =>
            waitFor(channel, () => condition() || channel.ended(), GAP_WAIT_MS, signal);
          let before: string | null = null;
          for (;;) {
            if (isUnnumbered && channel.isWhole() !== null) {
              isUnnumbered = false;
              // The agent reads the log for a viewer at another control plane, too. What it sent
              // between the read and the first batch here may be lost with that control plane, so a
              // second read has it.
              if (channel.isWhole() === false) {
                at = channel.end();
                const hasBegun =
                  positions.has(target.id) || resumed.has(target.id) || !firsts.has(target.id);
                const begin = hasBegun ? beginOf(target.id) : beginSince(began);
                const second = await sendFirst(target, node, begin, { channel, end: at, signal });
                if (second.problem !== null) await gone(node.hostname, second.problem);
                overlap = second.overlap;
                gaps = gapsAfter(overlap);
                overlapUntil = performance.now() + OVERLAP_MS;
              }
            }
            if (performance.now() > overlapUntil) overlap = null;
            let items = channel.after(at, LINES_AT_ONCE, PAGE_BYTES);
            const ready = gaps.ready(items);
            if (ready === 0 && items.length > 0) {
              await gaps.settle(channel, at, recountOf(target, node, signal), wait);
              // The channel may have dropped some of the lines meanwhile.
              continue;
            }
            items = items.slice(0, ready);
            if (items.length > 0) await checkRights();
            signal.throwIfAborted();
            const known = overlap;
            const events: SseEvent[] = [];
            for (const item of items) {
              const { lost, line } = item;
              const to = line === null ? null : timeIn(line.at, channel);
              // Missing numbers may belong to lines of the first read.
              const count = gaps.lost(item);
              const skip = line !== null && known?.wasShown(line) === true;
              if (count > 0)
                events.push(lostEvent({ deployment_id: target.id, count, from: before, to }));
              at = line?.pos ?? at + lost;
              before = to ?? before;
              if (line === null || skip) continue;
              gaps.sent();
              said = '';
              events.push(...lineEvent(target.id, line, channel));
            }
            await inTime(() => sendAll(events));
            // Other requests come between two parts.
            if (events.length > 0) await setImmediate();
            if (channel.ended() && at >= channel.end()) break;
            if (channel.problem() !== null && !isEnding())
              await gone(node.hostname, channel.problem() ?? '');
            const silent = performance.now() - (channel.heardAt() ?? held.since);
            if (silent > SILENT_MS)
              await gone(
                node.hostname,
                `node ${node.hostname} has sent nothing for ${Math.floor(SILENT_MS / 1000)} s`,
              );
            const isNumbered = (): boolean => isUnnumbered && channel.isWhole() !== null;
            await waitFor(
              channel,
              () => channel.end() > at || channel.ended() || isNumbered(),
              LOOK_MS,
              signal,
            );
            signal.throwIfAborted();
          }
        } finally {
          held.release();
        }
        if (isEnding()) return;
        await pause(LOOK_MS, signal);
      }
    }

    type Begin = {
      range: { tail: number; since: number | null; after: string | null };
      known: Position | null;
      countsLeftOut: boolean;
    };
    /**
     * Begins with the lines since a time of this control plane: the viewer has got none. The second
     * is for the way to the agent.
     */
    const beginSince = (time: number): Begin => ({
      range: { tail: MAX_TAIL, since: time - 1_000, after: null },
      known: null,
      countsLeftOut: true,
    });
    /**
     * Where a source begins: after the last line that was shown, else with the lines that the
     * request asks for.
     */
    function beginOf(id: string): Begin {
      const known = positions.get(id) ?? resumed.get(id);
      if (known !== undefined)
        return {
          range: {
            tail: MAX_TAIL,
            since: null,
            after: known.stdout > known.stderr ? known.stdout : known.stderr,
          },
          known,
          countsLeftOut: true,
        };
      // A deployment that starts while the stream is open is shown from its first line.
      if (!firsts.has(id))
        return {
          range: { tail: MAX_TAIL, since: null, after: null },
          known: null,
          countsLeftOut: false,
        };
      return {
        range: { tail: query.tail ?? DEFAULT_TAIL, since: rangeOf(query).since, after: null },
        known: null,
        countsLeftOut: false,
      };
    }
    const firsts = new Set<string>();
    /** Says that no container runs, after its stored last lines. */
    async function sayIdle(
      projectId: string,
      named: Target | null,
      withLines: boolean,
    ): Promise<void> {
      const tail = query.tail ?? DEFAULT_TAIL;
      const { lines, unavailable } =
        named === null
          ? await lastEnd(projectId, query, tail)
          : {
              unavailable: 'this deployment has ended',
              ...storedLines(await stores.exits.list(named.id), query, tail),
            };
      await inTime(async () => {
        if (withLines) await sendAll(lines.map((data) => ({ event: 'line', data })));
        const message = withLines ? (unavailable ?? NOTHING_RUNS) : NOTHING_RUNS;
        await sendGone({
          deployment_id: named?.id ?? lines[0]?.deployment_id ?? null,
          node: null,
          message,
        });
      });
    }

    return {
      async run(projectId: string): Promise<void> {
        for (;;) {
          const moved = changes.wait('work', LOOK_MS, hold.signal);
          // Ends the stream when the token expires, the user is disabled or may not see the project
          // any more.
          await recheck();
          await stores.projects.get(projectId);
          const targets = await targetsOf(projectId, query.deployment_id);
          if (isFirstLook && resumed.size === 0) for (const { id } of targets) firsts.add(id);
          const isIdle = sources.size === 0 && targets.every((target) => target.ended);
          if (isIdle && !wasIdle)
            await sayIdle(projectId, targets[0] ?? null, isFirstLook && resumed.size === 0);
          wasIdle = isIdle;
          isFirstLook = false;
          for (const target of targets) {
            const known = sources.get(target.id);
            if (known !== undefined && known.node_id === target.node_id) continue;
            known?.stop.abort();
            if (sources.size < MOST_SOURCES || known !== undefined) start(target);
          }
          for (const [id, entry] of sources) {
            if (targets.some((target) => target.id === id && !target.ended)) continue;
            entry.endingAt ??= performance.now();
            if (performance.now() - entry.endingAt > LAST_LINES_MS) entry.stop.abort();
          }
          if (performance.now() - quietSince >= HEARTBEAT_MS) {
            quietSince = performance.now();
            await stream.comment('still here');
          }
          await moved;
          hold.signal.throwIfAborted();
          if (failure instanceof DomainError) throw failure;
          if (failure !== null)
            throw new Error('reading the log of a deployment failed', { cause: failure });
        }
      },
      stop() {
        for (const { stop } of sources.values()) stop.abort();
      },
    };

    function start(target: Target): void {
      const stop = new AbortController();
      const entry: Source = {
        stop,
        done: Promise.resolve(),
        node_id: target.node_id,
        endingAt: null,
      };
      sources.set(target.id, entry);
      entry.done = source(
        target,
        AbortSignal.any([stop.signal, hold.signal]),
        () => entry.endingAt !== null,
      )
        .catch((error: unknown) => {
          if (!stop.signal.aborted && !hold.signal.aborted) failure = error;
        })
        .finally(() => {
          if (sources.get(target.id) === entry) sources.delete(target.id);
        });
    }
  }
}

const rangeOf = ({ since, until }: Query): { since: number | null; until: number | null } => ({
  since: since === undefined ? null : Date.parse(since),
  until: until === undefined ? null : Date.parse(until),
});

const NOTHING_RUNS = 'nothing of this project runs now';
const endOf = ({ container, exit_code, finished_at }: ExitRecord): string =>
  `${container}, which ended${finished_at === null ? '' : ` at ${time(finished_at)}`}` +
  (exit_code === null ? '' : ` with exit code ${exit_code}`);

const linesIn = (channel: Channel): ChannelLine[] =>
  channel.after(0, MAX_TAIL).flatMap(({ line }) => line ?? []);

/** A time of the node's clock, corrected if that clock is wrong. */
const timeIn = (at: string, channel: Channel): string =>
  channel.offset() === 0 ? at : time(Date.parse(at) + channel.offset());

const lineView = (
  deployment_id: string,
  { at, stream, text }: ChannelLine,
  channel: Channel,
): RuntimeLine => ({
  at: timeIn(at, channel),
  deployment_id,
  stream,
  text,
});

/**
 * The id of a line: the newest position of each deployment, so that a stream can be resumed at any
 * control plane.
 */
const idOf = (positions: ReadonlyMap<string, { stdout: string; stderr: string }>): string =>
  [...positions]
    .slice(-4)
    .map(([id, { stdout, stderr }]) => `${id}~${stdout}~${stderr}`)
    .join(',');

const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z)?$/;
function positionsIn(
  header: string | string[] | undefined,
): Map<string, { stdout: string; stderr: string }> {
  const found = new Map<string, { stdout: string; stderr: string }>();
  if (typeof header !== 'string' || header.length > 2_000) return found;
  for (const part of header.split(',')) {
    const [id = '', stdout = '', stderr = '', ...more] = part.split('~');
    if (
      /^[\w-]{1,64}$/.test(id) &&
      TIME.test(stdout) &&
      TIME.test(stderr) &&
      stdout + stderr !== '' &&
      more.length === 0
    )
      found.set(id, { stdout, stderr });
  }
  return found;
}

function storedLines(exits: readonly ExitRecord[], query: Query, tail: number): RuntimeLogs {
  const { since, until } = rangeOf(query);
  const [newest] = exits;
  if (newest === undefined)
    return {
      lines: [],
      truncated: false,
      unavailable: 'the container is gone, and its end is not stored',
    };
  const wanted = newest.lines.filter(
    ({ at, stream }) =>
      (since === null || Date.parse(at) >= since) &&
      (until === null || Date.parse(at) <= until) &&
      (query.stream === undefined || stream === query.stream),
  );
  const lines = (tail === 0 ? [] : wanted.slice(-tail)).map((line) => ({
    ...line,
    deployment_id: newest.deployment_id,
  }));
  return { lines, truncated: newest.truncated || wanted.length > lines.length };
}

const exitView = ({ started_at, finished_at, ...exit }: ExitRecord): ContainerExit => ({
  ...exit,
  started_at: started_at === null ? null : time(started_at),
  finished_at: finished_at === null ? null : time(finished_at),
});

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve, reject) => {
    const abort = (): void => {
      clearTimeout(timer);
      reject(new Error('aborted'));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', abort);
      resolve();
    }, ms);
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
