/**
 * The log of a deployment, as pages or as a live stream (log-stream.ts). `state` has the fields
 * `{status, error, finished_at}`. Last-Event-ID resumes an interrupted stream.
 */
import { isSettled } from '@berth/wire/vocabulary';
import type { DeploymentRecord } from '../../domain/platform/records.ts';
import type { Call, Define } from '../define.ts';
import { LOG_PAGE, type LogSource, pumpLog } from '../log-stream.ts';
import type { Holds } from '../long-poll.ts';
import { resumeAt } from '../sse.ts';
import { streamTo } from '../stream-answer.ts';
import { logLineView, logUnavailable, time } from '../views.ts';
import type { DeploymentStore } from '../../domain/deployments/deployment-store.ts';
import type { LogStore } from '../../domain/deployments/log-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

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
      pump: (events, hold) => {
        const source = {
          id: deployment.id,
          state: () => logState(deps, deployment.id),
          read: (from: number, limit: number) => deps.logs.read(deployment.id, from, limit),
          recheck,
        };
        return pumpLog(deps, source, resumeAt(request.raw, after), events, hold);
      },
      onFault: (err) => request.log.error({ err, deployment: deployment.id }, 'log stream failed'),
    });
  const unavailable = logUnavailable(deployment);
  if (unavailable !== null) return { lines: [], next: after, unavailable };
  const lines = await deps.logs.read(params.id, after, query.limit ?? LOG_PAGE);
  return { lines: lines.map(logLineView), next: lines.at(-1)?.seq ?? after };
}

async function logState(deps: Deps, id: string): ReturnType<LogSource['state']> {
  const deployment = await deps.deployments.get(id);
  return {
    data: stateOf(deployment),
    isOver: isSettled(deployment.status),
    unavailable: logUnavailable(deployment),
  };
}

const stateOf = (d: DeploymentRecord) => ({
  status: d.status,
  error: d.error,
  finished_at: d.finished_at === null ? null : time(d.finished_at),
});
