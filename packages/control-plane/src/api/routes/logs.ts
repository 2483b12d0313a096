/**
 * The log of a deployment, as pages or as a live stream. Events of the stream: `line` (a LogLine;
 * its id is `seq`), `state` (`{status, error, finished_at}`, at the start and at each change),
 * `end` (the same fields, once the deployment is settled and all lines are sent), `unavailable`
 * (`{message}`: retention removed the log). Last-Event-ID resumes an interrupted stream.
 */
import { isSettled } from '@berth/wire/vocabulary';
import type { DeploymentRecord } from '../../domain/platform/records.ts';
import type { Call, Define } from '../define.ts';
import type { Hold, Holds } from '../long-poll.ts';
import { type EventStream, resumeAt } from '../sse.ts';
import { streamTo } from '../stream-answer.ts';
import { logLineView, logUnavailable, time } from '../views.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { LogStore } from '../../domain/deployments/log-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

type Recheck = () => Promise<unknown>;

const PAGE = 500;
/** Poll interval if no notification arrives: another control plane can store the lines. */
const POLL_MS = 2_000;
const HEARTBEAT_MS = 15_000;

export type Deps = {
  deployments: Pick<DeploymentStore, 'get'>;
  logs: Pick<LogStore, 'read'>;
  changes: Pick<Changes, 'wait'>;
  holds: Pick<Holds, 'begin'>;
};

export function logRoutes(route: Define, deps: Deps): void {
  route('deploymentLogs', (call) => deploymentLogs(deps, call));
}

async function deploymentLogs(
  deps: Deps,
  { params, query, user, recheck, stream, request, reply }: Call<'deploymentLogs'>,
) {
  const deployment = await deps.deployments.get(params.id);
  const after = query.after ?? 0;
  if (stream)
    return streamTo({
      holds: deps.holds,
      kind: 'logs',
      userId: user.id,
      request,
      reply,
      pump: (events, hold) =>
        pump(deps, deployment.id, resumeAt(request.raw, after), events, hold, recheck),
      onFault: (err) => request.log.error({ err, deployment: deployment.id }, 'log stream failed'),
    });
  const unavailable = logUnavailable(deployment);
  if (unavailable !== null) return { lines: [], next: after, unavailable };
  const lines = await deps.logs.read(params.id, after, query.limit ?? PAGE);
  return { lines: lines.map(logLineView), next: lines.at(-1)?.seq ?? after };
}

async function pump(
  deps: Deps,
  id: string,
  after: number,
  stream: EventStream,
  hold: Hold,
  recheck: Recheck,
): Promise<void> {
  let cursor = after;
  let shown = '';
  let quietSince = performance.now();
  for (;;) {
    // Subscribe before reading, so that no change is missed. Read the state before the lines:
    // once the deployment is settled, the lines that are read afterwards are complete.
    const round = new AbortController();
    const notified = deps.changes.wait(
      `logs:${id}`,
      POLL_MS,
      AbortSignal.any([hold.signal, round.signal]),
    );
    try {
      // Ends the stream when the token expires, the user is disabled or can no longer see the
      // project.
      await recheck();
      const deployment = await deps.deployments.get(id);
      const state = stateOf(deployment);
      if (JSON.stringify(state) !== shown) await stream.send({ event: 'state', data: state });
      shown = JSON.stringify(state);
      const before = cursor;
      const unavailable = logUnavailable(deployment);
      if (unavailable === null) cursor = await sendLines(deps, id, cursor, stream, recheck);
      else await stream.send({ event: 'unavailable', data: { message: unavailable } });
      if (isSettled(deployment.status)) return await stream.send({ event: 'end', data: state });
      if (cursor !== before) quietSince = performance.now();
      else if (performance.now() - quietSince >= HEARTBEAT_MS) {
        await stream.comment('still here');
        quietSince = performance.now();
      }
      await notified;
      hold.signal.throwIfAborted();
    } finally {
      round.abort();
    }
  }
}

async function sendLines(
  deps: Deps,
  id: string,
  after: number,
  stream: EventStream,
  recheck: Recheck,
): Promise<number> {
  let cursor = after;
  for (;;) {
    const lines = await deps.logs.read(id, cursor, PAGE);
    for (const line of lines)
      await stream.send({ event: 'line', data: logLineView(line), id: line.seq });
    cursor = lines.at(-1)?.seq ?? cursor;
    if (lines.length < PAGE) return cursor;
    // Check the rights again: a slow client can take long to read a page.
    await recheck();
  }
}

const stateOf = (d: DeploymentRecord) => ({
  status: d.status,
  error: d.error,
  finished_at: d.finished_at === null ? null : time(d.finished_at),
});
