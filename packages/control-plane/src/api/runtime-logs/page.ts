/** Runtime logs as JSON: the newest lines of a range. */
import { defined } from '@berth/kit/defined';
import { DEFAULT_TAIL, type RuntimeLogs } from '@berth/wire/runtime';
import type { RuntimeLogDeps } from './deps.ts';
import {
  endOf,
  lineView,
  type LogQuery,
  mergedByTime,
  newestLines,
  NOTHING_RUNS,
  rangeOf,
  storedLines,
} from './lines.ts';
import { readableNode, type Target, targetsOf } from './targets.ts';

export async function readPage(
  deps: RuntimeLogDeps,
  projectId: string,
  query: LogQuery,
  signal: AbortSignal,
): Promise<RuntimeLogs> {
  const targets = await targetsOf(deps, projectId, query.deployment_id);
  const tail = query.tail ?? DEFAULT_TAIL;
  const parts = await Promise.all(
    targets.map((target) => readTarget(deps, target, query, tail, signal)),
  );
  if (targets.length === 0) parts.push(await lastEnd(deps, projectId, query, tail));
  const lines = mergedByTime(parts.map((part) => part.lines));
  const problems = parts.flatMap((part) => part.unavailable ?? []);
  return {
    lines: newestLines(lines, tail),
    truncated: lines.length > tail || parts.some((part) => part.truncated),
    ...defined({ unavailable: problems.length === 0 ? undefined : problems.join('; ') }),
  };
}

async function readTarget(
  deps: RuntimeLogDeps,
  target: Target,
  query: LogQuery,
  tail: number,
  signal: AbortSignal,
): Promise<RuntimeLogs> {
  if (target.ended) return storedLines(await deps.stores.exits.list(target.id), query, tail);
  const { node, problem } = await readableNode(deps, target.node_id);
  if (problem !== null) return { lines: [], truncated: false, unavailable: problem };
  const request = {
    deployment_id: target.id,
    node_id: node.id,
    tail,
    ...rangeOf(query),
    stream: query.stream ?? null,
    after: null,
  };
  const read = await deps.readers.read(request, signal);
  return {
    lines: read.lines.map((line) => lineView(target.id, line, read.offset)),
    truncated: read.isCut,
    ...defined({ unavailable: read.problem ?? undefined }),
  };
}

/** Returns the stored end of the newest container, for a project without a running one. */
export async function lastEnd(
  { stores }: RuntimeLogDeps,
  projectId: string,
  query: LogQuery,
  tail: number,
): Promise<RuntimeLogs> {
  const { items } = await stores.deployments.list(
    { project_id: projectId },
    { limit: 20, cursor: null },
  );
  for (const { id } of items) {
    const [newest] = await stores.exits.list(id);
    if (newest === undefined) continue;
    const unavailable = `${NOTHING_RUNS}; these are the last lines of ${endOf(newest)}`;
    return { ...storedLines([newest], query, tail), unavailable };
  }
  const unavailable = `${NOTHING_RUNS}, and no end of a container is stored`;
  return { lines: [], truncated: false, unavailable };
}
